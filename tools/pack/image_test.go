package main

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// nobody is the user of the image.
const nobody = 65532

// An image is what a builder says of one.
type image struct {
	Config struct {
		User         string
		Env          []string
		Entrypoint   []string
		Cmd          []string
		WorkingDir   string
		Volumes      map[string]struct{}
		ExposedPorts map[string]struct{}
		Healthcheck  struct{ Test []string }
	} `json:"config"`
}

// build has buildah build the image without a network, and returns what it says of
// itself and a folder with its files.
func build(t *testing.T) (image, string) {
	t.Helper()
	if _, err := exec.LookPath("buildah"); err != nil {
		t.Fatalf("%v: make servers installs it", err)
	}
	root, dir := repository(t), t.TempDir()
	pack(t, "stage", "-program", program)
	buildah := []string{"--root", filepath.Join(dir, "root"), "--runroot", filepath.Join(dir, "run"), "--storage-driver", "vfs"}
	passes(t, "buildah", append(buildah, "build", "--isolation", "chroot", "--format", "docker", "--pull-never",
		"--file", filepath.Join(root, "deploy/container/Containerfile"), "--tag", "quipu:test", imageDir)...)
	passes(t, "buildah", append(buildah, "push", "quipu:test", "dir:"+filepath.Join(dir, "image"))...)

	var manifest struct {
		Config struct{ Digest string }
		Layers []struct{ Digest string }
	}
	blob := func(digest string) string {
		return filepath.Join(dir, "image", strings.TrimPrefix(digest, "sha256:"))
	}
	decode(t, filepath.Join(dir, "image", "manifest.json"), &manifest)
	var made image
	decode(t, blob(manifest.Config.Digest), &made)
	files := filepath.Join(dir, "files")
	for _, layer := range manifest.Layers {
		if err := os.MkdirAll(files, 0o755); err != nil {
			t.Fatal(err)
		}
		passes(t, "tar", "--extract", "--numeric-owner", "--file", blob(layer.Digest), "--directory", files)
	}
	// Whoever is not root finds the way.
	for at := dir; at != os.TempDir() && at != "/"; at = filepath.Dir(at) {
		if err := os.Chmod(at, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return made, files
}

func decode(t *testing.T, name string, v any) {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, v); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// The image has the program, certificates and a place for data, and no more. A
// server in it runs as nobody, who can write nowhere else, and tells its health.
func TestImage(t *testing.T) {
	made, files := build(t)
	c := made.Config
	if c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/usr/bin/quipu"}) || !slices.Equal(c.Cmd, []string{"serve"}) || c.WorkingDir != "/data" {
		t.Errorf("config %+v", c)
	}
	if !slices.Equal(c.Healthcheck.Test, []string{"CMD", "/usr/bin/quipu", "health"}) || len(c.Volumes) != 1 || len(c.ExposedPorts) != 3 {
		t.Errorf("config %+v", c)
	}
	var found []string
	err := filepath.WalkDir(files, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, files)
		info, err := e.Info()
		if err != nil {
			return err
		}
		owner := info.Sys().(*syscall.Stat_t).Uid
		if strings.HasPrefix(name, "/data") != (owner == nobody) {
			t.Errorf("%s is of %d", name, owner)
		}
		if owner != nobody && info.Mode()&0o022 != 0 {
			t.Errorf("%s: anybody may write it: %v", name, info.Mode())
		}
		if !e.IsDir() {
			found = append(found, name)
		}
		return nil
	})
	if want := []string{"/data/README", "/etc/ssl/certs/ca-certificates.crt", "/usr/bin/quipu"}; err != nil || !slices.Equal(found, want) {
		t.Errorf("files %q, %v, want %q", found, err, want)
	}

	env := append(slices.Clone(c.Env), "QUIPU_HTTP=127.0.0.1:0", "QUIPU_RESP=off", "QUIPU_RPC=off", "QUIPU_API_KEY=key", "QUIPU_MEMORY_TOTAL=1GiB")
	inside := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), c.Entrypoint[0], args...)
		cmd.Dir, cmd.Env = c.WorkingDir, env
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: files, Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		return cmd
	}
	server := inside(c.Cmd...)
	server.Stderr = os.Stderr
	stdout, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatalf("%v (this test runs a program in a folder of its own, as another user: only root can)", err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	address, ok := strings.CutPrefix(strings.TrimSpace(line), "ready http=")
	if !ok {
		t.Fatalf("ready line %q", line)
	}
	env = append(env, "QUIPU_HTTP="+address)
	if out, err := inside("health", "--addr", "http://"+address).CombinedOutput(); err != nil || string(out) != "ready\n" {
		t.Errorf("health: %s, %v", out, err)
	}
	if out, err := inside("add", "likes", "--addr", "http://"+address).CombinedOutput(); err != nil || string(out) != "1\n" {
		t.Errorf("add: %s, %v", out, err)
	}
	if err := server.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := server.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(files, "data/quipu-data")); err != nil {
		t.Errorf("the counts are elsewhere: %v", err)
	}
}
