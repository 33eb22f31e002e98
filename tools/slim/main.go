// Command slim lets a build of quipu be 13 MB smaller. It copies the parser of the
// command line, changes the copy so that the linker can see which methods it looks
// for, and writes a slim.mod that has it in place of the parser:
//
//	go build -modfile=bin/slim/slim.mod ./cmd/quipu
//
// The linker drops methods that nothing calls, unless the program looks methods
// up by names that it makes at run time: then any method may be meant, and all
// stay. The parser does that, for names that are always the same six. So a
// program has the code of every command of Redis, thousands of methods, of which
// it calls a few. The copy asks for each of these names in a place of its own, and
// ends the program if it is asked for another one.
//
// The program is the same with the parser itself, only larger, so go install and
// go run need none of this. Each text that is replaced must be there as often as is
// expected, so that another version of the parser is not changed by halves.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

const parser = "github.com/alecthomas/kong"

func main() {
	source := flag.String("source", ".", "the repository")
	out := flag.String("out", "bin/slim", "folder to write to, in the repository")
	flag.Parse()
	if err := build(*source, *out); err != nil {
		fmt.Fprintln(os.Stderr, "slim:", err)
		os.Exit(1)
	}
}

// build writes slim.mod, slim.sum and the copy of the parser into a folder of a
// repository.
func build(source, out string) error {
	folder := filepath.Join(source, filepath.FromSlash(out))
	if err := errors.Join(os.RemoveAll(folder), os.MkdirAll(folder, 0o755)); err != nil {
		return err
	}
	list := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", parser)
	list.Dir, list.Stderr = source, os.Stderr
	raw, err := list.Output()
	if err != nil {
		return fmt.Errorf("find %s: %w", parser, err)
	}
	dir := strings.TrimSpace(string(raw))
	if dir == "" {
		return fmt.Errorf("find %s: it is not downloaded: go mod download", parser)
	}
	if err := copyParser(dir, filepath.Join(folder, "kong")); err != nil {
		return err
	}
	mod, err := os.ReadFile(filepath.Join(source, "go.mod"))
	if err != nil {
		return err
	}
	sum, err := os.ReadFile(filepath.Join(source, "go.sum"))
	if err != nil {
		return err
	}
	mod = fmt.Appendf(mod, "\nreplace %s => ./%s\n", parser, path.Join(out, "kong"))
	return errors.Join(os.WriteFile(filepath.Join(folder, "slim.mod"), mod, 0o644), os.WriteFile(filepath.Join(folder, "slim.sum"), sum, 0o644))
}

// copyParser copies the code of the parser, and changes it.
func copyParser(from, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		code := strings.HasSuffix(e.Name(), ".go") && !strings.HasSuffix(e.Name(), "_test.go")
		if e.IsDir() || !code && e.Name() != "go.mod" && e.Name() != "COPYING" {
			continue
		}
		raw, err := os.ReadFile(filepath.Join(from, e.Name()))
		if err != nil {
			return err
		}
		text, err := patch(string(raw), patches[e.Name()])
		if err != nil {
			return fmt.Errorf("%s: %w", filepath.Join(from, e.Name()), err)
		}
		if err := os.WriteFile(filepath.Join(to, e.Name()), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
