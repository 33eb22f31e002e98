package spread

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/quipudb/quipu/internal/hot"
	"github.com/quipudb/quipu/store"
)

const (
	// sample is of how many calls one is looked at, and noted how many of its
	// deltas.
	sample = 16
	noted  = 16

	// turns is of how many calls of the embedded store that are looked at one is
	// timed.
	turns = 4

	// refreshEvery is how often the counters that are split are read, to see
	// whether they are cold; refreshHot, if this server alone keeps them from it.
	refreshEvery = time.Second
	refreshHot   = 5 * time.Second

	// refreshAlone is how many are read one by one if all together can't be.
	refreshAlone = 16

	// adoptEvery is how often the store is searched for counters that others have
	// split and perhaps left so.
	adoptEvery = 30 * time.Second

	// restFirst is for how long a counter is not split again that was folded
	// because it was asked; twice as long each time, up to restLongest.
	restFirst   = 5 * time.Second
	restLongest = time.Minute

	// lookMax is how long one look at the counters may take.
	lookMax = 5 * time.Second

	// goneLooks is how many looks in a row must find that a counter has no shards any
	// more: who gives it others takes away the ones that it has.
	goneLooks = 3
)

// judged is what is decided about a counter.
type judged struct {
	hot.Judge
	rest  time.Duration // how long it rests after it was asked
	until time.Time     // and until when

	gone    int      // looks in a row that did not find the shards it had
	refused hot.Word // the layout of which a shard did not take an add, or 0
	others  uint64   // what shards were open, of all words, that home did not name

	// The total when it was last read, and at what rate it changed; what its shards
	// had, and of late in which part of the looks they had more than before.
	total, shards int64
	at            time.Time
	rate, busy    float64
}

// chosen reports whether a call is one of those that are looked at.
func chosen() bool { return rand.Uint32()%sample == 0 }

// note counts the writes of a call that was chosen and has ended: of a large one,
// some for all. Replies is nil if the store can't say who waited for whom.
func (s *Store) note(batches []store.Batch, replies []store.Reply, ended time.Time, took time.Duration) {
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
				w.Cell, w.Count = d.Cell, sample*float64(step)*float64(max(1, d.Writes))
				w.Tied, w.Asked = tied || !shardable(d), d.Want
				s.heat.Note(w, ended)
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
			s.heat.Timed(deltas[j].Cell, now.Sub(began), now)
		}
	}
}

// retried counts the writes of a batch that is made again because a layout has
// changed. That is seldom, so none is left to chance.
func (s *Store) retried(b *store.Batch) {
	now := s.options.Now()
	s.heating.Lock()
	defer s.heating.Unlock()
	for i := range b.Deltas {
		s.heat.Retried(b.Deltas[i].Cell, float64(max(1, b.Deltas[i].Writes)), now)
	}
}

// asked notes that a counter is folded because one cell has to decide.
func (s *Store) asked(c store.Cell) {
	s.heating.Lock()
	defer s.heating.Unlock()
	now, j := s.options.Now(), s.judge(c)
	if now.After(j.until) {
		j.rest = min(max(2*j.rest, restFirst), restLongest)
	}
	j.until = now.Add(j.rest)
}

