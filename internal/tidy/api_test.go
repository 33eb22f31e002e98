package tidy

import (
	"flag"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write api.txt anew")

// The most that the root package may show. A reader should know it in an hour.
const (
	apiTypesMax   = 52
	apiFuncsMax   = 20
	apiMethodsMax = 55
)

// TestAPI holds what the root package exports to api.txt, so that growing it is a
// visible change.
func TestAPI(t *testing.T) {
	const path, command = "../../api.txt", "go test ./internal/tidy -run TestAPI -update"
	lines := api(t, "../..")
	f := func(kind string, most int) {
		t.Helper()
		n := 0
		for _, line := range lines {
			if strings.HasPrefix(line, kind+" ") {
				n++
			}
		}
		if n > most {
			t.Errorf("the root package exports %d of kind %s: at most %d", n, kind, most)
		}
	}
	f("type", apiTypesMax)
	f("func", apiFuncsMax)
	f("method", apiMethodsMax)
	got := strings.Join(lines, "\n") + "\n"
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got == string(want) {
		return
	}
	had := strings.Split(strings.TrimSpace(string(want)), "\n")
	for _, line := range lines {
		if !slices.Contains(had, line) {
			t.Errorf("+ %s", line)
		}
	}
	for _, line := range had {
		if !slices.Contains(lines, line) {
			t.Errorf("- %s", line)
		}
	}
	t.Errorf("api.txt is not what the root package exports. If that is meant: %s", command)
}

// api returns a line for each exported name of the package in a directory, sorted.
func api(t *testing.T, dir string) (lines []string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	p, err := doc.NewFromFiles(fset, files, module)
	if err != nil {
		t.Fatal(err)
	}
	signature := func(f *doc.Func) string {
		var b strings.Builder
		decl := *f.Decl
		decl.Doc, decl.Body = nil, nil
		if err := printer.Fprint(&b, fset, &decl); err != nil {
			t.Fatal(err)
		}
		return strings.TrimPrefix(b.String(), "func ")
	}
	values := func(kind string, vs []*doc.Value) {
		for _, v := range vs {
			for _, name := range v.Names {
				if token.IsExported(name) {
					lines = append(lines, kind+" "+name)
				}
			}
		}
	}
	funcs := func(kind string, fs []*doc.Func) {
		for _, f := range fs {
			lines = append(lines, kind+" "+signature(f))
		}
	}
	values("const", p.Consts)
	values("var", p.Vars)
	funcs("func", p.Funcs)
	for _, typ := range p.Types {
		lines = append(lines, "type "+typ.Name)
		values("const", typ.Consts)
		values("var", typ.Vars)
		funcs("func", typ.Funcs)
		funcs("method", typ.Methods)
	}
	slices.Sort(lines)
	return lines
}
