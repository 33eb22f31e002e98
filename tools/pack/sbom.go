package main

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// A component of a bill of materials, as CycloneDX 1.6 has it.
type component struct {
	Type     string    `json:"type"`
	Ref      string    `json:"bom-ref"`
	Name     string    `json:"name"`
	Version  string    `json:"version,omitempty"`
	URL      string    `json:"purl"`
	Pedigree *pedigree `json:"pedigree,omitempty"`
}

// A pedigree says what was changed.
type pedigree struct {
	Notes string `json:"notes"`
}

// A bill lists what is in a program.
type bill struct {
	Schema   string `json:"$schema"`
	Format   string `json:"bomFormat"`
	Spec     string `json:"specVersion"`
	Version  int    `json:"version"`
	Metadata struct {
		Component component `json:"component"`
	} `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

// A dependency says what a component is made of.
type dependency struct {
	Ref string   `json:"ref"`
	On  []string `json:"dependsOn"`
}

// module returns the component of a module.
func module(kind, path, version string) component {
	url := "pkg:golang/" + path
	if version != "" {
		url += "@" + strings.ReplaceAll(version, "+", "%2B")
	}
	return component{Type: kind, Ref: url, Name: path, Version: version, URL: url}
}

// billOf returns what the go command wrote into a program.
func billOf(binary, version string) (*bill, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	b := &bill{Schema: "http://cyclonedx.org/schema/bom-1.6.schema.json", Format: "CycloneDX", Spec: "1.6", Version: 1}
	b.Metadata.Component = module("application", info.Main.Path, "v"+version)
	b.Components = append(b.Components, module("library", "std", strings.TrimPrefix(info.GoVersion, "go")))
	for _, d := range info.Deps {
		c := module("library", d.Path, d.Version)
		if d.Replace != nil {
			c.Pedigree = &pedigree{"changed at build time, by tools/slim, to be smaller"}
		}
		b.Components = append(b.Components, c)
	}
	all := dependency{Ref: b.Metadata.Component.Ref}
	for _, c := range b.Components {
		all.On = append(all.On, c.Ref)
	}
	b.Dependencies = []dependency{all}
	return b, nil
}

// sbom writes the bill of the binary.
func (j *job) sbom(out io.Writer) error {
	b, err := billOf(j.binary, j.version)
	if err != nil {
		return err
	}
	raw, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return err
	}
	name := filepath.Join(distDir, "quipu_"+j.version+"_"+j.os+"_"+j.arch+".cdx.json")
	if err := os.MkdirAll(distDir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(name, append(raw, '\n'), 0o644); err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, name)
	return err
}
