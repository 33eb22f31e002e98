package storetest

import (
	"bytes"
	"fmt"
	"os"
	"testing"
)

// A Piece is something that a store writes, and its bytes.
type Piece struct {
	Name  string
	Bytes []byte
}

// Golden checks that what a store writes is what it has always written. The file
// has a line for each piece: a later release must be able to read them all. With
// rewrite the file is written anew, for somebody to read what has changed.
func Golden(t testing.TB, file string, rewrite bool, pieces []Piece) {
	t.Helper()
	var got bytes.Buffer
	for _, p := range pieces {
		fmt.Fprintf(&got, "%s: %+q\n", p.Name, p.Bytes)
	}
	if rewrite {
		if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	has, had := bytes.Split(got.Bytes(), []byte("\n")), bytes.Split(want, []byte("\n"))
	for i := range max(len(has), len(had)) {
		var is, was []byte
		if i < len(has) {
			is = has[i]
		}
		if i < len(had) {
			was = had[i]
		}
		if !bytes.Equal(is, was) {
			t.Errorf("%s, line %d: a format on disk must not change; -rewrite writes the file anew\nis  %s\nwas %s", file, i+1, is, was)
		}
	}
}
