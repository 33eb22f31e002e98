package storetest_test

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

// optional are the optional interfaces of a store that Wrap forwards.
var optional = []reflect.Type{
	reflect.TypeFor[store.Adder](), reflect.TypeFor[store.Auditor](), reflect.TypeFor[store.Carrier](),
	reflect.TypeFor[store.Clock](), reflect.TypeFor[store.Meter](),
	reflect.TypeFor[store.Namespacer](), reflect.TypeFor[store.Prober](), reflect.TypeFor[store.Sizer](),
	reflect.TypeFor[store.Snapshotter](), reflect.TypeFor[store.Starter](), reflect.TypeFor[store.Witness](),
}

func has(s store.Store) (names []string) {
	for _, i := range optional {
		if reflect.TypeOf(s).Implements(i) {
			names = append(names, i.Name())
		}
	}
	return names
}

// A new optional interface of package store must be added to Wrap, and here: else
// tests would hide from the code they test that a store has it.
func TestWrapKnowsAll(t *testing.T) {
	files, err := filepath.Glob("../*.go")
	if err != nil {
		t.Fatal(err)
	}
	var declared []string
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok && spec.Name.IsExported() && spec.Name.Name != "Store" {
				if _, ok := spec.Type.(*ast.InterfaceType); ok {
					declared = append(declared, spec.Name.Name)
				}
			}
			return true
		})
	}
	slices.Sort(declared)
	if known := has(storetest.Wrap(everything(), new(storetest.Hooks))); !slices.Equal(declared, known) {
		t.Errorf("package store has the interfaces %q, and Wrap knows %q", declared, known)
	}
}

// can is what a memstore can't.
type can struct{}

func (can) Probe(_ context.Context, partition int) error {
	return store.Errorf(store.KindFull, "partition %d", partition)
}

func (can) StartAdds(a *store.Adds, done func(error)) bool {
	a.Each[0].Taken = 7
	done(store.ErrUnknown)
	return true
}

func (can) Snapshot(_ context.Context, w io.Writer) error {
	_, err := io.WriteString(w, "copy")
	return err
}

func (can) Route(partition int) int { return partition / 2 }

func (can) Carry(_ context.Context, _ []*store.Batch, replies []*store.Reply, done func(i int, err error)) {
	for i := range replies {
		done(i, nil)
	}
}

func memory() *memstore.Store { return memstore.New(memstore.Options{Partitions: 4}) }

// everything is a store that has all optional interfaces.
func everything() store.Store {
	return struct {
		*memstore.Store
		can
	}{Store: memory()}
}

// What is wrapped has the interfaces of the store, and no others.
func TestWrapShapes(t *testing.T) {
	f := func(s store.Store, less ...string) {
		t.Helper()
		want := slices.DeleteFunc(has(everything()), func(name string) bool { return slices.Contains(less, name) })
		if got := has(storetest.Wrap(s, new(storetest.Hooks))); !slices.Equal(got, want) || !slices.Equal(has(s), want) {
			t.Errorf("wrapped, %T has %q, want %q", s, got, want)
		}
	}
	prober := struct {
		store.Prober
		*memstore.Store
	}{can{}, memory()}
	copier := struct {
		store.Snapshotter
		*memstore.Store
	}{can{}, memory()}
	f(everything())
	f(storetest.Far(everything()), "Starter", "Adder")
	f(memory(), "Carrier", "Prober", "Snapshotter", "Adder")
	f(storetest.Far(memory()), "Carrier", "Prober", "Snapshotter", "Starter", "Adder")
	f(copier, "Carrier", "Prober", "Adder")
	f(storetest.Far(copier), "Carrier", "Prober", "Starter", "Adder")
	f(storetest.Far(prober), "Carrier", "Snapshotter", "Starter", "Adder")
	f(storetest.Bare(memory()), has(everything())...)
	defer func() {
		if recover() == nil {
			t.Error("a store of which a part would be hidden is wrapped")
		}
	}()
	storetest.Wrap(struct {
		store.Store
		store.Clock
	}{memory(), memory()}, new(storetest.Hooks))
}

// What no law asks for passes too.
func TestWrapForwards(t *testing.T) {
	h := new(storetest.Hooks)
	h.Traits = func(t *store.Traits) { t.Name = "other" }
	s := storetest.Wrap(everything(), h)
	if err := store.Probe(t.Context(), s, 3); err == nil || err.Error() != "quipu: partition 3" {
		t.Errorf("Probe: %v", err)
	}
	var b strings.Builder
	if err := s.(store.Snapshotter).Snapshot(t.Context(), &b); err != nil || b.String() != "copy" {
		t.Errorf("Snapshot: %q, %v", b.String(), err)
	}
	inner := new(storetest.Hooks)
	s = storetest.Wrap(storetest.Wrap(memory(), inner), h)
	v := store.Value{N: 3, Version: 7, Exists: true}
	inner.On(storetest.OnLost, func(c *storetest.Call) error {
		c.Lost = c.Cells[0] == key && c.Version == 8 && c.Values[0] == v
		return nil
	})
	if lost, err := s.(store.Witness).Lost(t.Context(), key, 8, v); err != nil || !lost {
		t.Errorf("Lost: %v, %v", lost, err)
	}
	flushed := 0
	inner.On(storetest.OnFlush, func(c *storetest.Call) error {
		if c.Here {
			flushed++
		}
		return nil
	})
	if s.(store.Starter).Flush(true); flushed != 1 || h.Calls(storetest.OnFlush) != 1 {
		t.Errorf("flushed %d times", flushed)
	}
	if got := s.Traits(); got.Name != "other" || got.Partitions != 4 {
		t.Errorf("Traits: %+v", got)
	}
}

