package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

// load reads a compose file as docker compose does.
func load(t *testing.T, name string, env ...string) (*types.Project, error) {
	t.Helper()
	o, err := cli.NewProjectOptions([]string{filepath.Join("../../deploy/compose", name)}, cli.WithEnv(env), cli.WithInterpolation(true), cli.WithResolvedPaths(true))
	if err != nil {
		t.Fatal(err)
	}
	return o.LoadProject(t.Context())
}

// The compose files are valid, ask for the secrets that they need, lock their
// servers up as the image allows, and mount files that there are.
func TestCompose(t *testing.T) {
	f := func(name string, servers int, env ...string) {
		t.Helper()
		if _, err := load(t, name); err == nil || !strings.Contains(err.Error(), "choose a") {
			t.Errorf("%s without secrets: %v", name, err)
		}
		p, err := load(t, name, env...)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, s := range p.Services {
			for _, port := range s.Ports {
				if port.HostIP != "127.0.0.1" {
					t.Errorf("%s: %s: other machines can reach port %s", name, s.Name, port.Published)
				}
			}
			for _, v := range s.Volumes {
				if v.Type != types.VolumeTypeBind {
					continue
				}
				if _, err := os.Stat(v.Source); err != nil || !v.ReadOnly {
					t.Errorf("%s: %s mounts %+v: %v", name, s.Name, v, err)
				}
			}
			if strings.Contains(s.Image, ":latest") != strings.HasPrefix(s.Image, "quipudb/") {
				t.Errorf("%s: %s has the image %s: pin its version", name, s.Name, s.Image)
			}
			if !strings.HasPrefix(s.Image, "quipudb/quipu:") {
				continue
			}
			servers--
			if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") || s.MemLimit == 0 {
				t.Errorf("%s: %s is not locked up: %+v", name, s.Name, s)
			}
			if s.HealthCheck == nil || !slices.Equal(s.HealthCheck.Test, []string{"CMD", "/usr/bin/quipu", "health"}) {
				t.Errorf("%s: %s has the health check %+v", name, s.Name, s.HealthCheck)
			}
			if key := s.Environment["QUIPU_API_KEY"]; key == nil || *key != "sekret" {
				t.Errorf("%s: %s has the key %v", name, s.Name, key)
			}
		}
		if servers != 0 {
			t.Errorf("%s lacks %d servers", name, servers)
		}
	}
	f("embedded.yaml", 1, "QUIPU_API_KEY=sekret")
	f("postgres.yaml", 2, "QUIPU_API_KEY=sekret", "QUIPU_DB_PASSWORD=pass")
}
