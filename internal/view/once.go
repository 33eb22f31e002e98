package view

import (
	"math"
	"strconv"

	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/sketch"
	"github.com/quipudb/quipu/store"
)

// A filter is how the users of a window are remembered approximately. The zero filter has none.
type filter struct {
	shape  sketch.FilterShape // of each chunk
	chunks int
	users  int64
}

// The shape of a filter follows from its definition, for all time. A chunk begins small, since most counters
// have few users, and grows four times with each part.
const (
	filterFirst     = 64
	filterExpansion = 4
	filterUsers     = 4_096 // that a chunk is made for: its state is copied with each new user
)

// filterOf returns that of a definition.
func filterOf(o *definition.Once) (f filter) {
	if o.Approximate == 0 {
		return f
	}
	strength := max(int(math.Ceil(math.Log2(1e6/float64(o.Approximate)))), 1)
	f.users = o.Remembers()
	f.shape = sketch.FilterShape{Capacity: filterFirst, Strength: strength, Expansion: filterExpansion}
	f.chunks = max(int((f.users+filterUsers-1)/filterUsers), 1)
	return f
}

// Once returns the rider that refuses an event at a time if its user was counted in the window
// before, if each is counted once. It returns an error if nobody could tell any more.
func (v *Views) Once(at, now int64, user string) (rider store.Rider, has bool, err error) {
	r := v.once
	if r == nil {
		return rider, false, nil
	}
	span := r.grid.At(at)
	switch {
	case user == "":
		return rider, true, store.Errorf(store.KindInvalid, "the definition of the counter counts each user once: name the user (who)")
	case now >= span.To+r.keep:
		return rider, true, store.Errorf(store.KindInvalid, "the event is too late: the users of its window are no longer remembered")
	}
	part := store.PartFields{Kind: r.kind(), View: r.ID, Epoch: r.epoch(span.From), Position: span.From, Name: user}
	if !r.filtered {
		return store.Rider{Part: part.Part(), Op: store.OpSet, N: 1, Is: store.Met{Kind: store.MetEqual}}, true, nil
	}
	hash := sketch.Hash(user)
	part.Name = strconv.Itoa(sketch.ChunkOf(hash, v.filter.chunks))
	return store.Rider{Part: part.Part(), Op: store.OpMerge, Bytes: sketch.AppendFilterFresh(nil, v.filter.shape, hash)}, true, nil
}

// OnceError returns which part of the users who were not counted in a window yet is taken for some who were.
func (v *Views) OnceError() float64 {
	if v == nil || v.filter.chunks == 0 {
		return 0
	}
	return v.filter.shape.Rate()
}

// OnceUsers returns how many users of a counter a filter has to remember in each window.
func (v *Views) OnceUsers() int64 { return v.filter.users }
