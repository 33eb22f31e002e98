package main

import (
	"os"
	"slices"
	"testing"

	"github.com/goreleaser/goreleaser/v2/pkg/config"
	"github.com/goreleaser/nfpm/v2"
)

// packed is a file of a package.
type packed struct {
	from, to, kind, packager string
	mode                     os.FileMode
}

// The release is configured in words that its tool knows, and its packages are
// those of make package.
func TestRelease(t *testing.T) {
	release, err := config.Load("../../.goreleaser.yaml")
	if err != nil {
		t.Fatal(err)
	}
	packages, err := nfpm.ParseFile("../../" + configFile)
	if err != nil {
		t.Fatal(err)
	}
	if len(release.NFPMs) != 1 {
		t.Fatalf("%d kinds of packages", len(release.NFPMs))
	}
	r := release.NFPMs[0]
	var has, want []packed
	for _, c := range r.Contents {
		has = append(has, packed{c.Source, c.Destination, c.Type, c.Packager, c.FileInfo.Mode})
	}
	for _, c := range packages.Contents {
		if c.Destination != "/usr/bin/quipu" { // a release puts it there by itself
			want = append(want, packed{c.Source, c.Destination, c.Type, c.Packager, c.FileInfo.Mode})
		}
	}
	if !slices.Equal(has, want) {
		t.Errorf("a release packs\n%v\nand make package\n%v", has, want)
	}
	f := func(name, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s of a release is %q, and that of make package %q", name, got, want)
		}
	}
	f("description", r.Description, packages.Description)
	f("maintainer", r.Maintainer, packages.Maintainer)
	f("homepage", r.Homepage, packages.Homepage)
	f("license", r.License, packages.License)
	f("vendor", r.Vendor, packages.Vendor)
	f("section", r.Section, packages.Section)
	f("postinstall", r.Scripts.PostInstall, packages.Scripts.PostInstall)
	f("preremove", r.Scripts.PreRemove, packages.Scripts.PreRemove)
	for _, d := range release.DockersV2 {
		for _, name := range append(slices.Clone(d.ExtraFiles), d.Dockerfile) {
			if _, err := os.Stat("../../" + name); err != nil && name != stageDir+"/ca-certificates.crt" { // that is made
				t.Error(err)
			}
		}
	}
}
