package storetest

import (
	"context"
	"io"
	"math/bits"
	"slices"
	"sync"

	"github.com/quipudb/quipu/store"
)

// An Op is a method of a store, or several.
type Op uint32

// The methods that hooks can stand before.
const (
	OnApply Op = 1 << iota
	OnRead
	OnScan
	OnLookup
	OnClose
	OnStart
	OnPeek
	OnProbe
	OnAudit
	OnSnapshot
	OnSize
	OnNamespaces
	OnLost
	OnAdds
	OnFlush
	OnReadParts
	OnScanParts

	ops = iota

	OnWrite = OnApply | OnStart | OnAdds     // however a write comes
	OnGet   = OnRead | OnPeek                // and a read of cells
	OnAll   = 1<<ops - 1 - OnClose - OnFlush // and all that can fail, while the store is open
)

// A Hook stands between the callers of a store and the store. It calls Pass to let
// the call pass, once or several times, and returns what the caller is told. The
// package has some that are ready: Fail, Lose, Hang, Wait, Delay, Cut, and more.
//
// A method that returns no error but a bool (Start, StartAdds, Peek) reports false if the hook
// returns an error. The caller then turns to Apply or Read, and meets their hooks.
type Hook func(c *Call) error

// A Call is a call of a wrapped store. A hook may change what is asked before it
// lets the call pass, and what is answered after.
type Call struct {
	Op  Op              // one method
	Ctx context.Context // of Start, StartAdds and Peek, one that never ends

	// The questions.
	Batches   []store.Batch    // Apply, Start
	Adds      *store.Adds      // StartAdds, which writes its answer there too
	Done      func(error)      // Start, StartAdds
	Cells     []store.Cell     // Read, Peek; one for Lookup and Lost
	Token     string           // Lookup
	Version   uint64           // Lost
	Partition int              // Probe
	Range     store.Range      // Scan; for Size, its namespace, and for Namespaces, what they come after
	N         int              // Scan, Namespaces
	Here      bool             // Flush
	To        io.Writer        // Snapshot
	Parts     []store.PartCell // ReadParts
	Rows      store.Rows       // ScanParts, with N

	// The answers.
	Replies  []store.Reply     // Apply, Start
	Values   []store.Value     // Read, Peek; for Lost, what was read
	Entries  []store.Entry     // Scan
	Names    []string          // Namespaces
	Fate     store.Fate        // Lookup
	Audit    store.Audit       // Audit
	Size     int64             // Size
	Lost     bool              // Lost
	Contents []store.Content   // ReadParts
	Found    []store.PartEntry // ScanParts

	parts int                 // partitions of the store
	hooks []Hook              // those that are still to come
	do    func(c *Call) error // the store
}

// Pass lets the call pass to the next hook, or to the store.
func (c *Call) Pass() error {
	if len(c.hooks) == 0 {
		return c.do(c)
	}
	hooks := c.hooks
	defer func() { c.hooks = hooks }()
	c.hooks = hooks[1:]
	return hooks[0](c)
}

// Touches reports whether the call writes or reads a cell that matches.
func (c *Call) Touches(match func(store.Cell) bool) bool {
	return slices.ContainsFunc(c.Cells, match) || c.adds(match) || slices.ContainsFunc(c.Batches, func(b store.Batch) bool {
		return slices.ContainsFunc(b.Deltas, func(d store.Delta) bool { return match(d.Cell) })
	})
}

// adds reports whether the call is of plain adds, and one of them is to a cell that
// matches.
func (c *Call) adds(match func(store.Cell) bool) bool {
	return c.Adds != nil && slices.ContainsFunc(c.Adds.Each, func(a store.Add) bool {
		return match(store.Cell{Namespace: c.Adds.Namespace, Key: string(c.Adds.KeyOf(&a))})
	})
}

// In reports whether the call concerns a partition.
func (c *Call) In(partition int) bool {
	has := func(cell store.Cell) bool { return store.PartitionOf(cell, c.parts) == partition }
	return c.Op == OnProbe && c.Partition == partition || slices.ContainsFunc(c.Cells, has) || c.adds(has) ||
		slices.ContainsFunc(c.Batches, func(b store.Batch) bool { return b.Partition == partition })
}

// Hooks are what stands before the methods of a store, and how often each was
// called. The zero Hooks let everything pass. They may be changed at any time.
type Hooks struct {
	// Traits, if not nil, changes what the store says of itself. It is set before
	// the store is used.
	Traits func(*store.Traits)

	mu    sync.Mutex // guards the fields below
	on    [ops][]Hook
	calls [ops]int
}

