package tidy

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// TestCheck breaks each rule, and keeps it.
func TestCheck(t *testing.T) {
	const comment = "// Package p has a comment.\n"

	f := func(name, source string, want ...string) {
		t.Helper()
		packages, err := read(fstest.MapFS{name: {Data: []byte(source)}})
		if err != nil {
			t.Fatalf("read %s: %v", name, err)
		}
		if got := check(packages); !slices.Equal(got, want) {
			t.Errorf("check %s:\ngot  %q\nwant %q", name, got, want)
		}
	}
	imports := func(paths ...string) string {
		source := comment + "package p\n"
		for _, p := range paths {
			source += "import \"" + p + "\"\n"
		}
		return source
	}
	const notInRow = "not in the package's row of the table"

	// Package comments.
	f("doc.go", comment+"package p")
	f("doc.go", "package p", ".: no package comment")
	f("doc.go", "// Far from the clause.\n\npackage p", ".: no package comment")
	f("doc.go", "//go:build linux\n\n//go:generate true\npackage p", ".: no package comment")

	// Packages that have no row, and what the go command passes over.
	f("util/util.go", imports("os"), "util: not in the table of internal/tidy")
	f("store/testdata/x.go", "package p")
	f("store/.x/x.go", "package p")
	f("store/_x.go", "package p")

	// Ours and third parties, in code and in tests.
	f("open.go", imports(module+"/store", module+"/internal/engine", "os"))
	f("open.go", imports(module+"/store/memstore"),
		"open.go: imports "+module+"/store/memstore: "+notInRow)
	f("open_test.go", imports(module, module+"/store/memstore", "pgregory.net/rapid"))
	f("open_test.go", imports("github.com/stretchr/testify/assert"),
		"open_test.go: imports github.com/stretchr/testify/assert: "+notInRow)
	f("store/store.go", imports(module), "store/store.go: imports "+module+": "+notInRow)
	f("internal/server/rest/rest.go", imports(module+"/internal/engine"),
		"internal/server/rest/rest.go: imports "+module+"/internal/engine: "+notInRow)
	f("internal/wal/wal.go", imports("github.com/cockroachdb/pebble/v2"),
		"internal/wal/wal.go: imports github.com/cockroachdb/pebble/v2: "+notInRow)
	f("internal/engine/x.go", imports("github.com/cockroachdb/pebble/v2", "github.com/cockroachdb/pebble/v2/bloom"))
	f("internal/engine/x.go", imports("github.com/cockroachdb/pebble/v20"),
		"internal/engine/x.go: imports github.com/cockroachdb/pebble/v20: "+notInRow)

	// A row for one file.
	f("cmd/quipu/backend.go", imports(module+"/store/memstore"))
	f("cmd/quipu/serve.go", imports(module+"/store/memstore"),
		"cmd/quipu/serve.go: imports "+module+"/store/memstore: "+notInRow)

	// C, and the pure.
	f("internal/engine/x_test.go", imports("C"), "internal/engine/x_test.go: imports C: the build is free of C")
	f("internal/sketch/x.go", imports("math/bits", "time"))
	f("internal/sketch/x.go", imports("crypto/rand", "math/rand/v2", "net/http", "os", "os/exec"),
		"internal/sketch/x.go: imports crypto/rand: the package is pure: randomness is passed in",
		"internal/sketch/x.go: imports math/rand/v2: the package is pure: randomness is passed in",
		"internal/sketch/x.go: imports net/http: the package is pure: others own the sockets",
		"internal/sketch/x.go: imports os/exec: the package is pure: bytes in, bytes out",
		"internal/sketch/x.go: imports os: the package is pure: bytes in, bytes out")
	f("internal/sketch/x_test.go", imports("math/rand/v2", "os"))
}

// What a package links counts with what its own imports link, and without tests.
func TestLinks(t *testing.T) {
	f := func(imported string, want ...string) {
		t.Helper()
		const comment = "// Package p has a comment.\npackage p\n"
		packages, err := read(fstest.MapFS{
			"client/client.go":        {Data: []byte(comment + "import \"" + module + "/call\"\nimport \"google.golang.org/grpc/status\"")},
			"client/client_test.go":   {Data: []byte(comment + "import \"" + module + "\"")},
			"call/call.go":            {Data: []byte(comment + "import \"" + module + "/store\"")},
			"open.go":                 {Data: []byte(comment + "import \"" + module + "/internal/engine\"")},
			"internal/engine/disk.go": {Data: []byte(comment + "import \"github.com/cockroachdb/pebble/v2\"")},
			"store/store.go":          {Data: []byte(comment + "import \"" + imported + "\"")},
		})
		if err != nil {
			t.Fatal(err)
		}
		got := slices.DeleteFunc(check(packages), func(c string) bool { return !strings.Contains(c, ": links ") })
		if !slices.Equal(got, want) {
			t.Errorf("links with %s:\ngot  %q\nwant %q", imported, got, want)
		}
	}
	f("time")
	f(module+"/internal/engine",
		"client: links github.com/cockroachdb/pebble/v2, by way of internal/engine/disk.go",
		"store: links github.com/cockroachdb/pebble/v2, by way of internal/engine/disk.go")
}

// A comment that only the tests have is not the package's.
func TestCommented(t *testing.T) {
	f := func(want bool, files ...file) {
		t.Helper()
		if got := commented(files); got != want {
			t.Errorf("commented %v: got %v, want %v", files, got, want)
		}
	}
	code, tests := file{path: "x.go"}, file{path: "x_test.go", commented: true}
	f(false, code, tests)
	f(true, tests)
	f(true, code, file{path: "doc.go", commented: true})
}

func TestReadPassesOverOtherModules(t *testing.T) {
	packages, err := read(fstest.MapFS{
		"tools/go.mod":     {Data: []byte("module tools\n")},
		"tools/x/tools.go": {Data: []byte("package x\n")},
	})
	if err != nil || len(packages) != 0 {
		t.Errorf("read: got %v, %v; want nothing", packages, err)
	}
}
