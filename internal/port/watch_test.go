package port_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

// heard is a watcher that remembers what it is told.
type heard struct {
	mu   sync.Mutex
	keys []string
}

// Changed takes keys down.
func (h *heard) Changed(cells []store.Cell) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range cells {
		h.keys = append(h.keys, c.Namespace+"/"+c.Key)
	}
}

// A watcher is told of what was changed, however it was sent, and of nothing else.
func TestWatch(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) *quipu.DB{
		"memory": func(*testing.T) *quipu.DB { return quipu.New(memstore.New(memstore.Options{}), quipu.Options{}) },
		"shared": func(*testing.T) *quipu.DB {
			return quipu.New(memstore.New(memstore.Options{Shared: true}), quipu.Options{})
		},
		"embedded": func(t *testing.T) *quipu.DB {
			db, err := quipu.Open(t.TempDir(), quipu.Options{})
			if err != nil {
				t.Fatal(err)
			}
			return db
		},
	} {
		t.Run(name, func(t *testing.T) {
			db := open(t)
			defer func() { _ = db.Close() }()
			p, h := db.Port(), &heard{}
			stop := p.Watch(h)
			f := func(want []string, deltas ...store.Delta) {
				t.Helper()
				results := make([]store.Result, len(deltas))
				h.mu.Lock()
				h.keys = nil
				h.mu.Unlock()
				done := make(chan error, 1)
				if !p.Start(deltas, results, func(err error) { done <- err }) {
					done <- p.Apply(t.Context(), deltas, results)
				}
				p.Flush(true)
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				h.mu.Lock()
				defer h.mu.Unlock()
				if slices.Sort(h.keys); !slices.Equal(h.keys, want) {
					t.Errorf("told %q, want %q", h.keys, want)
				}
			}
			cell := func(key string) store.Cell { return store.Cell{Key: key} }
			f([]string{"default/a", "default/b"}, store.Delta{Cell: cell("a"), Op: store.OpAdd, N: 1}, store.Delta{Cell: cell("b"), Op: store.OpSet, N: 1})
			f(nil, store.Delta{Cell: cell("a"), Op: store.OpGet, Want: true})
			f(nil, store.Delta{Cell: cell("a"), Op: store.OpSet, N: 5, Guard: store.Guard{Exists: store.ExistsNot}})
			once := store.Delta{Cell: cell("a"), Op: store.OpAdd, N: 1, Guard: store.Guard{Token: "t"}}
			f([]string{"default/a"}, once)
			f(nil, once) // a repeat
			if _, err := db.In("other").Add(t.Context(), "k", 1); err != nil || !slices.Equal(h.keys, []string{"other/k"}) {
				t.Errorf("told %q, %v", h.keys, err)
			}
			adds := store.Adds{Keys: []byte("lane"), Each: []store.Add{{Size: 4, N: 1, Times: 3}}}
			done := make(chan error, 1)
			h.keys = nil
			if p.StartAdds(&adds, func(err error) { done <- err }) {
				p.Flush(true)
				if err := <-done; err != nil || !slices.Equal(h.keys, []string{"default/lane"}) {
					t.Errorf("told %q of the lane, %v", h.keys, err)
				}
			}
			h.keys = nil
			stop()
			if _, err := db.Add(t.Context(), "a", 1); err != nil || len(h.keys) > 0 {
				t.Errorf("told %q when it was over, %v", h.keys, err)
			}
		})
	}
}