var key = store.Cell{Namespace: "n", Key: "a"}

// in returns a cell of a partition, of 4.
func in(partition int) store.Cell {
	for c := key; ; c.Key += "." {
		if store.PartitionOf(c, 4) == partition {
			return c
		}
	}
}

func to(cells ...store.Cell) (batches []store.Batch) {
	for _, c := range cells {
		batches = append(batches, store.Batch{Partition: store.PartitionOf(c, 4), Deltas: []store.Delta{{Cell: c, Op: store.OpAdd, N: 1}}})
	}
	return batches
}

func apply(ctx context.Context, s store.Store, cells ...store.Cell) error {
	return s.Apply(ctx, to(cells...), make([]store.Reply, len(cells)))
}

func value(t *testing.T, s store.Store, c store.Cell) int64 {
	t.Helper()
	var v [1]store.Value
	if err := s.Read(t.Context(), []store.Cell{c}, v[:]); err != nil {
		t.Fatal(err)
	}
	return v[0].N
}

// start begins a write, and returns what Start reports and what it is told later.
func start(s store.Store) (ok bool, told error) {
	ok = s.(store.Starter).Start(to(key), make([]store.Reply, 1), func(err error) { told = err })
	return ok, told
}

// adds reports what StartAdds does of an add to a cell.
func adds(s store.Store, c store.Cell) bool {
	a := &store.Adds{Namespace: c.Namespace, Keys: []byte(c.Key), Each: []store.Add{{N: 1, Times: 1, Size: uint16(len(c.Key))}}}
	return s.(store.Adder).StartAdds(a, func(error) {})
}

func peek(s store.Store) bool {
	return s.(store.Starter).Peek([]store.Cell{key}, make([]store.Value, 1))
}

// Every method meets its own hooks, in their order, and is counted.
func TestHooksOfEach(t *testing.T) {
	under := everything()
	f := func(op storetest.Op, call func(s store.Store) error) {
		t.Helper()
		h := new(storetest.Hooks)
		s := storetest.Wrap(under, h)
		var met []int
		meet := func(i int) storetest.Hook {
			return func(c *storetest.Call) error {
				met = append(met, i)
				if c.Op != op {
					t.Errorf("op %b, want %b", c.Op, op)
				}
				return c.Pass()
			}
		}
		h.On(op, meet(1), meet(2), storetest.Fail(store.ErrOverflow))
		if err := call(s); err == nil || !slices.Equal(met, []int{1, 2}) || h.Calls(op) != 1 || h.Calls(^op) != 0 {
			t.Errorf("op %b: hooks %v, %v, %d calls and %d others", op, met, err, h.Calls(op), h.Calls(^op))
		}
		h.On(storetest.OnAll|storetest.OnClose, storetest.Fail(store.ErrOverflow))
		h.On(op, storetest.Ignore)
		if err := call(s); err != nil {
			t.Errorf("op %b ignored: %v", op, err)
		}
	}
	failed := func(ok bool) error {
		if ok {
			return nil
		}
		return store.ErrOverflow
	}
	ctx := t.Context()
	f(storetest.OnApply, func(s store.Store) error { return apply(ctx, s, key) })
	f(storetest.OnRead, func(s store.Store) error { return s.Read(ctx, []store.Cell{key}, make([]store.Value, 1)) })
	f(storetest.OnScan, func(s store.Store) error {
		_, err := s.Scan(ctx, store.Range{Namespace: "n"}, 1)
		return err
	})
	f(storetest.OnLookup, func(s store.Store) error {
		_, err := s.Lookup(ctx, key, "t")
		return err
	})
	f(storetest.OnStart, func(s store.Store) error {
		ok, _ := start(s)
		return failed(ok)
	})
	f(storetest.OnAdds, func(s store.Store) error {
		return failed(adds(s, key))
	})
	f(storetest.OnPeek, func(s store.Store) error { return failed(peek(s)) })
	f(storetest.OnProbe, func(s store.Store) error { return store.Probe(ctx, s, 0) })
	f(storetest.OnAudit, func(s store.Store) error {
		_, err := s.(store.Auditor).Audit(ctx)
		return err
	})
	f(storetest.OnSnapshot, func(s store.Store) error { return s.(store.Snapshotter).Snapshot(ctx, io.Discard) })
	f(storetest.OnSize, func(s store.Store) error {
		_, err := s.(store.Sizer).Size(ctx, "n")
		return err
	})
	f(storetest.OnNamespaces, func(s store.Store) error {
		_, err := s.(store.Namespacer).Namespaces(ctx, "", 1)
		return err
	})
	f(storetest.OnLost, func(s store.Store) error {
		_, err := s.(store.Witness).Lost(ctx, key, 1, store.Value{})
		return err
	})
	f(storetest.OnClose, store.Store.Close)
	if value(t, under, key) != 0 {
		t.Error("what a hook kept came through")
	}
}
