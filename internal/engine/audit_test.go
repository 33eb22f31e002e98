package engine_test

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/quipudb/quipu/internal/engine"
	"github.com/quipudb/quipu/store"
)

// behindItsBack opens the disk of a store and changes it.
func behindItsBack(t *testing.T, fs vfs.FS, change func(db *pebble.DB) error) {
	t.Helper()
	db, err := pebble.Open(dir+"/disk", &pebble.Options{FS: fs, DisableWAL: true, FormatMajorVersion: pebble.FormatNewest, Logger: quiet{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(change(db), db.Flush(), db.Close()); err != nil {
		t.Fatal(err)
	}
}

type quiet struct{}

func (quiet) Infof(string, ...any)      {}
func (quiet) Errorf(string, ...any)     {}
func (quiet) Fatalf(f string, _ ...any) { panic(f) }

// rowOf returns the key of a cell's row.
func rowOf(c store.Cell) []byte {
	return append([]byte{'c', byte(len(c.Namespace))}, c.Namespace+c.Key...)
}

func addToRow(db *pebble.DB, c store.Cell, n int64) error {
	b, closer, err := db.Get(rowOf(c))
	if err != nil {
		return err
	}
	v, w := binary.Varint(b)
	row := append(binary.AppendVarint(nil, v+n), b[w:]...)
	return errors.Join(closer.Close(), db.Set(rowOf(c), row, pebble.NoSync))
}

// firstRow returns the key and value of the first row whose key begins with a
// prefix.
func firstRow(db *pebble.DB, prefix string) (key, value []byte, err error) {
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte(prefix)})
	if err != nil {
		return nil, nil, err
	}
	if !it.First() || !strings.HasPrefix(string(it.Key()), prefix) {
		return nil, nil, errors.Join(errors.New("no row "+prefix), it.Close())
	}
	key, value = slices.Clone(it.Key()), slices.Clone(it.Value())
	return key, value, it.Close()
}

// TestAuditFinds changes rows behind the store's back: an audit says what.
func TestAuditFinds(t *testing.T) {
	mem := newMemDisk()
	e := open(t, mem, engine.Options{})
	w, err := store.Enlist(bg, e)
	if err != nil {
		t.Fatal(err)
	}
	do(t, e, add(cell("a"), 5), set(cell("b"), 7), once(add(cell("c"), 9), "token"), set(cell("large"), 1<<62+1), layout(cell("laid"), 0, 7))
	doBatch(t, e, numbered(w, 0, 1, add(cell("d"), 11)))
	mustClose(t, e)
	const sum, check = "sum of all counters", "checksum of all counters"
	const keys, toks = `keys in namespace "test"`, `tokens in namespace "test"`
	f := func(name string, change func(db *pebble.DB) error, want ...string) {
		t.Helper()
		fs := copyOf(t, mem)
		behindItsBack(t, fs, change)
		e := open(t, fs, engine.Options{})
		for range 2 { // the first one's checkpoint does not cover it up
			a, err := e.Audit(bg)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			var got []string
			for _, d := range a.Drift {
				got = append(got, d.What)
				if d.Have == d.Want {
					t.Errorf("%s: %+v", name, d)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: drift %q, want %q", name, got, want)
			}
			do(t, e, add(cell("e"), 1))
		}
	}
	f("nothing", func(*pebble.DB) error { return nil })
	f("one more", func(db *pebble.DB) error { return addToRow(db, cell("a"), 1) }, sum, check)
	f("one less, one more", func(db *pebble.DB) error {
		return errors.Join(addToRow(db, cell("a"), 1), addToRow(db, cell("b"), -1))
	}, check)
	f("two swapped", func(db *pebble.DB) error {
		return errors.Join(addToRow(db, cell("a"), 2), addToRow(db, cell("b"), -2))
	}, check)
	f("the highest bit", func(db *pebble.DB) error { return addToRow(db, cell("a"), -1<<63) },
		`note that counter "a" in namespace "test" must be read first`, sum, check)
	f("a counter gone", func(db *pebble.DB) error { return db.Delete(rowOf(cell("a")), pebble.NoSync) }, sum, check, keys)
	f("a counter more", func(db *pebble.DB) error { return db.Set(rowOf(cell("x")), []byte{4, 1}, pebble.NoSync) }, sum, check, keys)
	f("a counter of zero more", func(db *pebble.DB) error { return db.Set(rowOf(cell("x")), []byte{0, 1}, pebble.NoSync) }, keys)
	f("a token gone", func(db *pebble.DB) error {
		key, _, err := firstRow(db, "t")
		return errors.Join(err, db.Delete(key, pebble.NoSync))
	}, toks)
	f("a token more", func(db *pebble.DB) error {
		key, value, err := firstRow(db, "t")
		return errors.Join(err, db.Set(append(key, 'x'), value, pebble.NoSync))
	}, toks)
	f("a mark gone", func(db *pebble.DB) error {
		return db.Delete(binary.BigEndian.AppendUint64([]byte("w"), uint64(w)), pebble.NoSync)
	}, sum, check)
	f("a namespace's row gone", func(db *pebble.DB) error { return db.Delete([]byte("s\x04test"), pebble.NoSync) }, keys, toks)
	f("a namespace's row more", func(db *pebble.DB) error { return db.Set([]byte("s\x01x"), []byte{2, 2}, pebble.NoSync) },
		`keys in namespace "x"`, `tokens in namespace "x"`)
	note := func(c store.Cell) []byte { return append([]byte("n"), rowOf(c)[1:]...) }
	f("two notes gone", func(db *pebble.DB) error {
		return errors.Join(db.Delete(note(cell("large")), pebble.NoSync), db.Delete(note(cell("laid")), pebble.NoSync))
	}, `note that counter "laid" in namespace "test" must be read first`, `note that counter "large" in namespace "test" must be read first`)
}

// TestAuditUndecodable puts nonsense into rows.
func TestAuditUndecodable(t *testing.T) {
	mem := newMemDisk()
	e := open(t, mem, engine.Options{})
	w, err := store.Enlist(bg, e)
	if err != nil {
		t.Fatal(err)
	}
	doBatch(t, e, numbered(w, 0, 1, add(cell("a"), 5), once(add(cell("b"), 6), "token")))
	mustClose(t, e)
	for _, prefix := range []string{"c\x04", "t", "w", "s", "m"} {
		for _, bad := range [][]byte{{}, {0xff}, []byte(strings.Repeat("\xff", 60))} {
			fs := copyOf(t, mem)
			behindItsBack(t, fs, func(db *pebble.DB) error {
				key, _, err := firstRow(db, prefix)
				return errors.Join(err, db.Set(key, bad, pebble.NoSync))
			})
			e, err := engine.Open(dir, engine.Options{FS: fs})
			if err == nil {
				_, err = e.Audit(bg)
				if cerr := e.Close(); cerr != nil && store.KindOf(cerr) != store.KindCorrupt {
					t.Errorf("close: %v", cerr)
				}
			}
			wantKind(t, err, store.KindCorrupt)
		}
	}
}
