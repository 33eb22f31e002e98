package main

import (
	"encoding/json"
	"runtime"
	"runtime/debug"
	"strings"
)

type aboutCmd struct {
	JSON bool `name:"json" help:"Print one JSON object."`
}

// Run prints the version.
func (c *aboutCmd) Run(out *output) error {
	if !c.JSON {
		return out.print("%s", versionLine())
	}
	raw, err := json.Marshal(buildOf())
	if err != nil {
		return err
	}
	return out.print("%s", raw)
}

// A build is what is known of this binary.
type build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Time     string `json:"time,omitempty"` // of the commit
	Modified bool   `json:"modified"`       // since the commit
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

// buildOf returns what the linker and the go command have stamped.
func buildOf() build {
	b := build{Version: versionName(), Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	info, _ := debug.ReadBuildInfo()
	if info == nil {
		return b
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

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
	b := buildOf()
	commit := b.Commit
	if commit == "" {
		commit = "unknown"
	}
	if b.Modified {
		commit += ", modified"
	}
	return strings.Join([]string{"quipu " + b.Version, "commit " + commit, b.Go, b.OS + "/" + b.Arch}, ", ")
}
