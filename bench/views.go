package main

import (
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
)

const viewsCostAbout = "Durable adds to counters with views, embedded, against adds to a total alone: `Add` by 256 callers to one hot counter, and batches of 1,000 adds " +
	"by 16 callers to 100,000 counters that have all their values and are on disk. Each add changes 1 cell (the total), 4 (with 3 windows), or 12 (with 2 dimensions by 3 windows and for all time). " +
	"CPU time includes the last checkpoint."

// A viewing is a number of cells that an add changes.
type viewing struct {
	cells      string
	windows    bool
	dimensions bool
}

var viewings = []viewing{{"1 cell", false, false}, {"4 cells", true, false}, {"12 cells", true, true}}

// define gives all counters the views of v.
func (v viewing) define(s *session, db *quipu.DB) error {
	if !v.windows {
		return nil
	}
	return define(s, db, v.definition("*"))
}

// definition returns that of the views of v.
func (v viewing) definition(pattern string) definition.Definition {
	d := definition.Definition{Pattern: pattern, Windows: []definition.Window{
		window("1m", 24*time.Hour), window("1h", 30*24*time.Hour), window("1d", 5*365*24*time.Hour),
	}}
	if v.dimensions {
		d.Dimensions = []definition.Dimension{{By: []string{"country"}}, {By: []string{"platform"}}}
	}
	return d
}

func window(every string, keep time.Duration) definition.Window {
	w, err := definition.ParseWidth(every)
	if err != nil {
		panic(err)
	}
	return definition.Window{Every: w, Keep: definition.Keep(keep)}
}

func define(s *session, db *quipu.DB, d definition.Definition) error {
	_, err := db.Define(s.ctx, []definition.Definition{d}, quipu.DefineOptions{})
	return err
}

var (
	countries = []string{"DE", "PE"}
	platforms = []string{"app", "web"}
)

// dims returns the values that events of v bring.
func (v viewing) dims() (all [][]quipu.Dimension) {
	if !v.dimensions {
		return [][]quipu.Dimension{nil}
	}
	for _, c := range countries {
		for _, p := range platforms {
			all = append(all, []quipu.Dimension{{Name: "country", Value: c}, {Name: "platform", Value: p}})
		}
	}
	return all
}

func viewsCost(s *session) error {
	var sides []func() error
	for _, v := range viewings {
		sides = append(sides,
			func() error { return s.inTemp(func(dir string) error { return s.viewsHot(dir, v) }) },
			func() error { return s.inTemp(func(dir string) error { return s.viewsMany(dir, v) }) })
	}
	if err := s.alternate(sides...); err != nil {
		return err
	}
	for _, load := range []string{toOne, toMany} {
		s.atMost("CPU of 4 cells over that of 1, "+load, s.over("4 cells, "+load, "1 cell, "+load, cpuNS), 2)
		s.atMost("CPU of 12 cells over that of 1, "+load, s.over("12 cells, "+load, "1 cell, "+load, cpuNS), 4)
	}
	return nil
}

const (
	toOne  = "hot"
	toMany = "100,000 counters"
)

func (s *session) viewsHot(dir string, v viewing) error {
	db, err := openDB(dir, 0, quipu.Synced)
	if err != nil {
		return err
	}
	if err := v.define(s, db); err != nil {
		return errors.Join(err, db.Close())
	}
	dims := v.dims()
	return s.drive(v.cells+", "+toOne, workload{
		callers: 256, time: pick(s, 3*time.Second, 300*time.Millisecond), close: db.Close,
		op: func(int) (int, error) {
			var opts []quipu.WriteOption
			for _, d := range dims[rand.IntN(len(dims))] {
				opts = append(opts, quipu.Dim(d.Name, d.Value))
			}
			_, err := db.Add(s.ctx, hotKey, 1, opts...)
			return 1, err
		},
	})
}

