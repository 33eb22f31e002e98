package engine_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/quipudb/quipu/internal/engine"
	"github.com/quipudb/quipu/store"
)

// A shop is a small store with a little of everything, and what it must hold.
type shop struct {
	fs     *memDisk
	values map[store.Cell]store.Value
	parts  []store.PartEntry
	token  store.Result
	writer store.Writer
	batch  store.Batch
	reply  []store.Result
}

// newShop makes a store that has been opened several times, with several
// tables on disk and several log segments, closed or killed.
func newShop(t testing.TB, closed bool) *shop {
	t.Helper()
	s := &shop{fs: newMemDisk(), values: map[store.Cell]store.Value{}}
	var e *engine.Engine
	for round := range 3 {
		e = open(t, s.fs, engine.Options{SegmentBytes: 700})
		for i := range 12 {
			do(t, e, add(cell(fmt.Sprintf("key %d", i)), int64(1+i*round)), set(cell(fmt.Sprintf("set %d", round)), int64(i)))
		}
		do(t, e, set(store.Cell{Namespace: "default", Key: "large"}, 1<<62+5), add(cell(fmt.Sprint("gone ", round)), 1))
		do(t, e, del(cell(fmt.Sprint("gone ", round))))
		if round == 0 {
			do(t, e, layout(cell("laid"), 0, 1<<62), layout(cell("laid again"), 0, 1))
			var err error
			if s.writer, err = store.Enlist(bg, e); err != nil {
				t.Fatal(err)
			}
			s.token = do(t, e, once(add(cell("once"), 7), "token"))[0]
		}
		plan := planOf(1, viewHour, viewDay, viewDE, store.PartFields{Kind: store.PartWindow, View: 1, Epoch: store.Epoch(round)}.Part())
		do(t, e, planned(add(cell("viewed"), 1), plan, line("a line")), planned(add(cell("viewed"), 1), plan))
		doBatch(t, e, store.Batch{
			Books:  []store.Book{{Namespace: "other", ID: int64(round + 1)}},
			Floors: []store.Floor{{Namespace: "test", Kind: store.PartWindow, View: 1, Epoch: store.Epoch(round)}},
		})
		do(t, e, add(cell("laid"), 1), layout(cell("laid again"), int64(round+1), int64(round+2)))
		s.batch = numbered(s.writer, uint64(round), uint64(round+1), want(add(cell("row"), 3)), add(cell("row 2"), int64(round)))
		s.reply = slices.Clone(doBatch(t, e, s.batch))
		if round < 2 {
			checkpoint(t, e)
			do(t, e, add(cell("after"), 1)) // its checkpoint is that of Close
			mustClose(t, e)
		}
	}
	if closed {
		checkpoint(t, e)
		do(t, e, add(cell("after"), 1))
	}
	for _, ns := range []string{"", "default", "test"} {
		got, err := e.Scan(bg, store.Range{Namespace: ns}, 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range got {
			s.values[store.Cell{Namespace: ns, Key: entry.Key}] = entry.Value
		}
	}
	var err error
	if s.parts, err = e.ScanParts(bg, store.Rows{Namespace: "test"}, 1000); err != nil || len(s.parts) < 8 {
		t.Fatalf("%d parts, %v", len(s.parts), err)
	}
	if len(s.values) < 20 {
		t.Fatalf("only %d cells", len(s.values))
	}
	if closed {
		mustClose(t, e)
	} else {
		// The last frame of a log that was not closed is vouched for by
		// nothing: damaged, it is taken for torn.
		do(t, e, add(store.Cell{Namespace: "last", Key: "frame"}, 1))
	}
	s.fs = cut(s.fs)
	return s
}

// check opens a copy of the store in which something is not as it was. It must
// be refused, or hold exactly what it held. It returns the refusal.
func (s *shop) check(t testing.TB, fs *memDisk) error {
	e, err := engine.Open(dir, engine.Options{FS: fs, SegmentBytes: 700})
	if err != nil {
		return err
	}
	err = s.compare(t, e)
	return errors.Join(err, ignoreCorrupt(e.Close()))
}

// compare reads everything. What it returns is what the store said; a wrong
// answer fails the test.
func (s *shop) compare(t testing.TB, e *engine.Engine) error {
	var errs []error
	for c, want := range s.values {
		vs := make([]store.Value, 1)
		if err := e.Read(bg, []store.Cell{c}, vs); err != nil {
			errs = append(errs, err)
		} else if vs[0] != want {
			t.Errorf("%v is %+v, want %+v", c, vs[0], want)
		}
	}
	for _, key := range []string{"gone 0", "gone 1", "gone 2", "never"} {
		vs := make([]store.Value, 1)
		if err := e.Read(bg, []store.Cell{cell(key)}, vs); err != nil {
			errs = append(errs, err)
		} else if vs[0].Exists {
			t.Errorf("%s is %+v", key, vs[0])
		}
	}
	for _, ns := range []string{"", "default", "test"} {
		got, err := e.Scan(bg, store.Range{Namespace: ns}, 1000)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		n := 0
		for c := range s.values {
			if c.Namespace == ns {
				n++
			}
		}
		if n != len(got) {
			t.Errorf("scan of %q has %d cells, want %d", ns, len(got), n)
		}
	}
	if got, err := e.ScanParts(bg, store.Rows{Namespace: "test"}, 1000); err != nil {
		errs = append(errs, err)
	} else if !slices.Equal(got, s.parts) {
		t.Errorf("parts %+v, want %+v", got, s.parts)
	}
	if _, err := try(e, batch(add(store.Cell{Namespace: "other", Key: "a"}, 1))); store.KindOf(err) != store.KindOutdated {
		errs = append(errs, fmt.Errorf("under an older book: %w", err))
	}
	if f, err := e.Lookup(bg, cell("once"), "token"); err != nil {
		errs = append(errs, err)
	} else if f.State != store.TokenApplied || !same(f.Result, s.token) {
		t.Errorf("token: %+v, want %+v", f, s.token)
	}
	if r, err := try(e, s.batch); err != nil {
		errs = append(errs, err)
	} else if !r.Replayed || len(r.Results) != len(s.reply) || !same(r.Results[0], s.reply[0]) || !same(r.Results[1], s.reply[1]) {
		t.Errorf("repeated batch: %+v, want %+v", r, s.reply)
	}
	a, err := e.Audit(bg)
	if err != nil {
		errs = append(errs, err)
	} else if len(a.Drift) > 0 {
		t.Errorf("drift: %+v", a.Drift)
	}
	return errors.Join(errs...)
}

// ignoreCorrupt drops the errors of closing a damaged store.
func ignoreCorrupt(err error) error {
	if k := store.KindOf(err); err != nil && (k == store.KindCorrupt || k == store.KindLost) {
		return nil
	}
	return err
}

// damaged are the kinds of error that a damaged store may return.
var damaged = []store.Kind{store.KindCorrupt, store.KindLost, store.KindUnsupported}

// TestFlips flips one bit in many bytes of every file of a store.
func TestFlips(t *testing.T) {
	for _, closed := range []bool{true, false} {
		s := newShop(t, closed)
		refused, named, total := map[string]int{}, map[string]int{}, map[string]int{}
		for _, path := range files(t, s.fs, dir) {
			good := content(t, s.fs, path)
			stride := 1 + len(good)/40
			if *long {
				stride = 1
			}
			for at := 0; at < len(good); at += stride {
				fs := cut(s.fs)
				bad := slices.Clone(good)
				bad[at] ^= 1 << (at % 8)
				setContent(t, fs, path, bad)
				var err error
				within(t, path, func() { err = s.check(t, fs) })
				total[sort(path)]++
				if err != nil {
					refused[sort(path)]++
					if strings.Contains(err.Error(), fs.PathBase(path)) {
						named[sort(path)]++
					}
					if !slices.Contains(damaged, store.KindOf(err)) {
						t.Errorf("%v, of kind %d", err, store.KindOf(err))
					}
				}
				if t.Failed() {
					t.Fatalf("closed %v: bit %d of byte %d of %s, which has %d, was flipped", closed, at%8, at, path, len(good))
				}
			}
		}
		t.Logf("closed %v: flips %v, refused %v, with the file's name %v", closed, total, refused, named)
		if refused["QUIPU"] != total["QUIPU"] || refused["sst"] < total["sst"]/5 || refused["MANIFEST"] == 0 {
			t.Errorf("too few were refused")
		}
	}
}

// sort returns what kind of file a path is.
func sort(path string) string {
	name := path[strings.LastIndex(path, "/")+1:]
	if i := strings.LastIndex(name, "."); i >= 0 && !strings.HasPrefix(name, "marker") {
		return name[i+1:]
	}
	name, _, _ = strings.Cut(name, "-")
	return name
}

// TestMissingFiles removes every file of a store, and every directory.
func TestMissingFiles(t *testing.T) {
	for _, closed := range []bool{true, false} {
		s := newShop(t, closed)
		paths := files(t, s.fs, dir)
		if !closed {
			// Nothing tells that the last segment of a log that was not closed
			// was there.
			last := 0
			for i, p := range paths {
				if strings.HasSuffix(p, ".wal") {
					last = i
				}
			}
			paths = slices.Delete(paths, last, last+1)
		}
		paths = append(paths, dir+"/log", dir+"/disk")
		refused := 0
		for _, path := range paths {
			fs := cut(s.fs)
			if err := fs.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
			var err error
			within(t, path, func() { err = s.check(t, fs) })
			if err != nil {
				refused++
				if !slices.Contains(damaged, store.KindOf(err)) {
					t.Errorf("%v, of kind %d", err, store.KindOf(err))
				}
			} else if path == dir+"/QUIPU" || path == dir+"/log" || path == dir+"/disk" {
				t.Errorf("that was not missed")
			}
			if t.Failed() {
				t.Fatalf("closed %v: %s was removed", closed, path)
			}
		}
		t.Logf("closed %v: %d of %d were missed", closed, refused, len(paths))
	}
}

// TestIdentityLost checks that a store without its identity file is not taken
// for one that was never made, however little its log has in it.
func TestIdentityLost(t *testing.T) {
	f := func(name string, prepare func(e *engine.Engine, fs *memDisk)) {
		t.Helper()
		mem := newMemDisk()
		e := open(t, mem, engine.Options{SegmentBytes: 512})
		for i := range 20 {
			do(t, e, add(cell(fmt.Sprint(i)), 1))
		}
		mustClose(t, e)
		e = open(t, mem, engine.Options{SegmentBytes: 512})
		audited(t, e) // its checkpoint gives up the log before it
		mem = cut(mem)
		prepare(e, mem)
		if err := mem.Remove(dir + "/QUIPU"); err != nil {
			t.Fatal(err)
		}
		before := len(files(t, mem, dir))
		_, err := engine.Open(dir, engine.Options{FS: mem})
		if store.KindOf(err) != store.KindLost || !strings.Contains(err.Error(), dir+"/QUIPU") {
			t.Errorf("%s: %v", name, err)
		}
		if len(files(t, mem, dir)) != before {
			t.Errorf("%s: it was removed", name)
		}
	}
	f("killed after a checkpoint", func(*engine.Engine, *memDisk) {})
	f("without its log too", func(_ *engine.Engine, fs *memDisk) {
		if err := fs.RemoveAll(dir + "/log"); err != nil {
			t.Fatal(err)
		}
	})
	f("without its disk too", func(_ *engine.Engine, fs *memDisk) {
		if err := fs.RemoveAll(dir + "/disk"); err != nil {
			t.Fatal(err)
		}
	})
}

// TestTruncatedFiles cuts every file of a store short.
func TestTruncatedFiles(t *testing.T) {
	s := newShop(t, true)
	for _, path := range files(t, s.fs, dir) {
		good := content(t, s.fs, path)
		stride := 1 + len(good)/8
		if *long {
			stride = 1
		}
		for n := 0; n < len(good); n += stride {
			fs := cut(s.fs)
			setContent(t, fs, path, good[:n])
			var err error
			within(t, path, func() { err = s.check(t, fs) })
			if err != nil && !slices.Contains(damaged, store.KindOf(err)) {
				t.Errorf("%v, of kind %d", err, store.KindOf(err))
			}
			if t.Failed() {
				t.Fatalf("%s, which has %d bytes, was cut to %d", path, len(good), n)
			}
		}
	}
}

// TestOlderFiles puts files of an earlier time, or of another store, in the
// place of the present ones.
func TestOlderFiles(t *testing.T) {
	s := newShop(t, true)
	older := cut(s.fs)
	e := open(t, s.fs, engine.Options{SegmentBytes: 700})
	for i := range 30 {
		c := cell(fmt.Sprintf("key %d", i%12))
		r := do(t, e, want(add(c, 1)))[0]
		s.values[c] = store.Value{N: r.After, Version: r.Version, Exists: true}
	}
	mustClose(t, e)
	newer := cut(s.fs)

	mix := func(parts map[string]*memDisk) *memDisk {
		fs := cut(newer)
		for path, from := range parts {
			if err := fs.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
			if ok, err := vfs.Clone(from, fs, path, path); !ok || err != nil {
				t.Fatalf("copy %s: %v, %v", path, ok, err)
			}
		}
		return fs
	}
	f := func(name string, parts map[string]*memDisk, kinds ...store.Kind) {
		t.Helper()
		var err error
		within(t, name, func() { err = s.check(t, mix(parts)) })
		if len(kinds) > 0 && !slices.Contains(kinds, store.KindOf(err)) {
			t.Errorf("%s: %v, of kind %d, want kind %v", name, err, store.KindOf(err), kinds)
		}
	}
	other := newShop(t, true).fs
	disk, log := dir+"/disk", dir+"/log"
	f("nothing", nil, store.KindOther)
	f("an older disk", map[string]*memDisk{disk: older}, store.KindLost)
	f("an older log", map[string]*memDisk{log: older}, store.KindLost, store.KindCorrupt)
	f("another store's disk", map[string]*memDisk{disk: other}, store.KindCorrupt)
	f("another store's log", map[string]*memDisk{log: other}, store.KindCorrupt)
	f("another store's identity", map[string]*memDisk{dir + "/QUIPU": other}, store.KindCorrupt)

	// An older manifest under the newer one's name, or beside it.
	manifest := func(fs *memDisk) string {
		i := slices.IndexFunc(files(t, fs, disk), func(p string) bool { return strings.Contains(p, "/marker.manifest") })
		marker := files(t, fs, disk)[i]
		return disk + "/" + marker[strings.LastIndex(marker, ".")+1:]
	}
	fs := cut(newer)
	setContent(t, fs, manifest(newer), content(t, older, manifest(older)))
	within(t, "an older manifest", func() {
		if err := s.check(t, fs); !slices.Contains(damaged, store.KindOf(err)) {
			t.Errorf("an older manifest: %v", err)
		}
	})
}

// TestDamagedTable checks that a store one of whose tables can't be read any
// more goes on with what it can read, and hangs nowhere: not when compactions
// fail, and not when it is closed.
func TestDamagedTable(t *testing.T) {
	mem := newMemDisk()
	e := open(t, mem, engine.Options{})
	for i := range 1000 {
		do(t, e, set(cell(fmt.Sprintf("old %04d", i)), int64(i)))
	}
	mustClose(t, e)
	var large string
	for _, path := range files(t, mem, dir+"/disk") {
		if strings.HasSuffix(path, ".sst") && (large == "" || len(content(t, mem, path)) > len(content(t, mem, large))) {
			large = path
		}
	}
	b := content(t, mem, large)
	b[100] ^= 1
	setContent(t, mem, large, b)
	within(t, "a store with a damaged table", func() {
		e := open(t, mem, engine.Options{})
		for i := range 30 {
			do(t, e, add(cell(fmt.Sprintf("zz new %d", i)), 1))
			checkpoint(t, e)
		}
		bad := 0
		for i := range 1000 {
			vs := make([]store.Value, 1)
			if err := e.Read(bg, []store.Cell{cell(fmt.Sprintf("old %04d", i))}, vs); err != nil {
				bad++
				wantKind(t, err, store.KindCorrupt)
				if !strings.Contains(err.Error(), large) {
					t.Fatalf("%v does not name %s", err, large)
				}
			} else if vs[0].N != int64(i) {
				t.Fatalf("old %d is %+v", i, vs[0])
			}
		}
		if bad == 0 || bad == 1000 {
			t.Fatalf("%d of 1000 cells can't be read", bad)
		}
		_, err := try(e, batch(want(add(cell("old 0000"), 1))))
		wantKind(t, err, store.KindCorrupt)
		_, err = e.Audit(bg)
		wantKind(t, err, store.KindCorrupt)
		mustClose(t, e)
	})
}
