// Command site makes a website of the documentation: the pages that README.md and
// docs/README.md lead to, with the contents of docs/README.md beside each of them,
// and a search. It fails if a link leads nowhere.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	source := flag.String("source", ".", "the repository")
	out := flag.String("out", "bin/site", "folder to write to")
	files := flag.String("files", "https://github.com/quipudb/quipu/blob/main/", "where the files are that are no pages")
	flag.Parse()
	n, err := build(*source, *out, *files)
	if err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
	fmt.Fprintf(os.Stdout, "%d pages in %s\n", n, *out)
}

// build writes the site of a repository, and returns how many pages it has.
func build(source, out, files string) (int, error) {
	s := &site{root: os.DirFS(source), files: files, pages: make(map[string]*page)}
	for _, first := range []string{home, contents} {
		if err := s.add(first); err != nil {
			return 0, err
		}
	}
	if err := errors.Join(s.broken()...); err != nil {
		return 0, err
	}
	written, err := s.render()
	if err != nil {
		return 0, err
	}
	for name, text := range written {
		path := filepath.Join(out, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return 0, err
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return 0, err
		}
	}
	return len(s.pages), nil
}
