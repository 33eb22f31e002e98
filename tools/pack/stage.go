package main

import (
	"bytes"
	"compress/gzip"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const (
	stageDir = "bin/stage"
	imageDir = "bin/image"
	distDir  = "bin/dist"
	unitFile = "deploy/quipu.service"
	dataDir  = "deploy/container/data"
)

// stage puts into bin/stage what packages and images have besides files of the
// repository.
func (j *job) stage() error {
	man, completions := filepath.Join(stageDir, "man"), filepath.Join(stageDir, "completions")
	if err := errors.Join(os.RemoveAll(stageDir), os.MkdirAll(man, 0o755), os.MkdirAll(completions, 0o755)); err != nil {
		return err
	}
	program, err := os.ReadFile(j.binary)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(stageDir, "quipu"), program, 0o755); err != nil {
		return err
	}
	if _, err := j.ask("man", "--out", man); err != nil {
		return err
	}
	if err := compress(man); err != nil {
		return err
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		script, err := j.ask("completion", shell)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(completions, "quipu."+shell), script, 0o644); err != nil {
			return err
		}
	}
	unit, err := os.ReadFile(unitFile)
	if err != nil {
		return err
	}
	unit, err = packaged(unit)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(stageDir, "quipu.service"), unit, 0o644); err != nil {
		return err
	}
	return j.image(program, authorities())
}

// image makes bin/image, the context of deploy/container/Containerfile. It is laid
// out as the one that a release makes, which has files of the repository where the
// repository has them.
func (j *job) image(program, authorities []byte) error {
	platform, certificates := filepath.Join(imageDir, "linux", j.arch), filepath.Join(imageDir, stageDir)
	if err := errors.Join(os.RemoveAll(imageDir), os.MkdirAll(platform, 0o755), os.MkdirAll(certificates, 0o755)); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(platform, "quipu"), program, 0o755),
		os.WriteFile(filepath.Join(stageDir, "ca-certificates.crt"), authorities, 0o644),
		os.WriteFile(filepath.Join(certificates, "ca-certificates.crt"), authorities, 0o644),
		os.CopyFS(filepath.Join(imageDir, dataDir), os.DirFS(dataDir)),
	)
}

// ask runs the program, and returns what it prints.
func (j *job) ask(args ...string) ([]byte, error) {
	path, err := filepath.Abs(j.program)
	if err != nil {
		return nil, err
	}
	out, err := exec.Command(path, args...).Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", j.program, strings.Join(args, " "), err)
	}
	return out, nil
}

// compress replaces the pages in a folder by ones for man(1) to unpack. They have
// no time in them, so that the same program always makes the same.
func compress(dir string) error {
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil {
		return err
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		var b bytes.Buffer
		w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
		if err != nil {
			return err
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
		if err := w.Close(); err != nil {
			return err
		}
		if err := errors.Join(os.WriteFile(page+".gz", b.Bytes(), 0o644), os.Remove(page)); err != nil {
			return err
		}
	}
	return nil
}

// packaged returns the unit as a package has it: the program is where packages
// have theirs, and how to install it needs no saying.
func packaged(unit []byte) ([]byte, error) {
	const byHand = "/usr/local/bin/quipu"
	_, text, found := strings.Cut(string(unit), "\n[Unit]\n")
	if !found || strings.Count(text, byHand) != 1 {
		return nil, fmt.Errorf("%s: want a comment, [Unit], and %s once", unitFile, byHand)
	}
	const comment = "# The server quipu. Its settings are in /etc/quipu.env; \"systemctl edit quipu\" changes the rest.\n[Unit]\n"
	return []byte(comment + strings.Replace(text, byHand, "/usr/bin/quipu", 1)), nil
}

// authorities returns the certificates that programs trust which trust what
// browsers do. Those that are trusted for some names only are left out, since the
// file can't say so.
func authorities() []byte {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a buffer takes all
		}
	}
	return b.Bytes()
}
