package storetest_test

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

// optional are the optional interfaces of a store that Wrap forwards.
var optional = []reflect.Type{
	reflect.TypeFor[store.Adder](), reflect.TypeFor[store.Auditor](), reflect.TypeFor[store.Clock](), reflect.TypeFor[store.Meter](),
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
	f(memory(), "Prober", "Snapshotter", "Adder")
	f(storetest.Far(memory()), "Prober", "Snapshotter", "Starter", "Adder")
	f(copier, "Prober", "Adder")
	f(storetest.Far(copier), "Prober", "Starter", "Adder")
	f(storetest.Far(prober), "Snapshotter", "Starter", "Adder")
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
		return failed(s.(store.Adder).StartAdds(&store.Adds{Each: make([]store.Add, 1)}, func(error) {}))
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

// The hooks that are ready do what they say to writes, however they come.
func TestReadyHooks(t *testing.T) {
	h := new(storetest.Hooks)
	s := storetest.Wrap(memory(), h)
	f := func(hook storetest.Hook, want error, starts bool, told error, n int64) {
		t.Helper()
		was := value(t, s, key)
		h.On(storetest.OnWrite, hook)
		if err := apply(t.Context(), s, key); !errors.Is(err, want) {
			t.Errorf("Apply: %v, want %v", err, want)
		}
		if ok, err := start(s); ok != starts || !errors.Is(err, told) {
			t.Errorf("Start: %v, %v; want %v, %v", ok, err, starts, told)
		}
		if got := value(t, s, key) - was; got != n {
			t.Errorf("%d were counted, want %d", got, n)
		}
	}
	closed := make(chan struct{})
	close(closed)
	f(storetest.Fail(store.ErrFull), store.ErrFull, false, nil, 0)
	f(storetest.Lose(store.ErrUnknown), store.ErrUnknown, true, store.ErrUnknown, 2)
	f(storetest.Wait(closed), nil, true, nil, 2)
	f(storetest.Hold(make(chan struct{}), closed), nil, true, nil, 2)
	f(storetest.Hang(closed, store.KindUnknown), nil, true, nil, 2)
	f(storetest.Delay(time.Microsecond, store.KindUnknown), nil, false, nil, 1)
	f(storetest.Nth(0, 1, storetest.Fail(store.ErrFull)), store.ErrFull, true, nil, 1)
	f(storetest.Nth(1, 2, storetest.Fail(store.ErrFull)), nil, false, nil, 1)
	f(storetest.If(func(c *storetest.Call) bool { return c.Op == storetest.OnStart }, storetest.Fail(store.ErrFull)), nil, false, nil, 1)

	// A call that failed by itself is not said to be lost.
	h.On(storetest.OnWrite, storetest.Lose(store.ErrUnknown), storetest.Fail(store.ErrFull))
	if err := apply(t.Context(), s, key); !errors.Is(err, store.ErrFull) {
		t.Errorf("a call that failed: %v", err)
	}
	h.On(storetest.OnGet, storetest.Hang(nil, store.KindOther))
	if peek(s) {
		t.Error("Peek does not hang")
	}
}

// What hangs ends with its context, by the error that was named, or waits for ever.
func TestHooksThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := new(storetest.Hooks)
		s := storetest.Wrap(memory(), h)
		f := func(hook storetest.Hook, want error, after time.Duration) {
			t.Helper()
			h.On(storetest.OnApply, hook)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now()
			if err := apply(ctx, s, key); !errors.Is(err, want) || time.Since(began) != after {
				t.Errorf("%v after %v, want %v after %v", err, time.Since(began), want, after)
			}
		}
		later := func(d time.Duration) <-chan struct{} {
			c := make(chan struct{})
			time.AfterFunc(d, func() { close(c) })
			return c
		}
		f(storetest.Hang(nil, store.KindOther), context.DeadlineExceeded, time.Second)
		f(storetest.Hang(nil, store.KindUnknown), store.ErrUnknown, time.Second)
		f(storetest.Hang(later(time.Millisecond), store.KindUnknown), nil, time.Millisecond)
		f(storetest.Delay(time.Millisecond, store.KindUnknown), nil, time.Millisecond)
		f(storetest.Delay(time.Minute, store.KindUnavailable), store.ErrUnavailable, time.Second)
		f(storetest.Wait(later(time.Minute)), context.DeadlineExceeded, time.Minute) // as the store says then

		entered, release := make(chan struct{}), make(chan struct{})
		h.On(storetest.OnApply, storetest.Hold(entered, release))
		var first atomic.Bool
		go func() {
			_ = apply(t.Context(), s, key)
			first.Store(true)
		}()
		<-entered
		if err := apply(t.Context(), s, key); err != nil || first.Load() {
			t.Errorf("the second passes before the first: %v", err)
		}
		close(release)
		if synctest.Wait(); !first.Load() {
			t.Error("the first is held for ever")
		}
	})
}

