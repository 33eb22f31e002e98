package history

import (
	"fmt"
	"slices"
	"time"

	"github.com/quipudb/quipu/internal/book"
	"github.com/quipudb/quipu/internal/calendar"
	"github.com/quipudb/quipu/internal/view"
	"github.com/quipudb/quipu/store"
)

// clockSlack is by how much the clocks of partitions and servers may differ that have
// judged whether an event is late.
const clockSlack = int64(time.Minute / time.Millisecond)

// equations are what must hold between the parts of a counter of one entry.
type equations struct {
	entry *book.Entry
	views []view.Shown
	names []string // of the views, for people
	whole []bool   // by view: its cells and what is outside of it are the total
	pairs []pair
	from  []int64 // by view: windows that begin earlier are in no equation
}

// A pair is two views whose windows count the same events: the parts of the fine one in a
// window of the coarse one add up to that.
type pair struct {
	fine, coarse int
	from         int64 // the first window that is compared begins here
	sure         int64 // one that begins here or later was never judged by another book
}

// equations returns those of an entry.
func (r *Reader) equations(e *book.Entry) *equations {
	views := view.New(r.Known.Book, e)
	q := &equations{entry: e, views: views.All()}
	n := len(q.views)
	q.whole, q.from = make([]bool, n), make([]int64, n)
	for _, s := range book.Slots(&e.Definition) {
		q.names = append(q.names, s.Name(&e.Definition))
	}
	now := floorsOf(views.Floors(r.Known.Namespace, r.Now))
	for i := range q.views {
		s := &q.views[i]
		since, ok := r.Known.Since(s.View)
		q.whole[i] = s.Sums && ok && s.Keep == 0
		if s.Sums && ok && s.Keep != 0 && s.View.Book == r.Known.Book.ID {
			// As long as its floor is where it was in the beginning, nothing has gone.
			q.whole[i] = now[s.View.ID] == floorsOf(views.Floors(r.Known.Namespace, since))[s.View.ID]
		}
		if q.from[i] = never; q.whole[i] || s.ListsWindows() {
			q.from[i] = 0
		}
	}
	for coarse := range q.views {
		if fine := q.finer(coarse); fine >= 0 {
			q.pair(r, fine, coarse)
		}
		for i := range q.views { // the values of a dimension in a window
			if s := &q.views[i]; q.windowed(coarse) && s.Kind == store.PartWindowDim && s.Grid == q.views[coarse].Grid {
				q.pair(r, i, coarse)
			}
		}
	}
	return q
}

const never = int64(1) << 62

func floorsOf(floors []store.Floor) map[uint16]store.Epoch {
	of := map[uint16]store.Epoch{}
	for _, f := range floors {
		of[f.View] = f.Epoch
	}
	return of
}

// windowed reports whether view i is windows of all events.
func (q *equations) windowed(i int) bool { return q.views[i].Kind == store.PartWindow }

// alike reports whether views i and j are windows of the same events: of all, or of those of
// one top list.
func (q *equations) alike(i, j int) bool {
	a, b := &q.views[i], &q.views[j]
	return a.Kind == b.Kind && a.Top == b.Top && (q.windowed(i) || a.ListsWindows())
}

// finer returns the view with the longest windows of which those of view i consist, or -1.
func (q *equations) finer(i int) int {
	best := -1
	for j := range q.views {
		if j == i || !q.alike(i, j) || !q.views[j].Grid.Within(q.views[i].Grid) || q.views[j].Grid.Longest() >= q.views[i].Grid.Longest() {
			continue
		}
		if best < 0 || q.views[j].Grid.Longest() > q.views[best].Grid.Longest() {
			best = j
		}
	}
	return best
}

// pair adds the equation of two views. Windows that both keep, and kept while they were
// counted, have the same events: an event that is too late for one of them is so for the
// time of that alone. Views that came with different books have the same events only after
// the later one was in force.
func (q *equations) pair(r *Reader, fine, coarse int) {
	a, b := &q.views[fine], &q.views[coarse]
	p := pair{fine: fine, coarse: coarse, from: r.Now - min(a.Keep, b.Keep) + clockSlack}
	if a.View.Book != b.View.Book {
		sinceA, okA := r.Known.Since(a.View)
		sinceB, okB := r.Known.Since(b.View)
		if !okA || !okB {
			return
		}
		p.from = max(p.from, max(sinceA, sinceB)+book.Ahead)
	}
	if p.sure = p.from; max(a.View.Book, b.View.Book) != r.Known.Book.ID {
		p.sure = max(p.from, r.Known.InForce) // Earlier ones may have been kept for another time.
	}
	q.pairs = append(q.pairs, p)
	q.from[fine], q.from[coarse] = min(q.from[fine], p.from), min(q.from[coarse], p.from)
}

