package spread

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/quipudb/quipu/internal/hot"
	"github.com/quipudb/quipu/store"
)

// The users of a counter with choices may be laid over a fixed number of shards, its seats:
// a user is always in the one that the name says. Then the store decides reactions of
// different users in different partitions. Home has no users and no count; its word names
// the number, is put there once, and never changes. So home refuses, as split, all that is
// sent there by servers that know nothing of it.
//
// The generation of members says which of them count. Reset and delete raise it at home
// first, which decides them, and then in one seat after the other; a seat takes its step
// once. Whoever finds a seat behind, a reader or a writer, does the rest before anything
// else. A server reacts under a generation only once it has seen all seats at it, or has
// raised them: so no reaction that was made after another one that stays is taken away. The part at
// position 1 is how many of the raises were deletes: a seat that is deleted is gone, and one
// that is reset is 0.

// firstSeat is the number of the shard that is the first seat.
const firstSeat = store.SplitMax + 1

// Members are what a server knows of the users of a counter, by the definitions.
type Members struct {
	Shards int          // over how many shards they are laid if there is none yet
	May    bool         // they may be laid over several
	Assign *store.Event // what sets the counter or deletes it
}

// seatsMax is of how many counters it is remembered: some 10 MB.
const seatsMax = 1 << 16

// seats is what is known of counters that have seats. Their number never changes, so what
// is known is right. It is safe for concurrent use; the zero value knows nothing.
type seats struct {
	some atomic.Bool // a counter has several

	mu  sync.RWMutex
	all map[store.Cell]int // 1: it had users, or was there, without any
}

// get returns how many seats a counter has; 0 if that is not known.
func (s *seats) get(c store.Cell) int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.all[c]
}

// several returns how many seats a counter is known to have, 0 if it has none.
func (s *seats) several(c store.Cell) int {
	if !s.some.Load() {
		return 0
	}
	if n := s.get(c); n > 1 {
		return n
	}
	return 0
}

// learn takes note of the word of a home, and reports whether it names seats.
func (s *seats) learn(c store.Cell, word hot.Word) bool {
	n := word.Seated()
	if n == 0 {
		return false
	}
	s.put(c, n)
	s.some.Store(true)
	return true
}

