package quipu_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/store/memstore"
)

// A filter of users that is full refuses those that it does not know, and takes none for counted. What it
// counted is what it says, less the users that it took for others.
func TestOnceFull(t *testing.T) {
	db := quipu.New(memstore.New(memstore.Options{}), quipu.Options{})
	defer func() { _ = db.Close() }()
	day, err := definition.ParseWidth("1d")
	if err != nil {
		t.Fatal(err)
	}
	d := definition.Definition{Pattern: "seen", Once: definition.Once{Every: day, Approximate: 100_000, Users: 1}}
	if _, err := db.Define(t.Context(), []definition.Definition{d}, quipu.DefineOptions{}); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	var counted, duplicates int64
	for i := 0; ; i++ {
		if i > 500_000 {
			t.Fatal("a filter of 64 KiB is never full")
		}
		r, err := db.Add(t.Context(), "seen", 1, quipu.Who(fmt.Sprint("user ", i)), quipu.At(now))
		if errors.Is(err, quipu.ErrFull) {
			if !strings.Contains(err.Error(), "raise users") {
				t.Errorf("%v", err)
			}
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if counted += r.Applied; r.Duplicate {
			duplicates++
		}
	}
	if c, err := db.Read(t.Context(), "seen", quipu.Exact()); err != nil || c.Value != counted {
		t.Errorf("%+v, %v, want %d", c, err, counted)
	}
	// 10% may be wrong; this one has 6.25%, on average half of it while it fills.
	if share := float64(duplicates) / float64(counted+duplicates); counted < 10_000 || share > 0.0625 || share == 0 {
		t.Errorf("%d were counted, and %d were taken for others", counted, duplicates)
	}
	if r, err := db.Add(t.Context(), "seen", 1, quipu.Who("user 0"), quipu.At(now)); err != nil || !r.Duplicate || r.DuplicateError != 0.0625 {
		t.Errorf("%+v, %v", r, err)
	}
}