// A finding is one equation that does not hold.
type finding struct {
	what       string
	have, want uint64
	sure       bool
}

// check returns what does not hold for a counter with a total, whose cells have versions,
// if they are known.
func (q *equations) check(c *counted, total store.Value, versions []uint64) (found []finding) {
	c.settle(q)
	for i := range q.views {
		s := &c.views[i]
		if have := s.outside + s.cells; q.whole[i] && have != uint64(total.N) && c.began(q.views[i].View, versions) {
			// The total from before the present choices may have been reactions by earlier ones.
			sure := q.views[i].Kind != store.PartMembers || s.outside == 0
			found = append(found, finding{q.names[i] + ", and what is outside of it: the total", have, uint64(total.N), sure})
		}
	}
	return append(found, q.among(c)...)
}

// among returns what does not hold among the views of a counter, whatever its total is.
func (q *equations) among(c *counted) (found []finding) {
	for i := range q.views {
		s := &c.views[i]
		if s.values != s.counter {
			found = append(found, finding{q.names[i] + ": values that were admitted", uint64(s.values), uint64(s.counter), true})
		}
	}
	for _, p := range q.pairs {
		if !c.views[p.coarse].stopped {
			found = append(found, q.compare(c, p)...)
		}
	}
	return append(append(found, q.listed(c)...), q.reactions(c)...)
}

// listed returns which top lists have more in their windows than they have of all time. They
// may have less: some windows are kept no more, and some events came too late for theirs.
func (q *equations) listed(c *counted) (found []finding) {
	for i := range q.views {
		s := &q.views[i]
		if !s.ListsWindows() {
			continue
		}
		ever := slices.IndexFunc(q.views, func(o view.Shown) bool { return o.Top == s.Top && !o.ListsWindows() }) // as old as its windows
		if have, want := c.views[i].cells, c.views[ever].cells; have > want && !c.views[ever].stopped {
			found = append(found, finding{q.names[i] + " together: at most " + q.names[ever], have, want, true})
		}
	}
	return found
}

// began reports whether all cells of the counter were written to since a view came. What
// others have is not outside of the view yet.
func (c *counted) began(v book.View, versions []uint64) bool {
	if len(versions) == 0 {
		versions = []uint64{1} // Home is there, at least.
	}
	for shard, version := range versions {
		if version != 0 && (shard >= len(c.books) || c.books[shard] < int64(v.Book)) {
			return false
		}
	}
	return true
}

// compare evaluates a pair, window by window.
func (q *equations) compare(c *counted, p pair) (found []finding) {
	grid := q.views[p.coarse].Grid
	last := calendar.Span{}
	fine := summed(c.views[p.fine].windows, func(ms int64) int64 {
		if ms < last.From || ms >= last.To {
			last = grid.At(ms)
		}
		return last.From
	}, p.from)
	coarse := summed(c.views[p.coarse].windows, func(ms int64) int64 { return ms }, p.from)
	if slices.Equal(fine, coarse) {
		return nil
	}
	differ := func(start int64, have, want uint64) {
		found = append(found, finding{
			fmt.Sprintf("%s in the window from %s: %s", q.names[p.fine], time.UnixMilli(start).UTC().Format(time.RFC3339), q.names[p.coarse]),
			have, want, start >= p.sure,
		})
	}
	for len(fine) > 0 || len(coarse) > 0 {
		switch {
		case len(coarse) == 0 || len(fine) > 0 && fine[0].start < coarse[0].start:
			differ(fine[0].start, fine[0].n, 0)
			fine = fine[1:]
		case len(fine) == 0 || coarse[0].start < fine[0].start:
			differ(coarse[0].start, 0, coarse[0].n)
			coarse = coarse[1:]
		default:
			if fine[0].n != coarse[0].n {
				differ(fine[0].start, fine[0].n, coarse[0].n)
			}
			fine, coarse = fine[1:], coarse[1:]
		}
	}
	return found
}