func (s *seats) put(c store.Cell, n int) {
	if s.get(c) == n {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil || len(s.all) >= seatsMax {
		s.all = make(map[store.Cell]int)
	}
	s.all[c] = n
}

// seatCells returns the seats of a counter.
func seatCells(c store.Cell, n int) []store.Cell {
	cells := make([]store.Cell, n)
	for i := range cells {
		cells[i] = store.ShardCell(c, firstSeat+i)
	}
	return cells
}

// seat returns the number of the shard that decides a reaction; 0 if it is none, or its
// counter is not known to have seats.
func (m *core) seat(d *store.Delta) int {
	if d.Event == nil || d.Event.Part.Kind() != store.PartMember {
		return 0
	}
	n := m.seats.several(d.Cell)
	if n == 0 {
		return 0
	}
	f, _ := d.Event.Part.Fields()
	return firstSeat + hot.Seat(f.Name, n)
}

// members returns what the definitions say of the users of a counter.
func (s *Store) members(c store.Cell) Members {
	if s.options.Members == nil {
		return Members{}
	}
	return s.options.Members(c)
}

// Seats returns the cells that have the users of a counter: its own, if it has no others.
// It asks the store if the definitions allow for others, and this server does not know.
func (s *Store) Seats(ctx context.Context, c store.Cell) ([]store.Cell, error) {
	if n := s.seats.several(c); n > 0 {
		return seatCells(c, n), nil
	}
	if !s.members(c).May {
		return []store.Cell{c}, nil
	}
	var home [1]store.Value
	if err := s.under.Read(ctx, []store.Cell{c}, home[:]); err != nil {
		return nil, err
	}
	if word := hot.Of(home[0]); s.seats.learn(c, word) {
		return seatCells(c, word.Seated()), nil
	}
	return []store.Cell{c}, nil
}

// Acquainted reports whether a reaction need not ask where the users of its counter are:
// that is known here, or there is one place for them.
func (s *Store) Acquainted(c store.Cell) bool {
	m := s.members(c)
	return !m.May || s.seats.get(c) > 0
}

// SeatOf returns which of the cells that have the users of a counter has one of them.
func SeatOf(cells []store.Cell, user string) store.Cell { return cells[hot.Seat(user, len(cells))] }

var (
	partGeneration = store.PartFields{Kind: store.PartGeneration}.Part()
	partSeats      = store.PartFields{Kind: store.PartWidth, Position: 1}.Part() // how many there are, for those who read views
	partDeletes    = store.PartFields{Kind: store.PartGeneration, Position: 1}.Part()
)

// Generation returns the generation of a counter's users, at which all of its seats are: it
// raises those that are not. If somebody is about to react, a counter that never had users
// gets as many seats as its definition says.
func (s *Store) Generation(ctx context.Context, c store.Cell, reacts bool) (int64, error) {
	m := s.members(c)
	if !m.May && s.seats.several(c) == 0 {
		return s.generationAt(ctx, c)
	}
	for range roundsMax {
		var home [1]store.Value
		if err := s.under.Read(ctx, []store.Cell{c}, home[:]); err != nil {
			return 0, err
		}
		word := hot.Of(home[0])
		if s.seats.learn(c, word) {
			r, err := s.raise(ctx, c, word.Seated())
			return r.generation, err
		}
		gen, err := s.generationAt(ctx, c)
		if err != nil {
			return 0, err
		}
		if home[0].Exists || gen != 0 {
			s.seats.put(c, 1)
			return gen, nil
		}
		if !reacts || m.Shards < 2 || s.readOnly {
			return gen, nil
		}
		if err := s.seatUsers(ctx, c, m.Shards); err != nil {
			return 0, err
		}
	}
	return 0, store.Errorf(store.KindUnavailable, "others make and delete %q all the time", c.Key)
}

func (s *Store) generationAt(ctx context.Context, c store.Cell) (int64, error) {
	var content [1]store.Content
	err := s.under.ReadParts(ctx, []store.PartCell{{Cell: c, Part: partGeneration}}, content[:])
	return content[0].N, err
}

// seatUsers gives a counter that is not there seats. Nothing may be left of shards that it
// had as one that was split: so its partition first learns the definition, by which it is
// split no more; then home is read after what is left.
func (s *Store) seatUsers(ctx context.Context, c store.Cell, n int) error {
	d := s.defined(c)
	if d.touch == nil {
		return nil
	}
	if d.book.ID > 0 {
		fence := store.Batch{Partition: store.PartitionOf(c, s.partitions), Durability: store.Synced, Books: []store.Book{d.book}}
		if _, err := s.make(ctx, []call{{apply: []store.Batch{fence}, own: true}}); err != nil {
			return s.unlessOutdated(err)
		}
	}
	cells := seatCells(c, n)
	left, home := make([]store.Value, n), make([]store.Value, 1)
	if err := s.under.Read(ctx, cells, left); err != nil {
		return err
	}
	if err := s.under.Read(ctx, []store.Cell{c}, home); err != nil || home[0].Exists {
		return err
	}
	var gone []store.Delta
	for i := range left {
		if left[i].Exists {
			gone = append(gone, at(laid(store.Delta{Cell: cells[i], Op: store.OpDelete}, hot.Of(left[i])), left[i].Version))
		}
	}
	if len(gone) > 0 {
		if _, err := s.make(ctx, s.changes(d, gone...)); err != nil {
			return s.unlessOutdated(err)
		}
	}
	touch := *d.touch
	touch.Riders = append(slices.Clip(touch.Riders),
		store.Rider{Part: partSeats, Op: store.OpMax, N: int64(n)},
		store.Rider{Part: partGeneration, Op: store.OpGet, Is: store.Met{Kind: store.MetEqual}})
	name := layout(c, 0, hot.Seats(n))
	name.Guard.Exists = store.ExistsMust // The touch may be refused.
	calls := s.changes(d, store.Delta{Cell: c, Op: store.OpAdd, Event: &touch}, name)
	calls[0].apply[0].If = []store.Condition{{Cell: c}}
	_, err := s.make(ctx, calls)
	if store.KindOf(err) == store.KindChanged { // Somebody else was faster.
		return nil
	}
	return s.unlessOutdated(err)
}

// unlessOutdated returns an error but if it says that a book is outdated: the next one has
// been read by now.
func (s *Store) unlessOutdated(err error) error {
	if err != nil && store.KindOf(err) == store.KindOutdated {
		return nil
	}
	return err
}

// make makes the calls of something that is no machine.
func (s *Store) make(ctx context.Context, calls []call) (answer, error) {
	var got [1]answer
	s.do(ctx, &calls[0], &got[0])
	return got[0], failure(got[:])
}

// A raised is what was met when the seats of a counter were brought to one generation.
type raised struct {
	generation int64
	sum        int64 // of the seats that were raised here
	existed    bool  // one of them was there
}

// raise brings all seats of a counter to the generation that home has.
func (s *Store) raise(ctx context.Context, c store.Cell, n int) (r raised, err error) {
	cells := append([]store.Cell{c}, seatCells(c, n)...)
	for range roundsMax {
		gens, err := s.generations(ctx, cells)
		if err != nil {
			return r, err
		}
		r.generation, _ = highest(gens)
		deltas := s.raises(c, n, cells, gens)
		if len(deltas) == 0 {
			return r, nil
		}
		if s.readOnly {
			return r, store.Errorf(store.KindUnavailable, "a reset of %q has not ended, and this server is read-only", c.Key)
		}
		calls := s.changes(s.defined(c), deltas...)
		got, err := s.make(ctx, calls)
		for i := range got.replies {
			for j := range got.replies[i].Results {
				if res := &got.replies[i].Results[j]; res.Outcome == store.Applied {
					r.sum, r.existed = r.sum+res.Before, r.existed || res.Existed
				}
			}
		}
		if err = s.unlessOutdated(err); err != nil {
			return r, err
		}
	}
	return r, store.Errorf(store.KindUnavailable, "%q is reset all the time", c.Key)
}

// generations returns the generation of each cell, and behind it how often it was deleted.
func (s *Store) generations(ctx context.Context, cells []store.Cell) ([]store.Content, error) {
	parts := make([]store.PartCell, 0, 2*len(cells))
	for _, c := range cells {
		parts = append(parts, store.PartCell{Cell: c, Part: partGeneration}, store.PartCell{Cell: c, Part: partDeletes})
	}
	gens := make([]store.Content, len(parts))
	for from := 0; from < len(parts); from += store.ReadCellsMax {
		to := min(from+store.ReadCellsMax, len(parts))
		if err := s.under.ReadParts(ctx, parts[from:to], gens[from:to]); err != nil {
			return nil, err
		}
	}
	return gens, nil
}

// highest returns the highest generation of those that generations has returned for one
// counter, and whether all are the same.
func highest(gens []store.Content) (gen int64, same bool) {
	gen, same = gens[0].N, true
	for i := 2; i < len(gens); i += 2 {
		if gens[i].N != gen {
			same = false
		}
		gen = max(gen, gens[i].N)
	}
	return gen, same
}

// raises returns the steps of the cells of a counter that are behind. Home is only if the
// store has lost what it had acknowledged.
func (s *Store) raises(c store.Cell, n int, cells []store.Cell, gens []store.Content) (deltas []store.Delta) {
	gen, same := highest(gens)
	if same {
		return nil
	}
	deletes := int64(0)
	for i := range cells {
		deletes = max(deletes, gens[2*i+1].N)
	}
	assign := s.members(c).Assign
	for i, cell := range cells {
		at, deleted := gens[2*i].N, gens[2*i+1].N < deletes
		if at == gen {
			continue
		}
		e := &store.Event{Riders: []store.Rider{
			{Part: partGeneration, Op: store.OpMax, N: gen, Is: store.Met{Kind: store.MetEqual, N: at}},
			{Part: partDeletes, Op: store.OpMax, N: deletes},
		}}
		if i == 0 {
			deltas = append(deltas, laid(store.Delta{Cell: cell, Op: store.OpAdd, Event: e}, hot.Seats(n)))
			continue
		}
		for j := 0; assign != nil && j < assign.Len(); j++ {
			if r := assign.Rider(j); r.Part != partGeneration {
				e.Riders = append(e.Riders, *r)
			}
		}
		d := store.Delta{Cell: cell, Op: store.OpDelete, Want: true, Event: e}
		if i == 1 && !deleted { // One that is reset is there.
			d.Op = store.OpSet
		}
		deltas = append(deltas, d)
	}
	return deltas
}

// seatedSum is a counter with seats that is read.
type seatedSum struct {
	at    int // its place among the cells of the caller
	cells []store.Cell
}

// sumRounds is how often seats that are read at different moments are read, until nothing
// was changed meanwhile.
const sumRounds = 3

// sumSeats puts the sums of counters with seats in the places of what was read of their
// homes. If seats in several partitions are changed all the time, a sum is unsure.
func (s *Store) sumSeats(ctx context.Context, cells []store.Cell, values []store.Value, versions [][]uint64) error {
	var todo []seatedSum
	for i := range cells {
		if word := hot.Of(values[i]); s.seats.learn(cells[i], word) {
			todo = append(todo, seatedSum{i, append([]store.Cell{cells[i]}, seatCells(cells[i], word.Seated())...)})
		}
	}
	pending := 0
	for round := 1; len(todo) > 0; round++ {
		var all []store.Cell
		for _, t := range todo {
			all = append(all, t.cells...)
		}
		before, first, second, after, err := s.collectSeats(ctx, all)
		if err != nil {
			return err
		}
		var left []seatedSum
		from, behind := 0, false
		for _, t := range todo {
			a, b := from, from+len(t.cells)
			from = b
			gen, same := highest(before[2*a : 2*b])
			now, still := highest(after[2*a : 2*b])
			switch {
			case !same || !still || gen != now:
				if _, err := s.raise(ctx, t.cells[0], len(t.cells)-1); err != nil {
					return err
				}
				left, behind = append(left, t), true
			case s.partitions > 1 && !unchanged(first[a:b], second[a:b]) && round-pending < sumRounds:
				left = append(left, t)
			default:
				v := seatsTotal(second[a:b])
				if s.partitions > 1 && !unchanged(first[a:b], second[a:b]) {
					v.Layout = int64(hot.Word(v.Layout).Unsure())
				}
				values[t.at] = v
				if versions != nil {
					versions[t.at] = versions[t.at][:0]
					for _, p := range second[a:b] {
						versions[t.at] = append(versions[t.at], p.Version)
					}
				}
			}
		}
		if behind {
			pending++
		}
		if todo = left; pending > roundsMax {
			return store.Errorf(store.KindUnavailable, "%q is reset all the time", cells[todo[0].at].Key)
		}
	}
	return nil
}

// collectSeats reads cells between two reads of their generations: twice, if they are in
// several partitions.
func (s *Store) collectSeats(ctx context.Context, cells []store.Cell) (before []store.Content, first, second []store.Value, after []store.Content, err error) {
	if before, err = s.generations(ctx, cells); err != nil {
		return nil, nil, nil, nil, err
	}
	if first, err = s.readAll(ctx, cells); err != nil {
		return nil, nil, nil, nil, err
	}
	second = first
	if s.partitions > 1 {
		if second, err = s.readAll(ctx, cells); err != nil {
			return nil, nil, nil, nil, err
		}
	}
	after, err = s.generations(ctx, cells)
	return before, first, second, after, err
}

func (s *Store) readAll(ctx context.Context, cells []store.Cell) ([]store.Value, error) {
	values := make([]store.Value, len(cells))
	for from := 0; from < len(cells); from += store.ReadCellsMax {
		to := min(from+store.ReadCellsMax, len(cells))
		if err := s.under.Read(ctx, cells[from:to], values[from:to]); err != nil {
			return nil, err
		}
	}
	return values, nil
}

func unchanged(a, b []store.Value) bool {
	return slices.EqualFunc(a, b, func(x, y store.Value) bool { return x.Version == y.Version && x.Exists == y.Exists })
}

// seatsTotal adds up home and the seats of a counter. Home alone makes no counter.
func seatsTotal(parts []store.Value) store.Value {
	v := store.Value{N: parts[0].N, Exists: parts[0].N != 0, Layout: parts[0].Layout, AsOfMS: asOf(parts)}
	version := mix(0, parts[0].Version)
	for _, p := range parts[1:] {
		v.N = plus(v.N, p.N)
		v.Exists = v.Exists || p.Exists
		version = mix(version, p.Version)
	}
	if !v.Exists {
		return store.Value{AsOfMS: v.AsOfMS}
	}
	v.Version = noCells(version)
	return v
}
