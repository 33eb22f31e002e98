package metamorph

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/hot"
	"github.com/quipudb/quipu/internal/spread"
	"github.com/quipudb/quipu/store"
)

// A history of events has one outcome too: under every layout and store, views have
// counted what a plain map has. Each book brings one: windows of a minute, the values of
// a dimension, the ledger. Servers hear of books only when the store refuses a write, and
// windows are dropped while late events come.

const (
	viewMinutes = iota + 1
	viewCountries
	viewLedger
)

const keep = 8 * time.Hour // so that an epoch is an hour

// An occasion is an event, or an assignment.
type occasion struct {
	op      store.Op
	key     string
	n       int64
	want    bool
	at      int64 // ms
	country string
	token   string
	line    string
}

var countries = []string{"", "de", "fr", "pe"}

func drawOccasion(rng *rand.Rand, i int) occasion {
	o := occasion{
		op: store.OpAdd, key: keys[rng.IntN(len(keys))], n: rng.Int64N(20) - 3, want: rng.IntN(6) == 0,
		at: rng.Int64N(4*60) * time.Minute.Milliseconds(), country: countries[rng.IntN(len(countries))], line: fmt.Sprint("line ", i),
	}
	switch rng.IntN(16) {
	case 0:
		o.op = store.OpSet
	case 1:
		o.op, o.n = store.OpDelete, 0
	case 2, 3:
		token := rng.IntN(6) // which names one payload
		o.token, o.key, o.n, o.want = fmt.Sprint("t", token), keys[token%len(keys)], int64(token), true
	}
	return o
}

// A clerk is a server that counts: what it knows may be outdated.
type clerk struct {
	*spread.Store
	book  atomic.Int64
	floor atomic.Int64 // the first epoch of minutes that is kept
}

// A bureau is some clerks over one store.
type bureau struct {
	t         *testing.T
	back      *backing
	namespace string
	clerks    []*clerk
	shards    atomic.Int32 // that each counter is to have
	book      atomic.Int64 // the highest
	floor     atomic.Int64
	sharded   atomic.Int64 // events that a shard has taken

	mu    sync.Mutex // guards the fields below
	plans map[string]*store.Plan
	cells map[string]map[store.Part]int64 // what views have counted, by key
	lines map[string][]string
	once  map[string]bool // tokens that were taken
}

