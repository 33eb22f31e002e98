package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Whatever is wrong with an API key, no error repeats it.
func TestKeysAreNotRepeated(t *testing.T) {
	f := func(env, yaml string, args ...string) {
		t.Helper()
		args = append([]string{"serve", "--store", "memory:", "--http", "127.0.0.1:0", "--resp", "off", "--rpc", "off"}, args...)
		if yaml != "" {
			file := filepath.Join(t.TempDir(), "quipu.yaml")
			if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
				t.Fatal(err)
			}
			args = append(args, "--config", file)
			got, err := exec.CommandContext(t.Context(), binary, "config", "check", file).CombinedOutput()
			if err == nil || strings.Contains(string(got), "sekret") {
				t.Errorf("config check of %q: %s, %v", yaml, got, err)
			}
		}
		c := exec.CommandContext(t.Context(), binary, args...)
		c.Env = append(os.Environ(), "QUIPU_API_KEY="+env)
		if env == "" {
			c.Env = os.Environ()
		}
		got, err := c.CombinedOutput()
		if err == nil || strings.Contains(string(got), "sekret") {
			t.Errorf("serve with %q, %q, %q: %s, %v", env, yaml, args, got, err)
		}
	}
	for _, bad := range []string{"sekret,", ",sekret", "a,,sekret", "sekret key", "sekret\tx", "sekret\"\\ x", "sekret\u00e9", "sekret\n", "sekret\x7f"} {
		f(bad, "")
		f("", "", "--api-key", bad)
		f("", "", "--api-key="+bad)
	}
	f("", "", "--api-key", "a", "sekret")
	f("", "", "--api-kye=sekret")
	for _, bad := range []string{
		"api-key: sekret,", "api-key: [a, sekret, '']", "api-key: [a, [sekret]]", "api-key: {sekret: x}", "api-key: sekret key",
		"api-key: sekret: x", "api-key: 'sekret", "api-key: *sekret", "api-key: [sekret", "api-key: \"sekret\\q\"",
	} {
		f("", bad+"\n")
	}
}
