package main

import (
	"encoding/json"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

// All pages of the documentation are on the site, and all links of them lead somewhere.
func TestBuild(t *testing.T) {
	out := t.TempDir()
	if _, err := build("../..", out, "https://example.org/"); err != nil {
		t.Fatal(err)
	}
	source := os.DirFS("../..")
	for _, pattern := range []string{"docs/*.md", "docs/howto/*.md", "docs/design/*.md"} {
		pages, err := fs.Glob(source, pattern)
		if err != nil || len(pages) == 0 {
			t.Fatal(pages, err)
		}
		for _, p := range pages {
			if _, err := os.Stat(filepath.Join(out, address(p))); err != nil {
				t.Errorf("no page leads to %s", p)
			}
		}
	}
	raw, err := os.ReadFile(filepath.Join(out, "search.json"))
	if err != nil {
		t.Fatal(err)
	}
	var sections []found
	if err := json.Unmarshal(raw, &sections); err != nil || len(sections) < 100 {
		t.Errorf("%d sections can be searched, %v", len(sections), err)
	}
	for _, s := range sections {
		name, _, _ := strings.Cut(s.At, "#")
		if _, err := os.Stat(filepath.Join(out, name)); err != nil {
			t.Errorf("the search leads to %s: %v", s.At, err)
		}
	}
}

// What links and headings come to.
func TestPages(t *testing.T) {
	f := func(readme string, want string, broken ...string) {
		t.Helper()
		s := &site{files: "https://example.org/", pages: make(map[string]*page), root: fstest.MapFS{
			home:          {Data: []byte(readme)},
			contents:      {Data: []byte("# Contents\n\n## Learn\n\n- [A page](a.md)\n")},
			"docs/a.md":   {Data: []byte("# A page\n\n## Two words, `code` & more\n\n## Twice\n\n## Twice\n\n[home](../README.md)")},
			"tools/x.yml": {Data: []byte("x: 1\n")},
		}}
		for _, p := range []string{home, contents} {
			if err := s.add(p); err != nil {
				t.Fatal(err)
			}
		}
		bad := s.broken()
		if len(bad) != len(broken) {
			t.Fatalf("broken: %v, want %q", bad, broken)
		}
		for i := range bad {
			if !strings.Contains(bad[i].Error(), broken[i]) {
				t.Errorf("broken: %v, want %q", bad[i], broken[i])
			}
		}
		files, err := s.render()
		if err != nil {
			t.Fatal(err)
		}
		if text := string(files[address(home)]); !strings.Contains(text, want) {
			t.Errorf("%s: no %s in\n%s", readme, want, text)
		}
		for name := range files {
			if path.Ext(name) == ".html" && !strings.Contains(string(files[name]), "Contents") && !strings.Contains(string(files[name]), "A page") {
				t.Errorf("%s has no contents beside it", name)
			}
		}
	}
	f("# Home\n\n[a](docs/a.md)", `<a href="docs/a.html">a</a>`)
	f("[a](docs/a.md#two-words-code--more)", `href="docs/a.html#two-words-code--more"`)
	f("[a](docs/a.md#twice-1)", `href="docs/a.html#twice-1"`)
	f("[x](tools/x.yml)", `href="https://example.org/tools/x.yml"`)
	f("[docs](docs/)", `href="docs/index.html"`)
	f("[w](https://example.com/y#z)", `href="https://example.com/y#z"`)
	f("[a](docs/a.md#three)", "", "docs/a.md#three")
	f("[b](docs/b.md)", "", "docs/b.md")
	f("![i](i.png)", "", "i.png")
}
