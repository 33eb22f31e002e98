package spread

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/quipudb/quipu/internal/hot"
	"github.com/quipudb/quipu/store"
)

const (
	// sample is of how many calls of the embedded store, which take no longer than the
	// looking, one is looked at; of a shared store it is all. Noted is how many of its
	// deltas.
	sample = 16
	noted  = 16

	// turns is of how many calls of the embedded store that are looked at one is
	// timed.
	turns = 4

	// refreshAlone is how many are read one by one if all together can't be.
	refreshAlone = 16

	// adoptEvery is how often the store is searched for counters that others have
	// split and perhaps left so.
	adoptEvery = 30 * time.Second

	// lookMax is how long one look at the counters may take.
	lookMax = 5 * time.Second
)

// chosen reports whether a call is one of those that are looked at.
func (s *Store) chosen() bool { return s.starter == nil || rand.Uint32()%sample == 0 }

// note counts the writes of a call that was chosen and has ended: of a large one,
// some for all. Replies is nil if the store can't say who waited for whom.
func (s *Store) note(batches []store.Batch, replies []store.Reply, ended time.Time, took time.Duration) {
	weight := 1.0
	if s.starter != nil {
		weight = sample
	}
	s.heating.Lock()
	defer s.heating.Unlock()
	for i := range batches {
		deltas := batches[i].Deltas
		w := hot.Write{Took: took}
		if replies != nil {
			w.Waited, w.Retries = replies[i].Waited, replies[i].Retries
		}
		step, tied := max(1, len(deltas)/noted), stays(&batches[i])
		for j := rand.IntN(step); j < len(deltas); j += step {
			if d := &deltas[j]; d.Op == store.OpAdd || d.Op == store.OpSet {
				w.Cell, w.Count = d.Cell, weight*float64(step)*float64(max(1, d.Writes))
				w.Tied, w.Asked = tied || !shardable(d), d.Want
				s.judges.Note(w, ended)
			}
		}
	}
	if s.noted++; took == 0 && s.noted%turns == 0 {
		s.turn.Store(true)
	}
}

// takeTurn reports whether a call of the embedded store is to be timed. Of those that
// are looked at one in a few gives the next call its turn: a clock for each would be
// a tenth of what such a call takes.
func (s *Store) takeTurn() bool { return s.turn.Load() && s.turn.CompareAndSwap(true, false) }

// took notes how long the writes of a call took, which ends now.
func (s *Store) took(batches []store.Batch, began time.Time) {
	now := s.options.Now()
	s.heating.Lock()
	defer s.heating.Unlock()
	for i := range batches {
		deltas := batches[i].Deltas
		step := max(1, len(deltas)/noted)
		for j := rand.IntN(step); j < len(deltas); j += step {
			s.judges.Timed(deltas[j].Cell, now.Sub(began), now)
		}
	}
}

// retried counts the writes of batches that are made again because a layout has
// changed. That is seldom, so none is left to chance.
func (s *Store) retried(batches []store.Batch) {
	now := s.options.Now()
	s.heating.Lock()
	defer s.heating.Unlock()
	for i := range batches {
		for j := range batches[i].Deltas {
			d := &batches[i].Deltas[j]
			s.judges.Retried(d.Cell, float64(max(1, d.Writes)), now)
		}
	}
}

// asked notes that a counter is folded because one cell has to decide.
func (s *Store) asked(c store.Cell) {
	now := s.options.Now()
	s.heating.Lock()
	defer s.heating.Unlock()
	s.judges.Asked(c, now)
}

// run looks at the counters until the store is closed.
func (s *Store) run() {
	defer close(s.done)
	if s.options.ReadOnly {
		<-s.ctx.Done()
		return
	}
	tick := time.NewTicker(s.options.Every)
	defer tick.Stop()
	var refreshed, adopted time.Time
	for {
		now := s.options.Now()
		within, cancel := context.WithTimeout(store.Unheard(s.ctx), lookMax)
		var errs []error
		if now.Sub(adopted) >= adoptEvery {
			errs, adopted = append(errs, s.adopt(within)), now
		}
		if now.Sub(refreshed) >= hot.RefreshEvery {
			errs, refreshed = append(errs, s.refresh(within)), now
		}
		errs = append(errs, s.look(within))
		cancel()
		if more, first := summary(errs); first != nil && s.ctx.Err() == nil && s.options.Logger != nil {
			s.options.Logger.Warn("maintenance of hot counters failed", "error", first, "more", more)
		}
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			return
		}
	}
}