// On puts hooks before some methods, the first one outermost, in place of those
// that were there. Without hooks calls pass.
func (h *Hooks) On(some Op, hooks ...Hook) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.on {
		if some&(1<<i) != 0 {
			h.on[i] = hooks
		}
	}
}

// Calls returns how often some methods were called so far.
func (h *Hooks) Calls(some Op) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, calls := range h.calls {
		if some&(1<<i) != 0 {
			n += calls
		}
	}
	return n
}

// enter counts a call of one method, and returns its hooks.
func (h *Hooks) enter(op Op) []Hook {
	i := bits.TrailingZeros32(uint32(op))
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls[i]++
	return h.on[i]
}

// Wrap returns a store with hooks before its methods. It has the optional
// interfaces that the store has, and no others: see Far and Bare.
func Wrap(s store.Store, h *Hooks) store.Store {
	return shape(&wrapper{s, h}, shapeOf(s))
}

// Far returns the store as one that is not in this process: it is no Starter, and no
// Adder.
func Far(s store.Store) store.Store {
	return shape(&wrapper{s, new(Hooks)}, shapeOf(s)&^(isStarter|isAdder))
}

// Bare returns the store without its optional interfaces.
func Bare(s store.Store) store.Store { return struct{ store.Store }{s} }

// errWaits is what Pass returns of a Start or Peek that reported false.
var errWaits = store.Errorf(store.KindUnavailable, "it would have to wait")

// A wrapper is a store before which hooks stand.
type wrapper struct {
	under store.Store
	hooks *Hooks
}

// call sends a call through the hooks to the store.
func (w *wrapper) call(c *Call, do func(c *Call) error) error {
	c.hooks, c.do, c.parts = w.hooks.enter(c.Op), do, w.under.Traits().Partitions
	return c.Pass()
}

func (w *wrapper) Apply(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
	return w.call(&Call{Op: OnApply, Ctx: ctx, Batches: batches, Replies: replies}, func(c *Call) error {
		return w.under.Apply(c.Ctx, c.Batches, c.Replies)
	})
}

func (w *wrapper) Read(ctx context.Context, cells []store.Cell, values []store.Value) error {
	return w.call(&Call{Op: OnRead, Ctx: ctx, Cells: cells, Values: values}, func(c *Call) error {
		return w.under.Read(c.Ctx, c.Cells, c.Values)
	})
}

func (w *wrapper) Scan(ctx context.Context, r store.Range, n int) ([]store.Entry, error) {
	c := Call{Op: OnScan, Ctx: ctx, Range: r, N: n}
	err := w.call(&c, func(c *Call) (err error) {
		c.Entries, err = w.under.Scan(c.Ctx, c.Range, c.N)
		return err
	})
	return c.Entries, err
}

func (w *wrapper) Lookup(ctx context.Context, cell store.Cell, token string) (store.Fate, error) {
	c := Call{Op: OnLookup, Ctx: ctx, Cells: []store.Cell{cell}, Token: token}
	err := w.call(&c, func(c *Call) (err error) {
		c.Fate, err = w.under.Lookup(c.Ctx, c.Cells[0], c.Token)
		return err
	})
	return c.Fate, err
}

func (w *wrapper) Traits() store.Traits {
	t := w.under.Traits()
	if w.hooks.Traits != nil {
		w.hooks.Traits(&t)
	}
	return t
}

func (w *wrapper) Close() error {
	return w.call(&Call{Op: OnClose, Ctx: context.Background()}, func(*Call) error { return w.under.Close() })
}

// carrying carries each batch by a call of Apply, so that its hooks see them all.
type carrying struct{ w *wrapper }

func (c carrying) Route(partition int) int { return c.w.under.(store.Carrier).Route(partition) }

func (c carrying) Carry(ctx context.Context, batches []*store.Batch, replies []*store.Reply, done func(i int, err error)) {
	Carry(ctx, c.w, batches, replies, done)
}

// Carry carries batches by calls of Apply, side by side.
func Carry(ctx context.Context, s store.Store, batches []*store.Batch, replies []*store.Reply, done func(i int, err error)) {
	var wg sync.WaitGroup
	for i := range batches {
		wg.Go(func() {
			told := []store.Reply{*replies[i]}
			err := s.Apply(ctx, []store.Batch{*batches[i]}, told)
			*replies[i] = told[0]
			done(i, err)
		})
	}
	wg.Wait()
}

// A Keeper is a store with all that every real one can do.
type Keeper interface {
	store.Store
	store.Auditor
	store.Clock
	store.Meter
	store.Namespacer
	store.Sizer
	store.Witness
}

type keeping struct{ *wrapper }

