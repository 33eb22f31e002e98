package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/rpm"
)

const configFile = "deploy/linux/nfpm.yaml"

// linux makes a package of each kind.
func (j *job) linux(out io.Writer) error {
	if err := os.MkdirAll(distDir, 0o755); err != nil {
		return err
	}
	config, err := nfpm.ParseFileWithEnvMapping(configFile, func(name string) string {
		return map[string]string{"VERSION": j.version, "ARCH": j.arch}[name]
	})
	if err != nil {
		return fmt.Errorf("%s: %w", configFile, err)
	}
	for format, p := range map[string]nfpm.Packager{"deb": deb.Default, "rpm": rpm.DefaultRPM} {
		info, err := config.Get(format)
		if err != nil {
			return err
		}
		if err := nfpm.PrepareForPackager(info, format); err != nil {
			return fmt.Errorf("%s: %w", format, err)
		}
		name := filepath.Join(distDir, p.ConventionalFileName(info))
		if err := write(name, func(w io.Writer) error { return p.Package(info, w) }); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if _, err := fmt.Fprintln(out, name); err != nil {
			return err
		}
	}
	return nil
}

// write makes a file of what f writes.
func write(name string, f func(io.Writer) error) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	err = f(file)
	if e := file.Close(); err == nil {
		err = e
	}
	return err
}

// semver returns a version as packages want it. What git calls a tree between two
// tags comes after the first of them, and a tree without tags is older than all.
func semver(version string) string {
	version = strings.TrimPrefix(version, "v")
	released := regexp.MustCompile(`^(\d+\.\d+\.\d+)(-[0-9A-Za-z.]+)?$`)
	between := regexp.MustCompile(`^(\d+\.\d+\.\d+\S*?)-(\d+)-g([0-9a-f]+)(-dirty)?$`)
	word := regexp.MustCompile(`[^0-9A-Za-z]+`)
	switch {
	case between.MatchString(version):
		return between.ReplaceAllString(version, "$1+$2.$3")
	case released.MatchString(version):
		return version
	default:
		return "0.0.0-dev." + strings.Trim(word.ReplaceAllString("0"+version, "."), ".")
	}
}