// summary returns one of the errors that errs join, and how many more there are:
// when a store is gone each counter has one, and they all say the same. Of several it
// is always the same one, so that a log can hold back what it has just said.
func summary(errs []error) (more int, first error) {
	var all []error
	var visit func(error)
	visit = func(err error) {
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			for _, e := range joined.Unwrap() {
				visit(e)
			}
		} else if err != nil {
			all = append(all, err)
		}
	}
	for _, err := range errs {
		visit(err)
	}
	if len(all) == 0 {
		return 0, nil
	}
	return len(all) - 1, slices.MinFunc(all, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
}

// relearn looks at the homes of counters whose shards were there and did not take an
// add, or are not known any more. Mostly others have changed the layout.
func (s *Store) relearn(ctx context.Context) error {
	refused := s.known.refusals()
	s.heating.Lock()
	cells := s.judges.Missing(s.known.word, store.ReadCellsMax)
	s.heating.Unlock()
	for c := range refused {
		if !slices.Contains(cells, c) {
			cells = append(cells, c)
		}
	}
	return s.learn(ctx, cells[:min(len(cells), store.ReadCellsMax)], refused)
}

// learn looks at the homes of counters.
func (s *Store) learn(ctx context.Context, cells []store.Cell, refused map[store.Cell]hot.Word) error {
	if len(cells) == 0 {
		return nil
	}
	m := &relearn{core: &s.core, cells: cells, refused: refused}
	s.drive(ctx, m)
	return m.err
}

// widen lets adds with views go to the shards of counters where they have stayed at home.
func (s *Store) widen(ctx context.Context) error {
	var errs []error
	for _, c := range s.known.all() {
		if k := s.known.get(c); k != nil && k.narrow.Load() && !k.word.Folding() {
			m := &widen{core: &s.core, cell: c, of: k}
			s.drive(ctx, m)
			errs = append(errs, m.err)
		}
	}
	return errors.Join(errs...)
}

