// Command slim lets a build of quipu be 13 MB smaller. It copies three modules, changes
// the copies so that the linker can leave out what is never used, and writes a
// slim.mod that has them in place of the modules:
//
//	go build -modfile=bin/slim/slim.mod ./cmd/quipu
//
// The parser of the command line is most of it. The linker drops methods that nothing
// calls, unless the program looks methods up by names that it makes at run time: then
// any method may be meant, and all stay. The parser does that, for names that are
// always the same six. So a program has the code of every command of Redis, thousands
// of methods, of which it calls a few. The copy asks for each of these names in a place
// of its own, and ends the program if it is asked for another one.
//
// Pebble's errors register descriptors of options that only a compiler of protocol
// buffers reads, and the driver of PostgreSQL an encoding of columns that hold XML,
// which brings a parser of XML along. No store has such a column.
//
// The program is the same with the modules themselves, only larger, so go install and
// go run need none of this. Each text that is replaced must be there as often as is
// expected, so that another version of a module is not changed by halves.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

func main() {
	source := flag.String("source", ".", "the repository")
	out := flag.String("out", "bin/slim", "folder to write to, in the repository")
	flag.Parse()
	if err := build(*source, *out); err != nil {
		fmt.Fprintln(os.Stderr, "slim:", err)
		os.Exit(1)
	}
}

// build writes slim.mod, slim.sum and the copies into a folder of a
// repository.
func build(source, out string) error {
	folder := filepath.Join(source, filepath.FromSlash(out))
	if err := errors.Join(os.RemoveAll(folder), os.MkdirAll(folder, 0o755)); err != nil {
		return err
	}
	replaces := ""
	for _, m := range modules {
		dir, err := find(source, m.path)
		if err != nil {
			return err
		}
		if err := m.copy(dir, filepath.Join(folder, m.name)); err != nil {
			return err
		}
		replaces += fmt.Sprintf("\nreplace %s => ./%s\n", m.path, path.Join(out, m.name))
	}
	mod, err := os.ReadFile(filepath.Join(source, "go.mod"))
	if err != nil {
		return err
	}
	sum, err := os.ReadFile(filepath.Join(source, "go.sum"))
	if err != nil {
		return err
	}
	mod = append(mod, replaces...)
	return errors.Join(os.WriteFile(filepath.Join(folder, "slim.mod"), mod, 0o644), os.WriteFile(filepath.Join(folder, "slim.sum"), sum, 0o644))
}

// find returns the directory that a module was downloaded to.
func find(source, module string) (string, error) {
	list := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module)
	list.Dir, list.Stderr = source, os.Stderr
	raw, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("find %s: %w", module, err)
	}
	dir := strings.TrimSpace(string(raw))
	if dir == "" {
		return "", fmt.Errorf("find %s: it is not downloaded: go mod download", module)
	}
	return dir, nil
}

// copy copies the code and the licence of the module, and changes it.
func (m *module) copy(from, to string) error {
	left := maps.Clone(m.edits)
	err := filepath.WalkDir(from, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, file)
		if err != nil {
			return err
		}
		code := strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go")
		switch {
		case d.IsDir() && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, name), 0o755)
		case !code && name != "go.mod" && name != "COPYING" && name != "LICENSE":
			return nil
		}
		raw, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		slashed := filepath.ToSlash(name)
		text, err := patch(string(raw), left[slashed])
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		delete(left, slashed)
		return os.WriteFile(filepath.Join(to, name), []byte(text), 0o644)
	})
	for name := range left {
		err = errors.Join(err, fmt.Errorf("%s of %s: it is not there: see what this version does, and change tools/slim", name, m.path))
	}
	return err
}
