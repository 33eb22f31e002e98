package main

import (
	"runtime"
	"runtime/debug"
)

type aboutCmd struct{}

// Run prints the version.
func (aboutCmd) Run(out *output) error { return out.print("%s", versionLine()) }

// versionName returns the version that was stamped, or else what the build
// knows.
func versionName() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

// versionLine says what this binary is.
func versionLine() string {
	commit := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				commit = s.Value + commit
			case s.Key == "vcs.modified" && s.Value == "true":
				commit += ", modified"
			}
		}
	}
	if commit == "" {
		commit = "unknown"
	}
	return "quipu " + versionName() + ", commit " + commit + ", " + runtime.Version() + ", " + runtime.GOOS + "/" + runtime.GOARCH
}