// look splits the counters that are too hot for the cells they have, and folds
// those whose shards turn out to be of no use.
func (s *Store) look(ctx context.Context) error {
	errs := []error{s.relearn(ctx), s.widen(ctx)}
	now := s.options.Now()
	s.heating.Lock()
	wants := s.judges.Wants(s.known.word, now)
	s.heating.Unlock()
	for _, w := range wants {
		var err error
		if w.Shards < s.known.word(w.Cell).Shards() {
			s.meters.undone.Add(1)
			err = s.Fold(ctx, w.Cell)
		}
		if err == nil && w.Shards > 1 {
			_, err = s.split(ctx, w.Cell, w.Shards)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// split gives a counter as many shards as it says, and reports whether it has them.
func (s *Store) split(ctx context.Context, c store.Cell, shards int) (bool, error) {
	m := s.newSplit(c, hot.Home(hot.Generation(rand.Uint64()), shards))
	if s.limits(c).Max == 1 { // A definition has come since it was wanted. One that comes from now on has the store refuse the split.
		return false, nil
	}
	s.drive(ctx, m)
	return m.done, m.err
}

// refresh reads the counters that are split, and folds those that are cold.
func (s *Store) refresh(ctx context.Context) error {
	cells := s.maybeCold()
	if len(cells) == 0 {
		return nil
	}
	values, homes := make([]store.Value, len(cells)), make([]store.Value, len(cells))
	errs := []error{s.readBoth(ctx, cells, values, homes)}
	if errs[0] != nil && len(cells) > 1 { // What is out of reach must not keep the others from it.
		for i := range cells { // in any order, another each time
			err := errs[0]
			if i < refreshAlone {
				alone, cancel := context.WithTimeout(store.Unheard(s.ctx), hot.RefreshEvery/4)
				err = s.readBoth(alone, cells[i:i+1], values[i:i+1], homes[i:i+1])
				cancel()
			}
			errs = append(errs, err)
		}
		errs = errs[1:]
	}
	now := s.options.Now()
	var cold []store.Cell
	s.heating.Lock()
	for i, c := range cells {
		v := &values[i]
		if errs[min(i, len(errs)-1)] == nil && s.judges.Cold(c, hot.Of(*v), v.N, v.N-homes[i].N, now) {
			cold = append(cold, c)
		}
	}
	s.heating.Unlock()
	for _, c := range cold {
		errs = append(errs, s.Fold(ctx, c))
	}
	return errors.Join(errs...)
}

// readBoth reads counters, and their homes.
func (s *Store) readBoth(ctx context.Context, cells []store.Cell, values, homes []store.Value) error {
	if err := s.Read(ctx, cells, values); err != nil {
		return err
	}
	return s.under.Read(ctx, cells, homes)
}

// maybeCold returns the counters that are split and may be cold, for all that is
// known here: to read them is to read all their shards.
func (s *Store) maybeCold() []store.Cell {
	now, cells := s.options.Now(), s.known.all()
	s.heating.Lock()
	defer s.heating.Unlock()
	return slices.DeleteFunc(cells, func(c store.Cell) bool { return !s.judges.MayBeCold(c, now) })
}

// adopt finds the counters that are split in the store, whoever did it. All of
// them have a shard 1.
func (s *Store) adopt(ctx context.Context) error {
	r := store.Range{Prefix: store.ShardCell(store.Cell{}, 1).Key[:len("shard/1/")]}
	for {
		found, err := s.under.Scan(ctx, r, store.ScanMax)
		if err != nil {
			return err
		}
		var cells []store.Cell
		for i := range found {
			if c, _, ok := store.ShardOf(store.Cell{Key: found[i].Key}); ok && s.known.get(c) == nil {
				cells = append(cells, c)
			}
		}
		for cells := range slices.Chunk(cells, store.ReadCellsMax) {
			if err := s.learn(ctx, cells, nil); err != nil {
				return err
			}
		}
		if len(found) < store.ScanMax {
			s.loaded.Store(true)
			return nil
		}
		r.After = found[len(found)-1].Key
	}
}

// A Counter is one of the hottest, as this server sees it.
type Counter struct {
	Cell   store.Cell
	Rate   float64 // writes a second, from this server
	Shards int
	All    float64 // by how much a second it changes, whoever writes to it, if it is split

	// P99 is how long the slowest in a hundred of its writes took of late, and
	// ShardP99 the same of its slowest shard, if it is split.
	P99, ShardP99 time.Duration

	// Waiting is which part of its writes' time was waiting for others who change it.
	Waiting float64

	// Tied is which part of its writes only its own cell can take, whatever shards it
	// has, and Asked which part ask for its value.
	Tied, Asked float64

	// Retries is how many of its writes a second had to be made again, because
	// others had changed it or its layout meanwhile.
	Retries float64
}

// Hottest returns up to n of the hottest counters, the hottest first, and all
// that are split.
func (s *Store) Hottest(n int) []Counter {
	now := s.options.Now()
	var found []Counter
	s.heating.Lock()
	s.judges.Each(func(e *hot.Entry) {
		if rate := e.Rate(now); rate >= 1 || s.known.get(e.Cell) != nil {
			found = append(found, Counter{
				Cell: e.Cell, Rate: rate, Shards: 1, P99: e.P99(now), Waiting: e.Waited(),
				Tied: e.TiedShare(), Asked: e.AskedShare(), Retries: e.RetryRate(now),
			})
		}
	})
	for _, c := range s.known.all() {
		if s.judges.Get(c) == nil {
			found = append(found, Counter{Cell: c, Shards: 1})
		}
	}
	for i := range found {
		if k := s.known.get(found[i].Cell); k != nil {
			found[i].Shards, found[i].ShardP99 = len(k.cells), k.slowest(now)
			found[i].All = s.judges.Changing(found[i].Cell)
		}
	}
	s.heating.Unlock()
	slices.SortFunc(found, func(a, b Counter) int {
		switch {
		case a.Rate > b.Rate:
			return -1
		case a.Rate < b.Rate:
			return 1
		}
		return 0
	})
	return found[:min(n, len(found))]
}
