package spread

import (
	"context"
	"fmt"

	"github.com/quipudb/quipu/internal/hot"
	"github.com/quipudb/quipu/store"
)

func shown(v store.Value) string {
	if !v.Exists {
		return "absent"
	}
	return fmt.Sprintf("%d, word %#x", v.N, v.Layout)
}

// applied notes what a batch has changed.
func (w *world) applied(r *row, b *store.Batch, reply *store.Reply) {
	for i := range reply.Results {
		d, result := &b.Deltas[i], &reply.Results[i]
		w.note(r, "%T: op %d of %d to %s: outcome %d", r.m, d.Op, d.N, d.Cell.Key, result.Outcome)
		if _, loses := r.m.(*loser); loses && result.Outcome == store.Applied {
			w.lossy = true
		}
		if _, writes := r.m.(*framed); !writes || result.Outcome != store.Applied || result.Replayed {
			continue
		}
		r.applied++
		if d.Guard.Token != "" {
			if w.once++; w.once > 1 {
				w.fails("a token has counted %d times", w.once)
			}
		}
		before := w.truth
		switch d.Op {
		case store.OpAdd:
			if w.truth += d.N; (w.truth > before) != (d.N > 0) {
				w.fails("it has left int64")
			}
			w.exists = true
		case store.OpSet:
			w.truth, w.exists = d.N, true
		case store.OpDelete:
			w.truth, w.exists = 0, false
		default: // it changes no value
		}
		if d.Want && (result.Before != before || result.After != w.truth) {
			w.fails("told %d to %d, and it went from %d to %d", result.Before, result.After, before, w.truth)
		}
		for _, r := range w.rows {
			r.low, r.top = min(r.low, w.truth), max(r.top, w.truth)
		}
	}
	if reply.Err != nil {
		w.note(r, "%T: refused: %v", r.m, reply.Err)
	}
}

// judge checks that a caller was told what has become of a write.
func (w *world) judge(r *row, a *act, m *write) {
	err := m.err
	if err == nil {
		err = m.replies[0].Err
	}
	if err == nil {
		err = m.replies[0].Results[0].Outcome.Err()
	}
	if err != nil {
		w.note(r, "was told: %v", err)
	}
	switch {
	case err == nil && r.applied != 1 && !m.replies[0].Results[0].Replayed,
		r.applied > 1,
		err != nil && store.KindOf(err) != store.KindUnknown && r.applied > 0:
		w.fails("%s: %s was applied %d times, and told %v", r.name, a.name, r.applied, err)
	case err != nil && !a.refuse && w.fault == w.scene.fault:
		w.fails("%s: %s was refused: %v", r.name, a.name, err)
	}
}

// state returns the cells of the counter, its shards by number.
func (w *world) state() (cells [shardsMost]store.Value) {
	if err := w.under.Read(context.Background(), parts[:], cells[:]); err != nil {
		w.fails("%v", err)
	}
	return cells
}

// check checks that the cells add up to what was applied.
func (w *world) check() {
	cells := w.state()
	word := hot.Word(cells[0].Layout)
	n := cells[0].N
	for i, v := range cells[1:] {
		if is := hot.Word(v.Layout); word != 0 && i+1 < word.Shards() && (is == hot.Open(word.Gen()) || is == hot.Open(word.Gen()).Fold()) {
			n += v.N
		}
	}
	if n > w.truth || n < w.truth && !w.lossy || cells[0].Exists != w.exists {
		w.fails("it adds up to %d (exists %v), and is %d (exists %v)", n, cells[0].Exists, w.truth, w.exists)
	}
	w.checkViews(word, cells)
	if w.scene.sole && len(w.actors) == 1 && word != 0 && w.actors[0].known.get(subject) == nil {
		w.fails("it is split, and its only server does not know")
	}
}

// tidy has servers tidy up when all have ended, and checks what is left.
func (w *world) tidy() {
	if s := w.actors[0]; w.scene.sole && w.scene.fault == 0 && w.state()[0].Layout == 0 && s.known.get(subject) != nil {
		w.fails("it is one cell, and its only server does not know")
	}
	fresh := w.newActor()
	fresh.id = w.book
	tidies := []act{gathers, splits(shardsMost), splits(shardsMost), gathers}
	if w.lossy { // A split finds what is still lost.
		w.alone(fresh, append(tidies, tidies...)...)
		w.lossy = false
		w.check()
	}
	for _, s := range w.actors {
		if !s.dead {
			w.alone(s, reading)
		}
	}
	w.alone(fresh, append(tidies, reading)...)
	cells := w.state()
	if cells[0].N != w.truth || cells[0].Layout != 0 {
		w.fails("in the end home is %+v, want %d", cells[0], w.truth)
	}
	for i, v := range cells[1:] {
		if v.Exists && w.exists && hot.IsNear(w.truth) {
			w.fails("shard %d is left: %+v", i+1, v)
		}
	}
}
