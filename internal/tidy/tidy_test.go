package tidy

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/quipudb/quipu"

func TestTree(t *testing.T) {
	packages, err := read(os.DirFS("../.."))
	if err != nil {
		t.Fatalf("read the tree: %v", err)
	}
	if len(packages["internal/tidy"]) == 0 {
		t.Fatal("read the tree: it lacks this package, so it was not read whole")
	}
	for _, complaint := range check(packages) {
		t.Error(complaint)
	}
}

// A file is what check needs to know of a source file.
type file struct {
	path      string
	commented bool // has a package comment
	imports   []string
}

func (f file) isTest() bool { return strings.HasSuffix(f.path, "_test.go") }

// read returns the files of each package of the module at the root of fsys,
// whatever system they are built for. Like the go command it passes over
// testdata, other modules, and what begins with a dot or an underscore.
func read(fsys fs.FS) (map[string][]file, error) {
	packages := map[string][]file{}
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		hidden := strings.HasPrefix(entry.Name(), ".") || strings.HasPrefix(entry.Name(), "_")
		if entry.IsDir() {
			_, err := fs.Stat(fsys, path.Join(name, "go.mod"))
			if hidden || entry.Name() == "testdata" || err == nil {
				return fs.SkipDir
			}
			return nil
		}
		if hidden || path.Ext(name) != ".go" {
			return nil
		}
		f, err := readFile(fsys, name)
		if err != nil {
			return err
		}
		packages[path.Dir(name)] = append(packages[path.Dir(name)], f)
		return nil
	})
	return packages, err
}

func readFile(fsys fs.FS, name string) (file, error) {
	source, err := fs.ReadFile(fsys, name)
	if err != nil {
		return file{}, err
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), name, source, parser.ImportsOnly|parser.ParseComments)
	if err != nil {
		return file{}, err
	}
	f := file{path: name, commented: hasText(parsed.Doc)}
	for _, spec := range parsed.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return file{}, fmt.Errorf("unquote import of %s: %w", name, err)
		}
		f.imports = append(f.imports, imported)
	}
	return f, nil
}

// hasText reports whether doc says something; a directive alone does not.
func hasText(doc *ast.CommentGroup) bool { return strings.TrimSpace(doc.Text()) != "" }

// check returns what is wrong with the packages, sorted.
func check(packages map[string][]file) []string {
	var complaints []string
	complain := func(format string, args ...any) {
		complaints = append(complaints, fmt.Sprintf(format, args...))
	}
	for pkg, files := range packages {
		if !commented(files) {
			complain("%s: no package comment", pkg)
		}
		if _, ok := table[pkg]; !ok {
			complain("%s: not in the table of internal/tidy", pkg)
			continue
		}
		for _, f := range files {
			for _, imported := range f.imports {
				if why := refuse(pkg, f, imported); why != "" {
					complain("%s: imports %s: %s", f.path, imported, why)
				}
			}
		}
	}
	for pkg, allowed := range links {
		for _, f := range linked(packages, pkg) {
			for _, imported := range f.imports {
				ours := strings.HasPrefix(relative(imported), ".")
				allows := func(pattern string) bool { return match(pattern, imported) }
				if !isStd(imported) && !ours && !slices.ContainsFunc(allowed, allows) {
					complain("%s: links %s, by way of %s", pkg, imported, f.path)
				}
			}
		}
	}
	slices.Sort(complaints)
	return complaints
}

// linked returns the files that a program links with pkg: its own, and those of
// the packages of ours that it imports.
func linked(packages map[string][]file, pkg string) []file {
	var files []file
	seen := map[string]bool{}
	var visit func(pkg string)
	visit = func(pkg string) {
		if seen[pkg] {
			return
		}
		seen[pkg] = true
		for _, f := range packages[pkg] {
			if f.isTest() {
				continue
			}
			files = append(files, f)
			for _, imported := range f.imports {
				if ours := relative(imported); strings.HasPrefix(ours, ".") {
					visit(path.Clean(ours))
				}
			}
		}
	}
	visit(pkg)
	return files
}

// commented reports whether a package has a comment where its readers see it:
// in its code, or in its tests when it has nothing else.
func commented(files []file) bool {
	seen := slices.DeleteFunc(slices.Clone(files), file.isTest)
	if len(seen) == 0 {
		seen = files
	}
	return slices.ContainsFunc(seen, func(f file) bool { return f.commented })
}

// refuse returns why a file of pkg may not import a path, or nothing.
func refuse(pkg string, f file, imported string) string {
	if imported == "C" {
		return "the build is free of C"
	}
	if isStd(imported) {
		if !table[pkg].pure || f.isTest() {
			return ""
		}
		for pattern, why := range impureStd {
			if match(pattern, imported) {
				return "the package is pure: " + why
			}
		}
		return ""
	}
	allowed := slices.Concat(table[pkg].code, table[f.path].code)
	if f.isTest() {
		allowed = slices.Concat(allowed, table[pkg].tests, testImports, []string{local(pkg)})
	}
	for _, pattern := range allowed {
		if match(pattern, relative(imported)) {
			return ""
		}
	}
	return "not in the package's row of the table"
}

// isStd reports whether an import path is of the standard library: only
// others begin with the name of a host.
func isStd(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".")
}

// relative returns an import path as the table writes it.
func relative(imported string) string {
	if imported == module {
		return "."
	}
	if below, ok := strings.CutPrefix(imported, module+"/"); ok {
		return local(below)
	}
	return imported
}

// local returns a package of ours as the table writes it in a row.
func local(pkg string) string {
	if pkg == "." {
		return pkg
	}
	return "./" + pkg
}

func match(pattern, imported string) bool {
	prefix, below := strings.CutSuffix(pattern, "/...")
	return imported == prefix || below && strings.HasPrefix(imported, prefix+"/")
}
