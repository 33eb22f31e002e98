package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/quipudb/quipu/internal/completion"
)

// complete has bash complete a line, as a user does who presses the tab key.
func complete(t *testing.T, line ...string) string {
	t.Helper()
	script := filepath.Join(t.TempDir(), "quipu.bash")
	if err := os.WriteFile(script, []byte(command(t, "completion", "bash").stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	const ask = `. "$1"; shift; COMP_WORDS=(quipu "$@"); COMP_CWORD=$#; _quipu quipu "${!#}" ""; printf '%s\n' "${COMPREPLY[@]}"`
	c := exec.CommandContext(t.Context(), "bash", append([]string{"-c", ask, "bash", script}, line...)...)
	c.Env = environment("PATH=" + filepath.Dir(binary) + ":" + os.Getenv("PATH"))
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// Bash completes commands, flags and their values, by asking the program.
func TestCompletion(t *testing.T) {
	f := func(want string, line ...string) {
		t.Helper()
		if got := complete(t, line...); got != want {
			t.Errorf("%q completes to %q, want %q", line, got, want)
		}
	}
	f("policy\n", "pol")
	f("explain\n", "policy", "ex")
	f("--log-level\n--log-format\n", "serve", "--log")
	f("debug\ninfo\nwarn\nerror\n", "serve", "--log-level", "")
	f("--help\n", "--he")
	f("bash\nzsh\nfish\n", "completion", "")
	f("\n", "get", "key:")
	refused(t, exitUsage, `must be one of "bash","zsh","fish"`, "completion", "csh")
	if all := complete(t, ""); strings.Contains(all, "__complete") || !strings.HasPrefix(all, "serve\ndemo\nadd\n") {
		t.Errorf("commands: %s", all)
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if r := command(t, "completion", shell); r.code != 0 || r.stdout != completion.Script(shell, "quipu") {
			t.Errorf("%s: %+v", shell, r)
		}
	}
}

// plain returns what man(1) shows of a page, as one line.
func plain(text string) string {
	text = regexp.MustCompile(`\\f[A-Z]|\\&`).ReplaceAllString(text, "")
	text = strings.NewReplacer(`\-`, "-", `\e`, `\`, `\(aq`, "'", `\(dq`, `"`, `\(ga`, "`", `\(ha`, "^", `\(ti`, "~", `\[u2026]`, "…").Replace(text)
	return strings.Join(strings.Fields(text), " ")
}

// The pages of the manual say what the help says: there is one for each command,
// with each flag, its help and its variable.
func TestMan(t *testing.T) {
	dir := t.TempDir()
	if r := command(t, "man", "--out", dir); r.code != 0 || r.stdout != "" {
		t.Fatalf("%+v", r)
	}
	parser, err := newParser(newOutput(os.Stdout, os.Stderr), &config{}, kong.DefaultEnvars("QUIPU"))
	if err != nil {
		t.Fatal(err)
	}
	leaves := parser.Model.Leaves(true)
	for _, leaf := range leaves {
		words := strings.Fields(regexp.MustCompile(`\([^)]*\)`).ReplaceAllString(leaf.Path(), "")) // without other names
		name := strings.Join(append([]string{"quipu"}, words...), "-")
		raw, err := os.ReadFile(filepath.Join(dir, name+".1"))
		if err != nil {
			t.Error(err)
			continue
		}
		page := plain(string(raw))
		for text := range strings.SplitSeq(leaf.Help+"\n"+leaf.Detail, "\n") {
			if text = strings.Join(strings.Fields(text), " "); !strings.Contains(page, text) {
				t.Errorf("%s lacks %q", name, text)
			}
		}
		for _, group := range leaf.AllFlags(true) {
			for _, f := range group {
				if want := "--" + f.Name; !strings.Contains(page, want) || !strings.Contains(page, strings.Join(strings.Fields(f.Help), " ")) {
					t.Errorf("%s lacks %s", name, want)
				}
				if len(f.Envs) > 0 && !strings.Contains(page, "Variable: "+f.Envs[0]) {
					t.Errorf("%s lacks %s", name, f.Envs[0])
				}
			}
		}
		if r := command(t, append([]string{"man"}, words...)...); r.stdout != string(raw) {
			t.Errorf("quipu man %q is another page: %+v", words, r)
		}
	}
	if all, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(all) != len(leaves)+1 {
		t.Errorf("%d pages for %d commands, %v", len(all), len(leaves), err)
	}
	if r := command(t, "man"); r.code != 0 || !strings.Contains(plain(r.stdout), "quipu-serve (1) Run the server.") {
		t.Errorf("%+v", r)
	}
	refused(t, exitUsage, "no command is called nothing", "man", "nothing")
	refused(t, exitUsage, "--out writes the pages of all", "man", "serve", "--out", dir)
	if groff, err := exec.LookPath("groff"); err == nil {
		all, _ := filepath.Glob(filepath.Join(dir, "*.1"))
		c := exec.CommandContext(t.Context(), groff, append([]string{"-man", "-ww", "-Tutf8", "-z"}, all...)...)
		if out, err := c.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("groff: %v\n%s", err, out)
		}
	}
}

func TestVersionJSON(t *testing.T) {
	var got build
	r := command(t, "version", "--json")
	d := json.NewDecoder(bytes.NewReader([]byte(r.stdout)))
	d.DisallowUnknownFields()
	if err := d.Decode(&got); err != nil || got.Version != "v0.0.0-test" || !strings.HasPrefix(got.Go, "go1.") || got.OS == "" || got.Arch == "" {
		t.Errorf("%+v, %+v, %v", r, got, err)
	}
}
