package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sassoftware/go-rpmutils"
)

// program is quipu as make build makes it, but for -trimpath, without which
// everything would be compiled once more.
var program string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "quipu-pack-")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	program = filepath.Join(dir, "quipu")
	for _, args := range [][]string{
		{"-C", "..", "run", "./slim", "-source", "..", "-out", "bin/slim-test"},
		{"-C", "../..", "build", "-trimpath", "-tags", "grpcnotrace", "-modfile=bin/slim-test/slim.mod", "-ldflags", "-s -w -X main.version=v1.2.3", "-o", program, "./cmd/quipu"},
	} {
		c := exec.Command("go", args...)
		c.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := c.CombinedOutput(); err != nil {
			panic(fmt.Sprintf("go %q: %v\n%s", args, err, out))
		}
	}
	return m.Run()
}

// passes runs a command that must succeed, and returns what it prints.
func passes(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// The program that people download has less than 35 MB, and works without the
// methods that were left out: it is parsed, configured, refused and helped.
func TestSlim(t *testing.T) {
	info, err := os.Stat(program)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.1f MB", float64(info.Size())/1e6)
	if info.Size() > 35e6 {
		t.Errorf("the program has %d bytes: if it grew by 14 MB, something links text/template or looks up methods by reflection, as tools/slim explains; else see what \"go tool nm -size\" lists", info.Size())
	}
	config := filepath.Join(t.TempDir(), "quipu.yaml")
	if err := os.WriteFile(config, []byte("http: off\nresp: off\nrpc: off\nstore: 'memory:'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := func(code int, text string, args ...string) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
		got := 0
		if e, ok := errors.AsType[*exec.ExitError](err); ok {
			got = e.ExitCode()
		}
		if got != code || !strings.Contains(string(out), text) {
			t.Errorf("%q: exit %d, %s, want exit %d and %q", args, got, out, code, text)
		}
	}
	f(0, "quipu v1.2.3, ", "version")
	f(0, "Exit codes:", "--help")
	f(0, "When the server is ready", "serve", "--help")
	f(0, "presets", "policy", "--help")
	f(2, "nothing to serve", "serve", "--config", config)
	f(2, "--timeout: want more than 0s", "health", "--timeout", "0s")
	f(2, `"x": want an integer`, "add", "k", "x")
	f(3, "connection refused", "get", "k", "--addr", "127.0.0.1:1")
}

// repository makes a folder with what the packages are made of, and goes there.
func repository(t *testing.T) string {
	t.Helper()
	root, dir := "../..", t.TempDir()
	for _, name := range []string{"LICENSE", "CHANGELOG.md"} {
		raw, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.CopyFS(filepath.Join(dir, "deploy"), os.DirFS(filepath.Join(root, "deploy"))); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	return dir
}

// pack runs the command, in the folder where the test is, and returns the names
// that it prints.
func pack(t *testing.T, args ...string) []string {
	t.Helper()
	var out bytes.Buffer
	if err := run(args, &out); err != nil {
		t.Fatalf("pack %q: %v", args, err)
	}
	return strings.Fields(out.String())
}

// The packages have the program, its service, its manual and its completions. The
// one of Debian is installed, runs, and keeps its settings when it is removed.
func TestLinux(t *testing.T) {
	repository(t)
	pack(t, "stage", "-program", program)
	made := pack(t, "linux", "-version", "v1.2.3", "-arch", "amd64")
	slices.Sort(made)
	deb, rpm := "bin/dist/quipu_1.2.3_amd64.deb", "bin/dist/quipu-1.2.3-1.x86_64.rpm"
	if !slices.Equal(made, []string{rpm, deb}) {
		t.Fatalf("made %q", made)
	}

	root := filepath.Join(t.TempDir(), "root")
	for _, dir := range []string{"info", "updates", "triggers"} {
		if err := os.MkdirAll(filepath.Join(root, "var/lib/dpkg", dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "var/lib/dpkg/status"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dpkg := []string{"--root=" + root, "--force-not-root", "--force-script-chrootless", "--force-bad-path", "--log=" + filepath.Join(root, "log")}
	passes(t, "dpkg", append(dpkg, "--install", deb)...)
	modes := map[string]os.FileMode{
		"/usr/bin/quipu": 0o755, "/usr/lib/systemd/system/quipu.service": 0o644, "/etc/quipu.env": 0o600,
		"/usr/share/man/man1/quipu.1.gz": 0o644, "/usr/share/man/man1/quipu-serve.1.gz": 0o644, "/usr/share/man/man1/quipu-policy-set.1.gz": 0o644,
		"/usr/share/bash-completion/completions/quipu": 0o644, "/usr/share/zsh/vendor-completions/_quipu": 0o644,
		"/usr/share/fish/vendor_completions.d/quipu.fish": 0o644, "/usr/share/doc/quipu/copyright": 0o644,
	}
	for name, mode := range modes {
		if info, err := os.Stat(root + name); err != nil || info.Mode() != mode || info.Size() == 0 {
			t.Errorf("%s: %v, %v, want mode %v", name, info, err, mode)
		}
	}
	if said := passes(t, root+"/usr/bin/quipu", "version"); !strings.HasPrefix(said, "quipu v1.2.3, ") {
		t.Errorf("version: %s", said)
	}
	unit(t, root)
	passes(t, "dpkg", append(dpkg, "--remove", "quipu")...)
	if _, err := os.Stat(root + "/usr/bin/quipu"); err == nil {
		t.Error("the program is still there after the package was removed")
	}
	if _, err := os.Stat(root + "/etc/quipu.env"); err != nil {
		t.Errorf("the settings are gone with the package: %v", err)
	}

	file, err := os.Open(rpm)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	read, err := rpmutils.ReadRpm(file)
	if err != nil {
		t.Fatal(err)
	}
	files, err := read.Header.GetFiles()
	if err != nil {
		t.Fatal(err)
	}
	for name, mode := range modes {
		name = strings.Replace(name, "vendor-completions", "site-functions", 1) // of zsh
		i := slices.IndexFunc(files, func(f rpmutils.FileInfo) bool { return f.Name() == name })
		if i < 0 || os.FileMode(files[i].Mode()).Perm() != mode || files[i].UserName() != "root" {
			t.Errorf("the rpm lacks %s of mode %v and of root", name, mode)
		}
	}
}

// unit checks the unit of an installed package: systemd takes it, and finds little
// that it leaves open.
func unit(t *testing.T, root string) {
	t.Helper()
	text, err := os.ReadFile(root + "/usr/lib/systemd/system/quipu.service")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "\nExecStart=/usr/bin/quipu serve --data /var/lib/quipu\n") {
		t.Errorf("the unit is\n%s", text)
	}
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		return // the packages do not need it
	}
	file := filepath.Join(t.TempDir(), "quipu.service")
	if err := os.WriteFile(file, []byte(strings.Replace(string(text), "/usr/bin/quipu", root+"/usr/bin/quipu", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if said := passes(t, "systemd-analyze", "verify", file); strings.Contains(said, "quipu.service") {
		t.Errorf("systemd says\n%s", said)
	}
	// Exposure in tenths: 0 is none, and 100 that of a service without any setting.
	said := passes(t, "systemd-analyze", "security", "--offline=true", "--threshold=20", "--no-pager", file)
	t.Log(regexp.MustCompile(`Overall exposure level.*`).FindString(said))
}

// Versions are those of packages, whatever git calls them, and are sorted as they
// came to be.
func TestSemver(t *testing.T) {
	for version, want := range map[string]string{
		"v1.2.3": "1.2.3", "1.2.3": "1.2.3", "v1.2.3-rc.1": "1.2.3-rc.1", "v1.2.3-4-gabc123": "1.2.3+4.abc123", "v1.2.3-4-gabc123-dirty": "1.2.3+4.abc123",
		"abc123": "0.0.0-dev.0abc123", "abc123-dirty": "0.0.0-dev.0abc123.dirty", "": "0.0.0-dev.0", "unknown": "0.0.0-dev.0unknown",
	} {
		if got := semver(version); got != want {
			t.Errorf("%q: %q, want %q", version, got, want)
		}
	}
}

// The bill names every module that the program links, and which one was changed.
func TestSBOM(t *testing.T) {
	repository(t)
	made := pack(t, "sbom", "-program", program, "-version", "1.2.3", "-arch", "amd64")
	raw, err := os.ReadFile("bin/dist/quipu_1.2.3_linux_amd64.cdx.json")
	if err != nil || len(made) != 1 {
		t.Fatalf("made %q, %v", made, err)
	}
	var b bill
	if err := json.Unmarshal(raw, &b); err != nil {
		t.Fatal(err)
	}
	if b.Format != "CycloneDX" || b.Metadata.Component.URL != "pkg:golang/github.com/quipudb/quipu@v1.2.3" {
		t.Errorf("of %+v", b.Metadata.Component)
	}
	var changed []string
	seen := map[string]bool{}
	for _, c := range b.Components {
		if seen[c.Ref] || !strings.HasPrefix(c.URL, "pkg:golang/"+c.Name+"@") {
			t.Errorf("component %+v", c)
		}
		seen[c.Ref] = true
		if c.Pedigree != nil {
			changed = append(changed, c.Name)
		}
	}
	if !slices.Equal(changed, []string{"github.com/alecthomas/kong", "github.com/cockroachdb/errors", "github.com/jackc/pgx/v5"}) {
		t.Errorf("changed are %q", changed)
	}
	listed := regexp.MustCompile(`(?m)^\tdep\t(\S+)`).FindAllStringSubmatch(passes(t, "go", "version", "-m", program), -1)
	if len(listed)+1 != len(b.Components) || len(listed) < 20 {
		t.Errorf("%d components, and %d modules", len(b.Components), len(listed))
	}
}

func TestUsage(t *testing.T) {
	f := func(text string, args ...string) {
		t.Helper()
		if err := run(args, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("pack %q: %v, want %q", args, err, text)
		}
	}
	f("want stage, linux or sbom")
	f(`"nothing": want stage`, "nothing")
	f("no such file", "stage", "-program", "nothing")
	if _, err := packaged([]byte("[Unit]\n")); err == nil {
		t.Error("a unit without the program is packaged")
	}
}
