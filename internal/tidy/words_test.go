package tidy

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Readers who do not know the design understand a sentence that begins with its
// subject. Ours used to begin with "What is not kept …" and "Who asks …", so this test
// refuses such sentences in pages and in the texts of programs. Questions are fine. It
// leaves comments alone, since those of options called Who have to begin with Who.
func TestWords(t *testing.T) {
	found := map[string]int{}
	tree := os.DirFS("../..")
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		if entry.IsDir() {
			if passOver(name, entry.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		var texts func([]byte) ([]string, error)
		switch {
		case path.Ext(name) == ".md":
			texts = pageTexts
		case path.Base(name) == "openapi.json":
			texts = describedTexts
		case path.Ext(name) == ".go" && !strings.HasSuffix(name, "_test.go"):
			texts = sourceTexts
		default:
			return nil
		}
		raw, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		all, err := texts(raw)
		if err != nil {
			return err
		}
		found[path.Ext(name)] += len(all)
		for _, text := range all {
			for _, s := range turned(text) {
				t.Errorf("%s: %q: begin the sentence with its subject", name, s)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for ext, least := range map[string]int{".md": 1000, ".json": 300, ".go": 5000} {
		if found[ext] < least {
			t.Errorf("%d texts in files *%s: want %d or more", found[ext], ext, least)
		}
	}
}

// passOver reports whether a directory is left out. The notes in docs/design and the
// results in bench are records, and stay as they were written.
func passOver(name, base string) bool {
	hidden := strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")
	return hidden || slices.Contains([]string{"testdata", "node_modules", "bin"}, base) || name == "docs/design" || name == "bench"
}

var (
	sentence = regexp.MustCompile(`(?:^|[.!] )((?:Who|Whoever|What|Of one) [^.!?]*[.!?]?)`)
	marker   = regexp.MustCompile(`^\s*(?:[-*>]|[0-9]+\.)?\s*`)
)

// turned returns the sentences of a text that do not begin with their subject.
func turned(text string) (all []string) {
	for _, m := range sentence.FindAllStringSubmatch(text, -1) {
		if !strings.HasSuffix(m[1], "?") {
			all = append(all, m[1])
		}
	}
	return all
}

// pageTexts returns the paragraphs, list items and cells of tables of a page in
// Markdown, without its headings and code.
func pageTexts(page []byte) (all []string, err error) {
	code, paragraph := false, ""
	end := func() {
		if paragraph != "" {
			all = append(all, paragraph)
		}
		paragraph = ""
	}
	for line := range strings.SplitSeq(string(page), "\n") {
		text := marker.ReplaceAllString(line, "")
		switch {
		case strings.HasPrefix(text, "```"):
			end()
			code = !code
		case code:
		case text == "" || strings.HasPrefix(text, "#"):
			end()
		case strings.HasPrefix(text, "|"):
			end()
			for cell := range strings.SplitSeq(text, "|") {
				all = append(all, strings.TrimSpace(cell))
			}
		default:
			if text != strings.TrimLeft(line, " \t") {
				end()
			}
			paragraph = strings.TrimSpace(paragraph + " " + text)
		}
	}
	end()
	return all, nil
}

// describedTexts returns the summaries and descriptions of a document of OpenAPI.
func describedTexts(document []byte) (all []string, err error) {
	var value any
	if err := json.Unmarshal(document, &value); err != nil {
		return nil, err
	}
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for key, e := range v {
				if text, ok := e.(string); ok && (key == "summary" || key == "description") {
					all = append(all, text)
				}
				walk(e)
			}
		}
	}
	walk(value)
	return all, nil
}

var help = regexp.MustCompile(`help:"((?:[^"\\]|\\.)*)"`)

// sourceTexts returns the strings in a source file, and the help of flags.
func sourceTexts(source []byte) (all []string, err error) {
	f, err := parser.ParseFile(token.NewFileSet(), "", source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	ast.Inspect(f, func(n ast.Node) bool {
		l, ok := n.(*ast.BasicLit)
		if !ok || l.Kind != token.STRING {
			return true
		}
		text, err := strconv.Unquote(l.Value)
		if err != nil {
			return true
		}
		if m := help.FindStringSubmatch(text); m != nil {
			text = m[1]
		}
		for paragraph := range strings.SplitSeq(text, "\n\n") {
			all = append(all, strings.Join(strings.Fields(paragraph), " "))
		}
		return true
	})
	return all, nil
}

// Turned sentences are found wherever they begin, and nothing else is taken for one.
func TestTurned(t *testing.T) {
	f := func(page string, want ...string) {
		t.Helper()
		texts, err := pageTexts([]byte(page))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, text := range texts {
			got = append(got, turned(text)...)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", page, got, want)
		}
	}
	f("What is lost stays lost.", "What is lost stays lost.")
	f("A store\nforgets. Who asks\nlater is told.", "Who asks later is told.")
	f("- Of one key\n- Whoever reads", "Of one key", "Whoever reads")
	f("| a | What is there |", "What is there")
	f("1. Read. What now?")
	f("# What it does\n\n```\nWhat is code.\n```\n\n**What it promises.** Nothing.")
	f("Whatever it says, this tells\nWhat continues a sentence.")
}
