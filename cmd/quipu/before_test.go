package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/engine"
	"github.com/quipudb/quipu/store"
)

// unpack unpacks what testdata/before has of a name, and returns its directory.
func unpack(t *testing.T, name string) string {
	t.Helper()
	packed, err := os.ReadFile(filepath.Join("testdata", "before", name+".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	into := t.TempDir()
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return filepath.Join(into, name)
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(into, filepath.FromSlash(h.Name))
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o700)
		} else {
			var content []byte
			content, err = io.ReadAll(r)
			err = errors.Join(err, os.WriteFile(path, content, 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A past is a data directory of the first format, and what its server has replied.
type past struct {
	t       *testing.T
	dir     string
	ahead   time.Duration // of the machine's clock
	replies []quipu.Receipt
	batches []store.Batch // the last of each writer
}

func pastOf(t *testing.T, name string, ahead time.Duration) *past {
	t.Helper()
	dir := unpack(t, name)
	p := &past{t: t, dir: filepath.Join(dir, "data"), ahead: ahead, batches: []store.Batch{numbered(1, 3, 4, 100), numbered(2, 0, 1, 1000)}}
	replies, err := os.Open(filepath.Join(dir, "replies.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = replies.Close() }() // it was read
	for d := json.NewDecoder(replies); d.More(); {
		var r quipu.Receipt
		if err := d.Decode(&r); err != nil {
			t.Fatal(err)
		}
		p.replies = append(p.replies, r)
	}
	return p
}

// format returns the first lines of the file that says what the directory is.
func (p *past) format() string {
	p.t.Helper()
	text, err := os.ReadFile(filepath.Join(p.dir, "QUIPU"))
	if err != nil {
		p.t.Fatal(err)
	}
	lines := strings.SplitN(string(text), "\n", 3)
	return lines[0] + ", " + lines[1]
}

// with opens the directory, has f use it, verifies and closes it.
func (p *past) with(f func(ctx context.Context, db *quipu.DB)) {
	p.t.Helper()
	began := time.Now()
	e, err := engine.Open(p.dir, engine.Options{
		Now:     func() time.Time { return time.Now().Add(p.ahead) },
		Elapsed: func() time.Duration { return time.Since(began) },
	})
	if err != nil {
		p.t.Fatal(err)
	}
	db := quipu.New(e, quipu.Options{})
	f(p.t.Context(), db)
	if a, err := db.Verify(p.t.Context()); err != nil || len(a.Drift) > 0 {
		p.t.Errorf("verify: %+v, %v", a, err)
	}
	if err := db.Close(); err != nil {
		p.t.Fatal(err)
	}
}

// again repeats every write that had a token, and the last batch of each writer.
func (p *past) again(ctx context.Context, db *quipu.DB) {
	p.t.Helper()
	shop, other := db.In("shop"), db.In("stöße")
	token := func(name string) []quipu.WriteOption {
		return []quipu.WriteOption{quipu.Token(name), quipu.WantValue()}
	}
	writes := []func() (quipu.Receipt, error){
		func() (quipu.Receipt, error) { return db.Add(ctx, "likes", 3, token("one")...) },
		func() (quipu.Receipt, error) { return db.Set(ctx, "big", 1000, token("two")...) },
		func() (quipu.Receipt, error) { return shop.Add(ctx, "likes", 30, token("one")...) },
		func() (quipu.Receipt, error) { return other.Add(ctx, "likes", 300, token("one")...) },
		func() (quipu.Receipt, error) { return db.Add(ctx, "likes", 4, token("three")...) },
		func() (quipu.Receipt, error) { return db.Set(ctx, "big", 2000, token("four")...) },
		func() (quipu.Receipt, error) { return db.Delete(ctx, "gone", token("five")...) },
		func() (quipu.Receipt, error) { return db.Reset(ctx, "zeroed", token("six")...) },
		func() (quipu.Receipt, error) { return shop.Add(ctx, "likes", -40, token("two")...) },
	}
	if len(writes) != len(p.replies) {
		p.t.Fatalf("there are %d replies", len(p.replies))
	}
	for i, write := range writes {
		want := p.replies[i]
		r, err := write()
		if err != nil || !r.Replayed || r.Key != want.Key || r.Applied != want.Applied || r.Value != want.Value || r.Before != want.Before || r.Version != want.Version {
			p.t.Errorf("write %d again: %+v, %v; the first reply was %+v", i, r, err, want)
		}
	}
	if _, err := db.Add(ctx, "likes", 5, quipu.Token("one")); !errors.Is(err, quipu.ErrToken) {
		p.t.Errorf("another amount with a token: %v", err)
	}
	for key, never := range map[string]string{"likes": "never", "big": "nowhere"} {
		if _, err := db.Add(ctx, key, 1, quipu.Token(never)); !errors.Is(err, quipu.ErrSettled) {
			p.t.Errorf("with a token that was settled: %v", err)
		}
	}
	for _, b := range p.batches {
		p.batch(ctx, db, b, true)
	}
}

func (p *past) batch(ctx context.Context, db *quipu.DB, b store.Batch, replayed bool) {
	p.t.Helper()
	replies := make([]store.Reply, 1)
	if err := db.Port().WriteBatches(ctx, []store.Batch{b}, replies); err != nil || replies[0].Err != nil || replies[0].Replayed != replayed {
		p.t.Errorf("batch %d of writer %d: %+v, %v; want replayed %v", b.Seq, b.Writer, replies[0], err, replayed)
	}
}

// numbered is a batch of a writer, as the program that made the directories sent it.
func numbered(w store.Writer, prev, seq uint64, n int64) store.Batch {
	return store.Batch{Writer: w, Prev: prev, Seq: seq, Deltas: []store.Delta{
		{Cell: store.Cell{Key: "left"}, Op: store.OpAdd, N: n}, {Cell: store.Cell{Key: "right"}, Op: store.OpAdd, N: 2 * n},
	}}
}

// has checks all totals of a namespace.
func (p *past) has(ctx context.Context, db *quipu.DB, want map[string]int64) {
	p.t.Helper()
	got, err := db.List(ctx, "", quipu.ListOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	for _, c := range got.Counts {
		if n, ok := want[c.Key]; !ok || c.Value != n || !c.Exact || (c.Key == "later") != (c.ExpiresAt.Year() > 2100) {
			p.t.Errorf("%+v, want %d", c, n)
		}
	}
	if len(got.Counts) != len(want) {
		p.t.Errorf("%d counters: %+v; want %v", len(got.Counts), got.Counts, want)
	}
}

// A directory of the first format has its totals, tokens and marks, and is as it was for the
// programs of that time, until something is defined. Then it goes on with what it has.
func TestBefore(t *testing.T) {
	f := func(name string, ahead time.Duration) {
		t.Helper()
		p := pastOf(t, name, ahead)
		totals := map[string]int64{"big": 2000, "hot": 2500, "later": 7, "left": 1110, "likes": 7, "right": 2220, "zeroed": 0}
		all := func(ctx context.Context, db *quipu.DB) {
			t.Helper()
			p.again(ctx, db)
			p.has(ctx, db, totals)
			p.has(ctx, db.In("shop"), map[string]int64{"likes": -10})
			p.has(ctx, db.In("stöße"), map[string]int64{"likes": 300})
		}
		is := func(want string) {
			t.Helper()
			if got := p.format(); got != want {
				t.Errorf("%s is of %q, want %q", name, got, want)
			}
		}
		is("quipu store, format 1")
		p.with(all)
		if c := command(t, "verify", "--data", p.dir); c.code != 0 || !strings.HasPrefix(c.stdout, "ok: ") {
			t.Errorf("%+v", c)
		}
		is("quipu store, format 1")
		p.with(func(ctx context.Context, db *quipu.DB) {
			t.Helper()
			all(ctx, db)
			if _, err := db.Define(ctx, beforeViews(t), quipu.DefineOptions{}); err != nil {
				t.Fatal(err)
			}
			is("quipu store, format 2")
			all(ctx, db)
			p.batches[0] = numbered(1, 4, 5, 1)
			p.batch(ctx, db, p.batches[0], false)
			for _, key := range []string{"likes", "hot", "new", "gone"} {
				if _, err := db.Add(ctx, key, 2, quipu.Token("seven"), quipu.Dim("country", "DE")); err != nil {
					t.Error(err)
				}
				totals[key] += 2
			}
			totals["left"], totals["right"] = 1111, 2222
			all(ctx, db)
		})
		is("quipu store, format 2")
		p.with(func(ctx context.Context, db *quipu.DB) {
			t.Helper()
			all(ctx, db)
			for key, since := range map[string]int64{"likes": 2, "hot": 2, "new": 2, "gone": 2, "left": 1, "big": 0} {
				if s, err := db.Range(ctx, key, quipu.RangeOptions{}); err != nil || s.Sum != since {
					t.Errorf("windows of %s: %+v, %v; want %d", key, s, err, since)
				}
				if b, err := db.By(ctx, key, "country", quipu.ByOptions{}); err != nil || b.Sum != since || b.Sum+b.Outside != totals[key] {
					t.Errorf("countries of %s: %+v, %v; want %d", key, b, err, since)
				}
			}
			if r, err := db.Add(ctx, "hot", 2, quipu.Token("seven"), quipu.Dim("country", "DE")); err != nil || !r.Replayed {
				t.Errorf("%+v, %v", r, err)
			}
		})
		if c := command(t, "verify", "--data", p.dir); c.code != 0 || !strings.HasPrefix(c.stdout, "ok: ") {
			t.Errorf("%+v", c)
		}
	}
	for _, name := range []string{"closed", "killed"} {
		f(name, 0)
		f(name, 10*365*24*time.Hour) // A token's age is time that the store was open.
	}
}

func beforeViews(t *testing.T) []definition.Definition {
	t.Helper()
	day, err := definition.ParseWidth("1d")
	if err != nil {
		t.Fatal(err)
	}
	return []definition.Definition{{
		Pattern: "*", Windows: []definition.Window{{Every: day, Keep: definition.Keep(1000 * time.Hour)}},
		Dimensions: []definition.Dimension{{By: []string{"country"}}}, Ledger: definition.Ledger{Record: definition.All},
	}}
}

// A program does not touch a directory of a format that it does not know, and says so:
// those of format 1 meet one of format 2 in the same way.
func TestLaterFormat(t *testing.T) {
	p := pastOf(t, "closed", 0)
	file := filepath.Join(p.dir, "QUIPU")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, bytes.Replace(text, []byte("format 1"), []byte("format 99"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	const want = "was made by a newer Quipu, with format 99, and this one knows formats up to "
	for _, args := range [][]string{{"serve", "--http", "127.0.0.1:0", "--data", p.dir}, {"verify", "--data", p.dir}} {
		if c := command(t, args...); c.code == 0 || !strings.Contains(c.stderr, want) {
			t.Errorf("quipu %q: %+v", args, c)
		}
	}
}