func newBureau(t *testing.T, back *backing) *bureau {
	t.Helper()
	b := &bureau{
		t: t, back: back, namespace: newName(), plans: map[string]*store.Plan{},
		cells: map[string]map[store.Part]int64{}, lines: map[string][]string{}, once: map[string]bool{},
	}
	b.shards.Store(1)
	for _, key := range keys {
		b.cells[key] = map[store.Part]int64{}
	}
	for range 2 {
		s, err := back.use(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c := &clerk{}
		c.Store = spread.New(s, spread.Options{
			Every: time.Millisecond,
			Policy: func(store.Cell) spread.Policy {
				return spread.Policy{Limits: hot.Limits{Shards: int(b.shards.Load()), Max: hot.ShardsMax, CoolDown: time.Hour}}
			},
			Book: func(store.Cell) (int64, *store.Event) {
				id := c.book.Load()
				if id == 0 {
					return 0, nil
				}
				return id, &store.Event{Plan: b.plan(fmt.Sprint("touch ", id), func() []store.Rider { return bases(id) })}
			},
			Renew: func(context.Context, string, int64) error { c.book.Store(b.book.Load()); return nil },
		})
		b.clerks = append(b.clerks, c)
		t.Cleanup(func() {
			if err := c.Close(); err != nil && !errors.Is(err, store.ErrClosed) {
				t.Errorf("close: %v", err)
			}
		})
	}
	return b
}

func (b *bureau) cell(key string) store.Cell { return store.Cell{Namespace: b.namespace, Key: key} }

// bases are the riders of every event under a book: they keep it, and what was before
// each view.
func bases(id int64) []store.Rider {
	riders := []store.Rider{{Part: store.PartFields{Kind: store.PartBook}.Part(), Op: store.OpMax, N: id}}
	for view := int64(1); view <= id; view++ {
		riders = append(riders, store.Rider{
			Part: outside(view), Op: store.OpAdd, Amount: store.AmountWas, When: store.Met{Kind: store.MetBook, N: view},
		})
	}
	return riders
}

func outside(view int64) store.Part {
	return store.PartFields{Kind: store.PartOutside, View: uint16(view)}.Part()
}

func entriesAt(at int64) store.Part {
	return store.PartFields{Kind: store.PartEntries, View: viewLedger, Epoch: store.EpochAt(at, keep)}.Part()
}

// counted returns the parts that an event counts into, by what it applies.
func (o *occasion) counted(id, floor int64) (parts []store.Part) {
	for view := int64(1); view <= id && view < viewLedger; view++ {
		part := outside(view)
		switch epoch := store.EpochAt(o.at, keep); {
		case o.op != store.OpAdd:
		case view == viewMinutes && int64(epoch) >= floor:
			part = store.PartFields{Kind: store.PartWindow, View: viewMinutes, Epoch: epoch, Position: o.at}.Part()
		case view == viewCountries:
			part = store.PartFields{Kind: store.PartDim, View: viewCountries, Name: o.country}.Part()
		}
		parts = append(parts, part)
	}
	if id >= viewLedger && o.op != store.OpAdd {
		parts = append(parts, outside(viewLedger))
	}
	return parts
}

// plan returns one that events share.
func (b *bureau) plan(name string, riders func() []store.Rider) *store.Plan {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.plans[name]; p != nil {
		return p
	}
	p, err := store.NewPlan(riders()...)
	if err != nil {
		panic(err)
	}
	b.plans[name] = p
	return p
}

// frame makes what a clerk sends of an occasion.
func (b *bureau) frame(o *occasion, id, floor int64) store.Batch {
	c := b.cell(o.key)
	d := store.Delta{Cell: c, Op: o.op, N: o.n, Want: o.want, Guard: store.Guard{Token: o.token}, Lot: rand.Uint32()}
	batch := store.Batch{Partition: store.PartitionOf(c, b.clerks[0].Traits().Partitions)}
	if id > 0 {
		batch.Books = []store.Book{{Namespace: b.namespace, ID: id}}
		plan := b.plan(fmt.Sprint(o.op, id, floor, o.at, o.country), func() []store.Rider {
			riders := bases(id)
			for _, part := range o.counted(id, floor) {
				riders = append(riders, store.Rider{Part: part, Op: store.OpAdd, Amount: store.AmountApplied})
			}
			return riders
		})
		d.Event = &store.Event{Plan: plan}
		if id >= viewLedger {
			line := append(binary.AppendUvarint(nil, uint64(len(o.line))), o.line...)
			d.Event.Riders = []store.Rider{{Part: entriesAt(o.at), Op: store.OpPut, Place: store.PlaceVersion, Bytes: line}}
		}
	}
	batch.Deltas = []store.Delta{d}
	return batch
}

// count has a clerk take an occasion, as its definitions have it, and notes what that is
// in the map.
func (b *bureau) count(ctx context.Context, c *clerk, o *occasion) (store.Result, error) {
	for range 20 {
		id, floor := c.book.Load(), c.floor.Load()
		replies := make([]store.Reply, 1)
		err := c.Apply(ctx, []store.Batch{b.frame(o, id, floor)}, replies)
		if err == nil {
			err = replies[0].Err
		}
		if err != nil {
			switch store.KindOf(err) {
			case store.KindOutdated:
				c.book.Store(b.book.Load())
				continue
			case store.KindLate:
				c.floor.Store(b.floor.Load())
				continue
			default:
				return store.Result{}, err
			}
		}
		r := replies[0].Results[0]
		if r.Outcome != store.Applied {
			return r, r.Outcome.Err()
		}
		if b.note(o, id, floor); id > 0 && r.Shard > 0 {
			b.sharded.Add(1)
		}
		return r, nil
	}
	return store.Result{}, errors.New("outdated or late for ever")
}

// note counts an occasion into the map.
func (b *bureau) note(o *occasion, id, floor int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if o.token != "" {
		if b.once[o.token] {
			return
		}
		b.once[o.token] = true
	}
	for _, part := range o.counted(id, floor) {
		if part.Kind() != store.PartOutside {
			b.cells[o.key][part] += o.n
		}
	}
	if id >= viewLedger {
		b.lines[o.key] = append(b.lines[o.key], o.line)
	}
}

// raise raises books or floors in all partitions. Between them do is called.
func (b *bureau) raise(ctx context.Context, batch store.Batch, do func() error) error {
	for i := range b.clerks[0].Traits().Partitions {
		batch.Partition = i
		replies := make([]store.Reply, 1)
		if err := b.clerks[0].Apply(ctx, []store.Batch{batch}, replies); err != nil || replies[0].Err != nil {
			return errors.Join(err, replies[0].Err)
		}
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

func (b *bureau) publish(ctx context.Context, do func() error) error {
	return b.raise(ctx, store.Batch{Books: []store.Book{{Namespace: b.namespace, ID: b.book.Add(1)}}}, do)
}

// drop drops the oldest hour of minutes.
func (b *bureau) drop(ctx context.Context, do func() error) error {
	floor := store.Epoch(b.floor.Add(1))
	return b.raise(ctx, store.Batch{Floors: []store.Floor{{Namespace: b.namespace, Kind: store.PartWindow, View: viewMinutes, Epoch: floor}}}, do)
}

// happens has something happen that changes no answer.
func (b *bureau) happens(ctx context.Context, rng *rand.Rand) error {
	c := b.clerks[rng.IntN(len(b.clerks))]
	switch rng.IntN(8) {
	case 0:
		b.shards.Store(int32(2 + rng.IntN(6)))
		pause(ctx, 4*time.Millisecond) // so that it is so
	case 1:
		return c.Fold(ctx, b.cell(keys[rng.IntN(len(keys))]))
	case 2:
		pause(ctx, 2*time.Millisecond)
	}
	return nil
}

// settle brings all cells up to the last book, and compares them with the map.
func (b *bureau) settle(ctx context.Context, totals map[string]int64) error {
	b.shards.Store(1)
	for _, key := range keys {
		c := b.clerks[0]
		if err := c.Fold(ctx, b.cell(key)); err != nil {
			return err
		}
		if _, err := b.count(ctx, c, &occasion{op: store.OpAdd, key: key, at: 3 * time.Hour.Milliseconds(), line: "last"}); err != nil {
			return err
		}
		var v [1]store.Value
		if err := c.Read(ctx, []store.Cell{b.cell(key)}, v[:]); err != nil || v[0].N != totals[key] {
			return fmt.Errorf("%s is %+v, %w, want %d", key, v[0], err, totals[key])
		}
		if err := b.compare(ctx, key, v[0].N); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return nil
}

// compare compares the parts of a counter, of all its shards together, with the map, and
// checks that each view and what is outside of it add up to the total.
func (b *bureau) compare(ctx context.Context, key string, total int64) error {
	home := b.cell(key)
	width, err := b.sum(ctx, []store.Cell{home}, store.PartFields{Kind: store.PartWidth}.Part())
	if err != nil {
		return err
	}
	var shards []store.Cell
	for i := range int(width) + 1 {
		shards = append(shards, store.ShardCell(home, i))
	}
	var views [viewLedger]int64
	for part, want := range b.cells[key] {
		floor, kept := part.FloorOf()
		if kept && int64(floor.Epoch) < b.floor.Load() {
			want, views[viewMinutes] = 0, views[viewMinutes]+want // It is gone, and was counted.
		}
		got, err := b.sum(ctx, shards, part)
		if err != nil || got != want {
			return fmt.Errorf("part %x is %d, %w, want %d", part, got, err, want)
		}
		f, _ := part.Fields()
		views[f.View] += got
	}
	for view := int64(1); view < viewLedger && view <= b.book.Load(); view++ {
		if got, err := b.sum(ctx, shards, outside(view)); err != nil || got+views[view] != total {
			return fmt.Errorf("outside of view %d are %d, %w, in it %d, and the total is %d", view, got, err, views[view], total)
		}
	}
	var lines []string
	for _, c := range shards {
		more, err := b.linesOf(ctx, c)
		if err != nil {
			return err
		}
		lines = append(lines, more...)
	}
	want := slices.Clone(b.lines[key])
	slices.Sort(want)
	if slices.Sort(lines); !slices.Equal(lines, want) {
		return fmt.Errorf("the ledger has %q, want %q", lines, want)
	}
	return nil
}

func (b *bureau) sum(ctx context.Context, cells []store.Cell, part store.Part) (n int64, err error) {
	all, got := make([]store.PartCell, len(cells)), make([]store.Content, len(cells))
	for i, c := range cells {
		all[i] = store.PartCell{Cell: c, Part: part}
	}
	err = b.clerks[1].ReadParts(ctx, all, got)
	for i := range got {
		n += got[i].N
	}
	return n, err
}

func (b *bureau) linesOf(ctx context.Context, c store.Cell) (lines []string, err error) {
	for at := int64(0); at < 4*time.Hour.Milliseconds(); at += time.Hour.Milliseconds() {
		from, _ := entriesAt(at).Fields()
		to := from
		to.Position = 1<<63 - 1
		found, err := b.clerks[1].ScanParts(ctx, store.RowsOf(c, from, to), store.ScanMax)
		if err != nil {
			return nil, err
		}
		for _, e := range found {
			_, text, ok := store.CutStamp(e.Content.Bytes)
			for rest := []byte(text); len(rest) > 0 && ok; {
				size, n := binary.Uvarint(rest)
				if n <= 0 || int(size) > len(rest)-n {
					return nil, fmt.Errorf("an entry is %q", e.Content.Bytes)
				}
				lines, rest = append(lines, string(rest[n:n+int(size)])), rest[n+int(size):]
			}
		}
	}
	return lines, nil
}

// inTurn runs a history step by step.
func (b *bureau) inTurn(ctx context.Context, rng *rand.Rand, steps int) error {
	totals, taken := map[string]int64{}, map[string]store.Result{}
	i := 0
	one := func() error {
		i++
		o := drawOccasion(rng, i)
		if err := b.happens(ctx, rng); err != nil {
			return fmt.Errorf("before step %d: %w", i, err)
		}
		r, err := b.count(ctx, b.clerks[rng.IntN(len(b.clerks))], &o)
		if err != nil {
			return fmt.Errorf("step %d, %+v: %w", i, o, err)
		}
		if first, known := taken[o.token]; known && o.token != "" {
			if !r.Replayed || r.After != first.After {
				return fmt.Errorf("step %d, %+v: %+v, want %+v again", i, o, r, first)
			}
			return nil
		}
		before := totals[o.key]
		if totals[o.key] = o.n; o.op == store.OpAdd {
			totals[o.key] += before
		}
		if o.want && (r.Before != before || r.After != totals[o.key]) {
			return fmt.Errorf("step %d, %+v: %+v, and it went from %d to %d", i, o, r, before, totals[o.key])
		}
		if o.token != "" {
			taken[o.token] = r
		}
		return nil
	}
	for i < steps {
		do := one
		switch n := rng.IntN(steps); {
		case n < 4 && b.book.Load() < viewLedger:
			do = func() error { return b.publish(ctx, one) }
		case n < 6 && b.floor.Load() < 3:
			do = func() error { return b.drop(ctx, one) }
		}
		if err := do(); err != nil {
			return err
		}
	}
	return b.settle(ctx, totals)
}

// atOnce has clerks take adds side by side, while books and floors rise.
func (b *bureau) atOnce(ctx context.Context, rng *rand.Rand, each int) error {
	const callers = 6
	totals := make([]map[string]int64, callers)
	errs := make([]error, callers)
	var wg sync.WaitGroup
	for i := range callers {
		mine := rand.New(rand.NewPCG(rng.Uint64(), 0))
		wg.Go(func() {
			totals[i] = map[string]int64{}
			for j := range each {
				o := drawOccasion(mine, i*each+j)
				o.op, o.token, o.n = store.OpAdd, "", max(o.n, 1)
				errs[i] = errors.Join(errs[i], b.happens(ctx, mine))
				if _, err := b.count(ctx, b.clerks[i%len(b.clerks)], &o); err != nil {
					errs[i] = fmt.Errorf("%+v: %w", o, err)
					return
				}
				totals[i][o.key] += o.n
			}
		})
	}
	nothing := func() error { pause(ctx, time.Millisecond); return nil }
	var raised error
	for range viewLedger {
		raised = errors.Join(raised, b.publish(ctx, nothing), b.drop(ctx, nothing))
	}
	wg.Wait()
	if err := errors.Join(raised, errors.Join(errs...)); err != nil {
		return err
	}
	all := map[string]int64{}
	for _, some := range totals {
		for key := range maps.Keys(some) {
			all[key] += some[key]
		}
	}
	return b.settle(ctx, all)
}

// views runs histories of events over a store.
func views(t *testing.T, steps int, back func(t *testing.T, rng *rand.Rand) *backing) {
	rng := chance(t)
	sharded := int64(0)
	for n := 0; n < max(1, *runs) || sharded == 0 && n < 20; n++ { // some have no split in them
		for i, run := range []func(*bureau) error{
			func(b *bureau) error { return b.inTurn(t.Context(), rng, steps) },
			func(b *bureau) error { return b.atOnce(t.Context(), rng, steps/2) },
		} {
			b := newBureau(t, back(t, rng))
			if err := run(b); err != nil {
				t.Fatalf("%s, %s: %v", b.back.name, []string{"in turn", "at once"}[i], err)
			}
			sharded += b.sharded.Load()
		}
	}
	if sharded == 0 {
		t.Error("no shard has taken an event")
	}
}

func TestViewsInMemory(t *testing.T) {
	for _, partitions := range []int{1, 8} {
		t.Run(fmt.Sprint(partitions), func(t *testing.T) {
			views(t, 300, func(*testing.T, *rand.Rand) *backing { return inMemory(partitions) })
		})
	}
}

func TestViewsEmbedded(t *testing.T) { views(t, 200, embedded) }

func TestViewsPostgres(t *testing.T) {
	views(t, 100, func(t *testing.T, _ *rand.Rand) *backing { return overPostgres(t) })
}

func TestViewsRedis(t *testing.T) {
	views(t, 100, func(t *testing.T, _ *rand.Rand) *backing { return overRedis(t) })
}

func TestViewsCluster(t *testing.T) {
	views(t, 100, func(t *testing.T, _ *rand.Rand) *backing { return overCluster(t) })
}
