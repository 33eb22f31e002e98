package main

import (
	"runtime"
	"runtime/debug"
)

type aboutCmd struct{}

// Run prints the version.
func (aboutCmd) Run(out *output) error { return out.print("%s", versionLine()) }

// versionLine says what this binary is.
func versionLine() string {
	name, commit := version, ""
	if info, ok := debug.ReadBuildInfo(); ok {
		if name == "" && info.Main.Version != "" {
			name = info.Main.Version
		}
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				commit = s.Value + commit
			case s.Key == "vcs.modified" && s.Value == "true":
				commit += ", modified"
			}
		}
	}
	if name == "" {
		name = "(devel)"
	}
	if commit == "" {
		commit = "unknown"
	}
	return "quipu " + name + ", commit " + commit + ", " + runtime.Version() + ", " + runtime.GOOS + "/" + runtime.GOARCH
}
