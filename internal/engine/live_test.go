package engine_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/quipudb/quipu/internal/engine"
	"github.com/quipudb/quipu/internal/sketch"
	"github.com/quipudb/quipu/store"
)

// people returns the merge of some users into the sketch that a key is.
func people(c store.Cell, precision int, hashes ...uint64) store.Delta {
	return store.Delta{Cell: c, Op: store.OpMerge, Want: true, Event: &store.Event{
		Part: store.Object, Bytes: sketch.AppendUniqueRequest(nil, precision, hashes),
	}}
}

// TestLive has two engines decide the same merges at random, among all that may be done to a key: one changes
// sketches where they are, where it can, and the other never does, since each of its merges has a last moment. They answer
// the same, but for versions, and have the same bytes in the end, over reads, checkpoints, evictions and crashes.
func TestLive(t *testing.T) {
	seeds := uint64(30)
	if *long {
		seeds = 1000
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) { sameLive(t, seed) })
	}
}

func sameLive(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 31))
	now := time.UnixMilli(1_700_000_000_000)
	o := engine.Options{Now: func() time.Time { return now }, CheckpointEvery: time.Hour}
	fs := [2]*memDisk{newMemDisk(), newMemDisk()}
	engines := [2]*engine.Engine{open(t, fs[0], o), open(t, fs[1], o)}
	cells := []store.Cell{cell("a"), cell("b"), cell("c")}
	precisions := []int{5, 5, 5, 8, 4, 15}
	one := func() store.Delta {
		c := cells[rng.IntN(len(cells))]
		switch rng.IntN(60) {
		case 0:
			return del(c)
		case 1:
			return store.Delta{Cell: c, Op: store.OpPut, Want: true, Event: &store.Event{Part: store.Object, Bytes: []byte("\x00text")}}
		case 2:
			return store.Delta{Cell: c, Op: store.OpExpire, Expiry: store.ExpirySet, DeadlineMS: now.UnixMilli() + rng.Int64N(40)}
		case 3:
			return store.Delta{Cell: c, Op: store.OpSet, N: rng.Int64N(9), Want: true, Event: &store.Event{Part: store.Object}}
		case 4:
			return add(c, 1)
		case 5:
			return store.Delta{Cell: c, Op: store.OpMerge, Want: true, Event: &store.Event{Part: store.Object, Bytes: []byte{byte(sketch.KindUnique), 1, 5}}}
		}
		hashes := make([]uint64, rng.IntN(30))
		for i := range hashes {
			hashes[i] = rng.Uint64N(2000) * 0x9e3779b97f4a7c15
		}
		d := people(c, precisions[rng.IntN(len(precisions))], hashes...)
		d.Want = rng.IntN(4) > 0
		switch rng.IntN(30) {
		case 0:
			d.Guard.Exists = store.ExistsNot
		case 1:
			d.Guard.Token, d.Guard.Digest = fmt.Sprint(rng.IntN(20)), 7
		case 2:
			d.Event.Is = store.Met{Kind: store.MetNot}
		}
		return d
	}
	apply := func(which int, b store.Batch) ([]store.Result, error) {
		r, err := try(engines[which], b)
		for i := range r.Results {
			r.Results[i].Version = 0
		}
		return r.Results, err
	}
	for round := range 150 {
		short, long := store.Batch{Apart: true}, store.Batch{Apart: true}
		for range 1 + rng.IntN(8) {
			d := one()
			short.Deltas = append(short.Deltas, d)
			if d.Op == store.OpMerge {
				e := *d.Event
				e.NotAfter, d.Event = math.MaxInt64, &e
			}
			long.Deltas = append(long.Deltas, d)
		}
		x, errX := apply(0, short)
		y, errY := apply(1, long)
		if fmt.Sprint(errX) != fmt.Sprint(errY) || !slices.Equal(x, y) {
			t.Fatalf("round %d:\n%+v\n%+v (%v)\n%+v (%v)", round, short.Deltas, x, errX, y, errY)
		}
		switch rng.IntN(25) {
		case 0:
			checkpoint(t, engines[rng.IntN(2)])
		case 1:
			now = now.Add(time.Duration(rng.IntN(30)) * time.Millisecond)
		case 2:
			which := rng.IntN(2)
			left := cut(fs[which])
			mustClose(t, engines[which])
			fs[which] = left
			engines[which] = open(t, left, o)
		case 3:
			audited(t, engines[rng.IntN(2)])
		case 4, 5, 6:
			sameBytes(t, engines, cells)
		}
	}
	sameBytes(t, engines, cells)
	for i, e := range engines {
		audited(t, e)
		mustClose(t, e)
		engines[i] = open(t, fs[i], o)
		audited(t, engines[i])
	}
	sameBytes(t, engines, cells)
	for _, e := range engines {
		mustClose(t, e)
	}
}

// sameBytes checks that keys hold the same in two engines, and that the numbers of bytes are theirs.
func sameBytes(t *testing.T, engines [2]*engine.Engine, cells []store.Cell) {
	t.Helper()
	x, errX := contents(engines[0], cells, store.Object)
	y, errY := contents(engines[1], cells, store.Object)
	if errX != nil || errY != nil || !slices.Equal(x, y) {
		t.Fatalf("keys hold:\n%+v (%v)\n%+v (%v)", x, errX, y, errY)
	}
	for i, c := range x {
		if c.Exists && c.N != store.PartObject.Number([]byte(c.Bytes)) {
			t.Fatalf("%v: the number is %d", cells[i], c.N)
		}
	}
}

// TestLiveBytesAreNobodys checks that what a reader has got, or a checkpoint, does not change with
// the sketch.
func TestLiveBytesAreNobodys(t *testing.T) {
	fs := newMemDisk()
	e := open(t, fs, engine.Options{CheckpointEvery: time.Hour})
	c := cell("a")
	next := uint64(0)
	more := func() {
		hashes := make([]uint64, 300)
		for i := range hashes {
			next++
			hashes[i] = next * 0x9e3779b97f4a7c15
		}
		do(t, e, people(c, 5, hashes...))
	}
	read := func() store.Content {
		t.Helper()
		got, err := contents(e, []store.Cell{c}, store.Object)
		if err != nil {
			t.Fatal(err)
		}
		return got[0]
	}
	for range 5 {
		more()
		was := read()
		kept := store.Content{N: was.N, Bytes: string([]byte(was.Bytes)), Exists: true}
		more()
		if was != kept {
			t.Fatal("what a reader has got has changed")
		}
		checkpoint(t, e)
		more()
	}
	want := read()
	after := cut(fs)
	mustClose(t, e)
	e = open(t, after, engine.Options{})
	if got := read(); got != want {
		t.Errorf("%+v after a crash, want %+v", got, want)
	}
	audited(t, e)
	mustClose(t, e)
}

// TestMemoryOfLive merges into a sketch again and again: it is one sketch, for the memory limit too.
func TestMemoryOfLive(t *testing.T) {
	e := open(t, vfs.NewMem(), engine.Options{Memory: 16 << 20, CheckpointEvery: time.Hour})
	for n := range uint64(3000) {
		do(t, e, people(cell("a"), sketch.PrecisionDefault, (2*n+1)*0x9e3779b97f4a7c15, (2*n+2)*0x9e3779b97f4a7c15))
	}
	if n := meter(t, e, "quipu_checkpoints_total"); n > 0 {
		t.Errorf("%v checkpoints for a sketch", n)
	}
	mustClose(t, e)
}