func (s *session) viewsMany(dir string, v viewing) error {
	db, err := openDB(dir, 0, quipu.Synced)
	if err != nil {
		return err
	}
	all := newKeys(pick(s, 100_000, 1_000), inOrder)
	dims := v.dims()
	err = v.define(s, db)
	for i := 0; err == nil && i < len(dims); i++ {
		err = s.addWith(db, all, dims[i])
	}
	if err = errors.Join(err, db.Close()); err != nil {
		return err
	}
	if db, err = openDB(dir, 0, quipu.Synced); err != nil {
		return err
	}
	events := make([][]quipu.Event, batchCallers)
	for c := range events {
		events[c] = make([]quipu.Event, batchEvents)
	}
	return s.drive(v.cells+", "+toMany, workload{
		callers: batchCallers, time: pick(s, 10*time.Second, 300*time.Millisecond), close: db.Close,
		op: func(c int) (int, error) {
			for i := range events[c] {
				events[c][i] = quipu.Event{Key: all.at(rand.IntN(all.len())), Delta: 1, Dims: dims[rand.IntN(len(dims))]}
			}
			return batchEvents, addEvents(s.ctx, db, events[c])
		},
	})
}

// addWith adds one to each counter, with values of dimensions.
func (s *session) addWith(db *quipu.DB, all keys, dims []quipu.Dimension) error {
	events := make([]quipu.Event, 0, batchEvents)
	for i := range all.len() {
		if events = append(events, quipu.Event{Key: all.at(i), Delta: 1, Dims: dims}); len(events) == batchEvents || i == all.len()-1 {
			if err := addEvents(s.ctx, db, events); err != nil {
				return err
			}
			events = events[:0]
		}
	}
	return nil
}

const rangeAbout = "A range of 30 days by the hour, embedded: of one hot counter, and summed over 1,000 counters with one prefix. Every hour of each has events. " +
	"`unsaved` is before the checkpoint that follows the events, which are 720,000 windows within seconds."

const latencyMS = "ms, median"

func ranges(s *session) error {
	return s.inTemp(func(dir string) error {
		now := time.Now().UTC().Truncate(time.Hour)
		db, err := openDB(dir, 0, quipu.Synced)
		if err != nil {
			return err
		}
		if err = s.fillHours(db, pick(s, 1_000, 20), now); err == nil {
			err = s.alternate(s.range1(db, "one counter, unsaved", now, false, 20), s.range1(db, "1,000 counters, unsaved", now, true, 1))
		}
		if err = errors.Join(err, db.Close()); err != nil {
			return err
		}
		if db, err = openDB(dir, 0, quipu.Synced); err != nil {
			return err
		}
		err = s.alternate(s.range1(db, "one counter", now, false, 200), s.range1(db, "1,000 counters", now, true, 5))
		if err = errors.Join(err, db.Close()); err != nil {
			return err
		}
		s.atMost("ms for one counter", s.median("one counter", latencyMS), 2)
		s.atMost("ms for 1,000 counters", s.median("1,000 counters", latencyMS), 300)
		return nil
	})
}

// range1 returns what asks for ranges of one counter, or of all, and records how long they
// take.
func (s *session) range1(db *quipu.DB, side string, now time.Time, all bool, times int) func() error {
	o := quipu.RangeOptions{From: now.AddDate(0, 0, -30), To: now, Step: window("1h", 0).Every, Prefix: all}
	key := hotKey
	if all {
		key = "counter:"
	}
	return func() error {
		took := make([]time.Duration, times)
		for i := range took {
			began := time.Now()
			got, err := db.Range(s.ctx, key, o)
			if err != nil {
				return err
			}
			if len(got.Points) != 720 || got.Sum == 0 {
				return errors.New("the range is not what was counted")
			}
			took[i] = time.Since(began)
		}
		slices.Sort(took)
		s.record(side, latencyMS, float64(took[len(took)/2].Microseconds())/1000)
		return nil
	}
}

// fillHours gives counters an event in each of the last 720 hours.
func (s *session) fillHours(db *quipu.DB, counters int, now time.Time) error {
	if err := define(s, db, viewing{windows: true}.definition("*")); err != nil {
		return err
	}
	all := newKeys(counters, func(i int) int { return i + 42 }) // the first is the hot one
	var events []quipu.Event
	for h := range 720 {
		at := now.Add(-time.Duration(h+1) * time.Hour)
		for i := range all.len() {
			events = append(events, quipu.Event{Key: all.at(i), Delta: 1, At: at})
			if len(events) == batchEvents || i == all.len()-1 {
				if err := addEvents(s.ctx, db, events); err != nil {
					return err
				}
				events = events[:0]
			}
		}
	}
	return nil
}
