package engine_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/engine"
	"github.com/quipudb/quipu/store"
)

// TestScanRows checks that a scan, which takes rows from the disk as it finds them, tells
// what parts are by the time it returns.
func TestScanRows(t *testing.T) {
	f := func(name string, want int64, meanwhile func(e *engine.Engine, add func())) {
		t.Run(name, func(t *testing.T) {
			e := open(t, newMemDisk(), engine.Options{CheckpointEvery: time.Hour})
			defer mustClose(t, e)
			plan := planOf(1, viewParts...)
			add := func() {
				if _, err := try(e, batch(planned(add(cell("a"), 1), plan, line("some")))); err != nil {
					t.Fatal(err)
				}
			}
			add()
			save(t, e)
			got, err := e.ScanSlowly(bg, "test", func() { meanwhile(e, add) })
			if err != nil {
				t.Fatal(err)
			}
			ones, lines := 0, 0
			for _, c := range got {
				if c.Bytes != "" {
					lines++
				} else if c.Exists && c.N == want {
					ones++
				}
			}
			// The book is 1 at all times.
			if books := map[bool]int{true: 1}[want == 1]; ones != len(viewParts)+books || lines != 1 {
				t.Errorf("%d parts are %d, and there are %d lines: %+v", ones, want, lines, got)
			}
		})
	}
	f("nothing", 1, func(*engine.Engine, func()) {})
	f("unread", 2, func(_ *engine.Engine, add func()) { add() })
	f("saved", 2, func(e *engine.Engine, add func()) { add(); save(t, e) })
	f("twice", 3, func(e *engine.Engine, add func()) { add(); save(t, e); add() })
}

// save makes a checkpoint, after which nothing is in memory.
func save(t *testing.T, e *engine.Engine) {
	t.Helper()
	if err := e.Checkpoint(bg); err != nil {
		t.Fatal(err)
	}
	e.EvictNow()
}

// TestScanPages checks pages of all sizes, both ways, of parts on disk, in memory and in
// bundles.
func TestScanPages(t *testing.T) {
	e := open(t, newMemDisk(), engine.Options{CheckpointEvery: time.Hour})
	defer mustClose(t, e)
	plan := planOf(1, viewParts...)
	for i, keys := range []string{"adg", "beg", "cfg"} {
		for _, key := range keys {
			d := planned(add(cell(string(key)), 1), plan)
			if _, err := try(e, batch(d, d)); err != nil { // the second is bundled
				t.Fatal(err)
			}
		}
		if i < 2 {
			save(t, e)
		}
	}
	all, err := e.ScanParts(bg, store.Rows{Namespace: "test"}, store.ScanMax)
	if want := 7 * (len(viewParts) + 1); err != nil || len(all) != want {
		t.Fatalf("%d parts, %v, want %d", len(all), err, want)
	}
	for n := 1; n <= len(all)+1; n++ {
		for _, back := range []bool{false, true} {
			rows := store.Rows{Namespace: "test", Back: back}
			for i := 0; i < len(all); {
				page, err := e.ScanParts(bg, rows, n)
				if err != nil || len(page) != min(n, len(all)-i) {
					t.Fatalf("%d parts of %d after %d, %v", len(page), n, i, err)
				}
				for _, p := range page {
					want := all[i]
					if back {
						want = all[len(all)-1-i]
					}
					if i++; p != want {
						t.Fatalf("part %d of pages of %d is %+v, want %+v", i, n, p, want)
					}
				}
				_, row := store.AppendRow(nil, page[len(page)-1].Cell, page[len(page)-1].Part)
				if rows.From = string(row) + "\x00"; back {
					rows.From, rows.To = "", string(row)
				}
			}
		}
	}
}

// TestScanMany checks the ends of many parts that are not on disk, of which a scan keeps
// few while it looks at them.
func TestScanMany(t *testing.T) {
	e := open(t, newMemDisk(), engine.Options{CheckpointEvery: time.Hour})
	defer mustClose(t, e)
	plan := planOf(1, viewParts...)
	for i := range 200 {
		if _, err := try(e, batch(planned(add(cell(fmt.Sprint(i*61%200)), 1), plan))); err != nil {
			t.Fatal(err)
		}
	}
	all, err := e.ScanParts(bg, store.Rows{Namespace: "test"}, store.ScanMax)
	if err != nil || len(all) != 200*(len(viewParts)+1) {
		t.Fatalf("%d parts, %v", len(all), err)
	}
	for _, back := range []bool{false, true} {
		got, err := e.ScanParts(bg, store.Rows{Namespace: "test", Back: back}, 3)
		if err != nil || !slices.Equal(got, all[:3]) {
			t.Errorf("%+v, %v, want %+v", got, err, all[:3])
		}
		slices.Reverse(all)
	}
}