// judge returns what is decided about a counter. The caller holds heating.
func (s *Store) judge(c store.Cell) *judged {
	j := s.judges[c]
	if j == nil {
		j = &judged{}
		s.judges[c] = j
	}
	return j
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
		if now.Sub(refreshed) >= refreshEvery {
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

// refused notes that a shard of a counter did not take an add, since it is of
// another layout.
func (s *Store) refused(c store.Cell, k *counter) {
	s.heating.Lock()
	defer s.heating.Unlock()
	s.judge(c).refused = k.word
}

// abandoned reports whether the shards that others have opened, and home does not
// name, were the same when this server would have split the counter the last time.
// Then nobody is going to name them.
func (s *Store) abandoned(c store.Cell, others uint64) bool {
	s.heating.Lock()
	defer s.heating.Unlock()
	j := s.judge(c)
	was := j.others
	j.others = others
	return was == others
}

// relearn looks at the homes of counters whose shards were there and did not take an
// add, or are not known any more. Mostly others have changed the layout. If home
// still has it, a shard is lost: it is made whole by a fold.
func (s *Store) relearn(ctx context.Context) error {
	var cells []store.Cell
	var refused []hot.Word
	s.heating.Lock()
	for c, j := range s.judges {
		if known := s.get(c) != nil; j.refused == 0 && (known || j.Shards() < 2 || j.gone == goneLooks) {
			continue
		} else if !known {
			j.gone = min(j.gone+1, goneLooks)
		}
		cells, refused = append(cells, c), append(refused, j.refused)
		if j.refused = 0; len(cells) == store.ReadCellsMax {
			break
		}
	}
	s.heating.Unlock()
	if len(cells) == 0 {
		return nil
	}
	values := make([]store.Value, len(cells))
	if err := s.under.Read(ctx, cells, values); err != nil {
		return err
	}
	var errs []error
	for i, c := range cells {
		word := hot.Word(values[i].Layout)
		if s.learn(c, nil, word, values[i].Version); word != 0 && word == refused[i] {
			errs = append(errs, s.Fold(ctx, c))
		}
	}
	return errors.Join(errs...)
}

// look splits the counters that are too hot for the cells they have, and folds
// those whose shards turn out to be of no use.
func (s *Store) look(ctx context.Context) error {
	type want struct {
		cell   store.Cell
		shards int
	}
	var wanted []want
	errs := []error{s.relearn(ctx)}
	now := s.options.Now()
	s.heating.Lock()
	s.heat.Each(func(e *hot.Entry) {
		rate := e.Steady(now)
		waiting, took := e.Waiting()
		l := s.options.Policy(e.Cell).Limits
		shards := 1
		if k := s.get(e.Cell); k != nil {
			if shards = len(k.cells); k.word.Folding() {
				return
			}
		}
		if l.Shards <= shards && rate < s.options.Rules.Least || l.Max < 2 || e.Tied() {
			return
		}
		j := s.judge(e.Cell)
		if shards > 1 {
			j.gone = 0
		} else if j.Shards() > 1 && j.gone < goneLooks {
			return
		}
		if now.Before(j.until) {
			return
		}
		n := j.Grow(s.options.Rules, l, hot.Look{Shards: shards, Rate: rate, Waiting: waiting, Took: took, At: now})
		if n != shards {
			wanted = append(wanted, want{e.Cell, n})
		}
	})
	s.prune(now)
	s.heating.Unlock()
	for _, w := range wanted {
		var err error
		if w.shards == 1 {
			s.meters.undone.Add(1)
			err = s.Fold(ctx, w.cell)
		} else {
			_, err = s.split(ctx, w.cell, w.shards)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// prune forgets what was decided about counters that are neither hot nor split
// nor resting. The caller holds heating.
func (s *Store) prune(now time.Time) {
	if len(s.judges) < entriesMax {
		return
	}
	for c, j := range s.judges {
		if s.heat.Get(c) == nil && s.get(c) == nil && now.After(j.until) {
			delete(s.judges, c)
		}
	}
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
				alone, cancel := context.WithTimeout(store.Unheard(s.ctx), refreshEvery/4)
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
		if errs[min(i, len(errs)-1)] != nil {
			continue
		}
		j, word := s.judge(c), hot.Word(values[i].Layout)
		// It was not split, or not looked at, until now: what it was says nothing.
		first := j.at.IsZero() || now.Sub(j.at) > 2*refreshHot
		passed := now.Sub(j.at).Seconds()
		if first {
			j.busy = 1
		} else if passed > 0 {
			j.rate = math.Abs(float64(values[i].N)-float64(j.total)) / passed
		}
		writes := s.writes(c, j, values[i].N-homes[i].N, passed, first)
		j.total, j.shards, j.at = values[i].N, values[i].N-homes[i].N, now
		switch {
		case word == 0:
			j.at = time.Time{}
		case word.Folding(), values[i].N > near, values[i].N < -near:
			cold = append(cold, c)
		case j.Fold(s.options.Rules, s.options.Policy(c).Limits, word.Shards(), writes, now):
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

// writes returns how many writes a second the shards of a counter take, as far as
// it can be told: those of this server, or by how much the shards have grown, which
// they only do. If they grow in few looks only, a few large adds are all that there
// is. The caller holds heating.
func (s *Store) writes(c store.Cell, j *judged, shards int64, passed float64, first bool) (rate float64) {
	if first {
		return math.Inf(1)
	}
	const looks = 8
	grown := 0.0
	if shards != j.shards {
		grown = 1
	}
	if j.busy += (grown - j.busy) / looks; j.busy >= 0.5 && passed > 0 {
		rate = math.Abs(float64(shards)-float64(j.shards)) / passed
	}
	now := s.options.Now()
	if e := s.heat.Get(c); e != nil && e.Idle(now) < refreshEvery {
		rate = max(rate, e.FreeRate(now))
	}
	return rate
}

// maybeCold returns the counters that are split and may be cold, for all that is
// known here: to read them is to read all their shards.
func (s *Store) maybeCold() []store.Cell {
	now, cells := s.options.Now(), s.splitCells()
	s.heating.Lock()
	defer s.heating.Unlock()
	return slices.DeleteFunc(cells, func(c store.Cell) bool {
		j, e := s.judge(c), s.heat.Get(c)
		return e != nil && e.Rate(now) >= s.options.Rules.Least && e.Idle(now) < refreshEvery/4 &&
			now.Sub(j.at) < refreshHot && -far < j.total && j.total < far
	})
}

// splitCells returns the counters that are known to be split.
func (s *Store) splitCells() []store.Cell {
	s.mu.RLock()
	defer s.mu.RUnlock()
	cells := make([]store.Cell, 0, len(s.counters))
	for c := range s.counters {
		cells = append(cells, c)
	}
	return cells[:min(len(cells), store.ReadCellsMax)]
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
		for i := range found {
			c, _, ok := store.ShardOf(store.Cell{Key: found[i].Key})
			if !ok || s.get(c) != nil {
				continue
			}
			v, err := s.home(ctx, c)
			if err != nil {
				return err
			}
			if v.Layout != 0 {
				s.learn(c, nil, hot.Word(v.Layout), v.Version)
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
	s.heat.Each(func(e *hot.Entry) {
		if rate := e.Rate(now); rate >= 1 || s.get(e.Cell) != nil {
			found = append(found, Counter{
				Cell: e.Cell, Rate: rate, Shards: 1, P99: e.P99(now), Waiting: e.Waited(),
				Tied: e.TiedShare(), Asked: e.AskedShare(), Retries: e.RetryRate(now),
			})
		}
	})
	for _, c := range s.splitCells() {
		if s.heat.Get(c) == nil {
			found = append(found, Counter{Cell: c, Shards: 1})
		}
	}
	for i := range found {
		if k := s.get(found[i].Cell); k != nil {
			found[i].Shards, found[i].ShardP99 = len(k.cells), k.slowest(now)
			if j := s.judges[found[i].Cell]; j != nil {
				found[i].All = j.rate
			}
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
