package sketch_test

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"hash/fnv"
	"os"
	"testing"

	"github.com/quipudb/quipu/internal/sketch"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// golden compares named bytes with a file of testdata. Stores keep these bytes: a difference
// means that what they have can't be read any more.
func golden(t *testing.T, path string, names []string, states [][]byte) {
	t.Helper()
	var b bytes.Buffer
	for i, name := range names {
		_, _ = fmt.Fprintf(&b, "%s\n%s\n", name, hex.Dump(states[i]))
	}
	if *rewrite {
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("%s is not what is made now; go test ./internal/sketch -args -rewrite, and read the difference:\n%s", path, b.String())
	}
}

// TestUniqueGolden makes states whose bytes are known.
func TestUniqueGolden(t *testing.T) {
	made := func(precision, n int) []byte {
		u := sketch.NewUnique(precision)
		for i := range n {
			u.Add(sketch.Hash(fmt.Sprint("item-", i)))
		}
		return u.Append(nil)
	}
	sum := func(b []byte) []byte {
		h := fnv.New128a()
		_, _ = h.Write(b)
		return h.Sum(nil)
	}
	golden(t, "testdata/unique.txt",
		[]string{
			"empty, precision 13", "3 items, precision 13", "5 items, precision 5", "6 items, precision 5",
			"1,000 items, precision 5", "1,000,000 items, precision 3", "FNV-1a of 1,365 items, precision 13", "FNV-1a of 100,000 items, precision 13",
		},
		[][]byte{
			made(13, 0), made(13, 3), made(5, 5), made(5, 6),
			made(5, 1000), made(3, 1_000_000), sum(made(13, 1365)), sum(made(13, 100_000)),
		})
}