func (w keeping) Audit(ctx context.Context) (store.Audit, error) {
	c := Call{Op: OnAudit, Ctx: ctx}
	err := w.call(&c, func(c *Call) (err error) {
		c.Audit, err = w.under.(Keeper).Audit(c.Ctx)
		return err
	})
	return c.Audit, err
}

func (w keeping) NowMS(c store.Cell) int64 { return w.under.(Keeper).NowMS(c) }

func (w keeping) Meters(f func(name, help string, value float64)) { w.under.(Keeper).Meters(f) }

func (w keeping) Namespaces(ctx context.Context, after string, n int) ([]string, error) {
	c := Call{Op: OnNamespaces, Ctx: ctx, Range: store.Range{After: after}, N: n}
	err := w.call(&c, func(c *Call) (err error) {
		c.Names, err = w.under.(Keeper).Namespaces(c.Ctx, c.Range.After, c.N)
		return err
	})
	return c.Names, err
}

func (w keeping) Size(ctx context.Context, namespace string) (int64, error) {
	c := Call{Op: OnSize, Ctx: ctx, Range: store.Range{Namespace: namespace}}
	err := w.call(&c, func(c *Call) (err error) {
		c.Size, err = w.under.(Keeper).Size(c.Ctx, c.Range.Namespace)
		return err
	})
	return c.Size, err
}

func (w keeping) Lost(ctx context.Context, cell store.Cell, version uint64, v store.Value) (bool, error) {
	c := Call{Op: OnLost, Ctx: ctx, Cells: []store.Cell{cell}, Version: version, Values: []store.Value{v}}
	err := w.call(&c, func(c *Call) (err error) {
		c.Lost, err = w.under.(Keeper).Lost(c.Ctx, c.Cells[0], c.Version, c.Values[0])
		return err
	})
	return c.Lost, err
}

type starting struct{ w *wrapper }

func (s starting) Start(batches []store.Batch, replies []store.Reply, done func(error)) bool {
	c := Call{Op: OnStart, Ctx: context.Background(), Batches: batches, Replies: replies, Done: done}
	return s.w.call(&c, func(c *Call) error {
		if !s.w.under.(store.Starter).Start(c.Batches, c.Replies, c.Done) {
			return errWaits
		}
		return nil
	}) == nil
}

func (s starting) Flush(here bool) {
	_ = s.w.call(&Call{Op: OnFlush, Ctx: context.Background(), Here: here}, func(c *Call) error {
		s.w.under.(store.Starter).Flush(c.Here)
		return nil
	})
}

func (s starting) Peek(cells []store.Cell, values []store.Value) bool {
	c := Call{Op: OnPeek, Ctx: context.Background(), Cells: cells, Values: values}
	return s.w.call(&c, func(c *Call) error {
		if !s.w.under.(store.Starter).Peek(c.Cells, c.Values) {
			return errWaits
		}
		return nil
	}) == nil
}

type adding struct{ starting }

func (a adding) StartAdds(adds *store.Adds, done func(error)) bool {
	c := Call{Op: OnAdds, Ctx: context.Background(), Adds: adds, Done: done}
	return a.w.call(&c, func(c *Call) error {
		if !a.w.under.(store.Adder).StartAdds(c.Adds, c.Done) {
			return errWaits
		}
		return nil
	}) == nil
}

type probing struct{ w *wrapper }

func (p probing) Probe(ctx context.Context, partition int) error {
	return p.w.call(&Call{Op: OnProbe, Ctx: ctx, Partition: partition}, func(c *Call) error {
		return p.w.under.(store.Prober).Probe(c.Ctx, c.Partition)
	})
}

type copying struct{ w *wrapper }

func (s copying) Snapshot(ctx context.Context, to io.Writer) error {
	return s.w.call(&Call{Op: OnSnapshot, Ctx: ctx, To: to}, func(c *Call) error {
		return s.w.under.(store.Snapshotter).Snapshot(c.Ctx, c.To)
	})
}

func (w *wrapper) ReadParts(ctx context.Context, parts []store.PartCell, contents []store.Content) error {
	return w.call(&Call{Op: OnReadParts, Ctx: ctx, Parts: parts, Contents: contents}, func(c *Call) error {
		return w.under.ReadParts(c.Ctx, c.Parts, c.Contents)
	})
}

func (w *wrapper) ScanParts(ctx context.Context, r store.Rows, n int) ([]store.PartEntry, error) {
	c := Call{Op: OnScanParts, Ctx: ctx, Rows: r, N: n}
	err := w.call(&c, func(c *Call) (err error) {
		c.Found, err = w.under.ScanParts(c.Ctx, c.Rows, c.N)
		return err
	})
	return c.Found, err
}