// A partition that is cut off fails alone, however it is asked.
func TestCut(t *testing.T) {
	h := new(storetest.Hooks)
	s := storetest.Wrap(everything(), h)
	h.On(storetest.OnAll, storetest.Cut(2, store.ErrUnavailable))
	replies := make([]store.Reply, 2)
	if err := s.Apply(t.Context(), to(in(1), in(2)), replies); err != nil || replies[0].Err != nil || !errors.Is(replies[1].Err, store.ErrUnavailable) {
		t.Errorf("Apply: %v, %+v", err, replies)
	}
	if got := value(t, s, in(1)); got != 1 {
		t.Errorf("beside it, %d", got)
	}
	f := func(want error, err error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	f(store.ErrUnavailable, apply(t.Context(), s, in(2)))
	f(nil, apply(t.Context(), s, in(3)))
	f(store.ErrUnavailable, s.Read(t.Context(), []store.Cell{in(1), in(2)}, make([]store.Value, 2)))
	f(store.ErrUnavailable, store.Probe(t.Context(), s, 2))
	f(store.ErrFull, store.Probe(t.Context(), s, 1))
}

// Partitions that are read apart are each read once, and all values arrive.
func TestApart(t *testing.T) {
	h := new(storetest.Hooks)
	s := storetest.Wrap(memory(), h)
	var cells []store.Cell
	for i := range 8 {
		c := in(i % 4)
		c.Namespace = string(rune('a' + i))
		for range i {
			if err := apply(t.Context(), s, c); err != nil {
				t.Fatal(err)
			}
		}
		cells = append(cells, c)
	}
	var reads atomic.Int64
	h.On(storetest.OnRead, storetest.Apart, func(c *storetest.Call) error {
		reads.Add(1)
		for _, cell := range c.Cells {
			if !c.In(store.PartitionOf(cell, 4)) || store.PartitionOf(cell, 4) != store.PartitionOf(c.Cells[0], 4) {
				t.Errorf("%v are read together", c.Cells)
			}
		}
		return c.Pass()
	})
	values := make([]store.Value, len(cells))
	if err := s.Read(t.Context(), cells, values); err != nil {
		t.Fatal(err)
	}
	for i, v := range values {
		if v.N != int64(i) {
			t.Errorf("cell %d holds %d", i, v.N)
		}
	}
	if got := reads.Load(); got > 4 || got < 2 {
		t.Errorf("%d reads", got)
	}
}

// A record is as the batches were, whatever their owner makes of them.
func TestRecord(t *testing.T) {
	var r storetest.Record
	h := new(storetest.Hooks)
	s := storetest.Wrap(memory(), h)
	h.On(storetest.OnApply, r.Hook)
	batches := to(key)
	batches[0].Deltas[0].Guard.Bound = &store.Bound{High: 9}
	if err := s.Apply(t.Context(), batches, make([]store.Reply, 1)); err != nil {
		t.Fatal(err)
	}
	batches[0].Deltas[0].Guard.Bound.High, batches[0].Deltas[0].N = 0, 0
	if got := r.Batches(); len(got) != 1 || got[0].Deltas[0].N != 1 || got[0].Deltas[0].Guard.Bound.High != 9 {
		t.Errorf("%+v", got)
	}
	other := store.Cell{Namespace: "n", Key: "other"}
	f := func(c storetest.Call, touches bool) {
		t.Helper()
		if c.Touches(func(c store.Cell) bool { return c == key }) != touches {
			t.Errorf("%+v: touches it is not %v", c, touches)
		}
	}
	f(storetest.Call{Batches: to(other, key)}, true)
	f(storetest.Call{Batches: to(other)}, false)
	f(storetest.Call{Cells: []store.Cell{other, key}}, true)
	f(storetest.Call{}, false)
}
