package spread

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

// The explorer plays what several servers do to one counter in every order of their
// steps. A step is what one partition does at once: it reads some cells, or applies
// some batches. States that are the same are gone on from once. After each step
// the cells must add up to what was applied; and when all have ended, someone who
// tidies up must find the counter whole, and no shard left.

// A scene is a store, and what servers do to the counter in it.
type scene struct {
	partitions int
	least      int     // of partitions
	sole       bool    // One server uses the store; all parts are its own.
	before     []act   // what the first server does before; then all know of it
	parts      [][]act // what the servers do, each one act after the other
	bound      int     // how often a server may be interrupted by another; 0 is any number of times
	fault      fault   // what may go wrong, once
}

// A fault is what may go wrong, as bits.
type fault uint8

const (
	crash    fault = 1 << iota // a server dies
	silent                     // what was applied is not acknowledged
	away                       // a partition can't be reached
	anyFault = crash | silent | away
)

// An act is something that a server does.
type act struct {
	name   string
	begin  func(w *world, s *actor) machine
	reads  bool
	refuse bool // It may be refused.
}

// the counter
var subject = store.Cell{Namespace: "n", Key: "c"}

// shardsMost is how many shards the counter has at most.
const shardsMost = 4

// parts are its cells.
var parts = func() (cells [shardsMost]store.Cell) {
	for i := range cells {
		cells[i] = store.ShardCell(subject, i)
	}
	return cells
}()

// A world is a scene that is being played.
type world struct {
	scene  *scene
	under  *memstore.Store
	actors []*actor
	rows   []*row
	fault  fault
	last   int // the row that made the last step
	left   int // interruptions

	book   int64 // the highest that was published
	truth  int64 // what was applied
	exists bool
	lossy  bool // home has lost its layout
	once   int  // writes with the token

	loud  bool     // It notes its steps.
	trace []string // the steps
	wrong string   // what is not as it should be
}

// An actor is a server.
type actor struct {
	core
	id    int64 // of the book that it knows
	gen   int64
	folds *row // that is under way
	dead  bool
}

// A row is a row of acts of a server: those of a part, or a fold that others wait
// for.
type row struct {
	name  string
	by    *actor
	acts  []act
	m     machine
	calls []call
	got   []answer
	errs  [][]error // of each batch of each call
	steps []*step

	fresh    bool  // No step of the act was made yet.
	applied  int   // how often the act's write was applied
	low, top int64 // between what the counter was since the act began
}

// A step is what one partition is asked to do for a call.
type step struct {
	call      int
	which     []int // of its cells or batches
	fold      bool  // it waits for a fold
	made      bool
	delivered bool
}

// A choice is one way to go on.
type choice struct {
	row, step int
	what      fault // 0 is nothing
	deliver   bool
}

func newWorld(s *scene, loud bool) *world {
	w := &world{scene: s, fault: s.fault, left: s.bound, last: -1, loud: loud}
	now := time.Unix(1<<30, 0) // so that versions are known from other numbers
	w.under = memstore.New(memstore.Options{Partitions: s.partitions, Now: func() time.Time { return now }})
	for i, acts := range s.parts {
		if i == 0 || !s.sole {
			w.newActor()
		}
		w.rows = append(w.rows, &row{name: string(rune('A' + i)), by: w.actors[len(w.actors)-1], acts: acts})
	}
	w.alone(w.actors[0], append([]act{add(10)}, s.before...)...)
	if !w.lossy {
		for _, a := range w.actors[1:] {
			w.alone(a, reading)
		}
	}
	for _, r := range w.rows {
		w.begin(r)
	}
	return w
}

func (w *world) newActor() *actor {
	s := &actor{core: core{partitions: w.scene.partitions, sole: w.scene.sole}, gen: int64(100 * (1 + len(w.actors)))}
	s.book = func(store.Cell) (int64, *store.Event) { return s.id, touchUnder(s.id) }
	w.actors = append(w.actors, s)
	return s
}

// alone has a server act, with nobody else.
func (w *world) alone(by *actor, acts ...act) {
	rows, played, fault := w.rows, w.scene, w.fault
	r := &row{name: "alone", by: by, acts: acts}
	w.rows, w.scene, w.fault = []*row{r}, &scene{partitions: played.partitions, sole: played.sole}, 0
	w.last = -1
	for w.begin(r); w.wrong == ""; {
		c := w.choices()
		if len(c) == 0 {
			break
		}
		w.play(c[0])
	}
	w.rows, w.scene, w.fault, w.last = rows, played, fault, -1
}

func (w *world) fails(format string, args ...any) {
	if w.wrong == "" {
		w.wrong = fmt.Sprintf(format, args...)
	}
}

// begin begins the next act of a row.
func (w *world) begin(r *row) {
	for r.m == nil && len(r.acts) > 0 {
		r.m, r.fresh, r.applied, r.low, r.top = r.acts[0].begin(w, r.by), true, 0, w.truth, w.truth
		w.advance(r, r.m.next(nil))
	}
}

// advance has a row make calls; if there are none, its act has ended.
func (w *world) advance(r *row, calls []call) {
	if r.calls, r.steps = calls, nil; len(calls) == 0 {
		w.end(r)
		return
	}
	r.got, r.errs = make([]answer, len(calls)), make([][]error, len(calls))
	for i := range calls {
		c := &calls[i]
		if c.fold != nil {
			r.steps = append(r.steps, &step{call: i, fold: true})
			if r.by.folds == nil {
				r.by.folds = &row{name: "fold", by: r.by, acts: []act{{name: "fold", begin: func(_ *world, s *actor) machine { return s.newFold(subject) }}}}
				w.rows = append(w.rows, r.by.folds)
				w.begin(r.by.folds)
			}
			continue
		}
		at := make([][]int, w.scene.partitions)
		for n, cell := range c.read {
			p := store.PartitionOf(cell, w.scene.partitions)
			at[p] = append(at[p], n)
		}
		for n := range c.apply {
			at[c.apply[n].Partition] = append(at[c.apply[n].Partition], n)
		}
		r.got[i] = answer{values: make([]store.Value, len(c.read)), replies: make([]store.Reply, len(c.apply))}
		r.errs[i] = make([]error, len(c.apply))
		for _, which := range at {
			if which != nil {
				r.steps = append(r.steps, &step{call: i, which: which})
			}
		}
	}
}

// choices returns how the world may go on.
func (w *world) choices() (some []choice) {
	for i, r := range w.rows {
		if r.by.dead || w.scene.bound > 0 && w.left == 0 && w.interrupts(r) {
			continue
		}
		for j, s := range r.steps {
			switch {
			case s.fold || s.delivered:
			case s.made:
				some = append(some, choice{row: i, step: j, deliver: true})
			default:
				some = append(some, choice{row: i, step: j})
				for _, f := range []fault{silent, away} {
					if w.fault&f != 0 && (f == away || r.calls[s.call].apply != nil) {
						some = append(some, choice{row: i, step: j, what: f})
					}
				}
			}
		}
		if w.fault&crash != 0 && len(r.steps) > 0 {
			some = append(some, choice{row: i, what: crash})
		}
	}
	return some
}

// interrupts reports whether a step of a row interrupts another server, which could
// go on.
func (w *world) interrupts(r *row) bool {
	if w.last < 0 || w.rows[w.last].by == r.by || w.rows[w.last].by.dead {
		return false
	}
	return slices.ContainsFunc(w.rows, func(o *row) bool {
		return o.by == w.rows[w.last].by && slices.ContainsFunc(o.steps, func(s *step) bool { return !s.fold && !s.delivered })
	})
}

// play makes a step.
func (w *world) play(c choice) {
	r := w.rows[c.row]
	if w.interrupts(r) {
		w.left--
	}
	w.last = c.row
	if c.what != 0 {
		w.fault = 0
	}
	if c.what == crash {
		w.note(r, "dies")
		r.by.dead = true
		return
	}
	s := r.steps[c.step]
	if !c.deliver {
		w.make(r, s, c.what)
		s.made = true
	}
	// Others of the same server may be told of their steps before.
	if c.deliver || !w.scene.sole || r.calls[s.call].alone {
		s.delivered = true
		w.deliver(r)
	}
	w.check()
}

func (w *world) note(r *row, format string, args ...any) {
	if w.loud {
		w.trace = append(w.trace, r.name+" "+fmt.Sprintf(format, args...))
	}
}

// make has the store make a step.
func (w *world) make(r *row, s *step, what fault) {
	if r.fresh && !w.scene.sole {
		r.low, r.top = w.truth, w.truth // The act might as well have begun now.
	}
	r.fresh = false
	c, got := &r.calls[s.call], &r.got[s.call]
	if l, ok := r.m.(*loser); ok {
		c.apply = l.batches(w)
	}
	for _, n := range s.which {
		if what == away {
			err := store.ErrUnavailable
			if c.read != nil {
				w.note(r, "%T reads %s, which is out of reach", r.m, c.read[n].Key)
				got.err = err
			} else {
				w.note(r, "%T applies to partition %d, which is out of reach", r.m, c.apply[n].Partition)
				r.errs[s.call][n] = err
			}
			continue
		}
		if c.read != nil {
			if err := w.under.Read(context.Background(), c.read[n:n+1], got.values[n:n+1]); err != nil {
				w.fails("%v", err)
			}
			w.note(r, "%T reads %s: %s", r.m, c.read[n].Key, shown(got.values[n]))
			continue
		}
		r.errs[s.call][n] = w.under.Apply(context.Background(), c.apply[n:n+1], got.replies[n:n+1])
		w.applied(r, &c.apply[n], &got.replies[n])
		if what == silent {
			w.note(r, "is not told")
			r.errs[s.call][n] = store.ErrUnknown
		}
	}
}

// deliver tells a row what has become of its calls, if that is known of all.
func (w *world) deliver(r *row) {
	for _, s := range r.steps {
		if !s.delivered {
			return
		}
	}
	for i := range r.got {
		if r.calls[i].apply != nil {
			if r.got[i].err = store.Answer(r.errs[i], r.got[i].replies); r.calls[i].own && stale(r.got[i].replies) {
				r.by.id = w.book
			}
		}
	}
	w.advance(r, r.m.next(r.got))
}

// end ends the act of a row.
func (w *world) end(r *row) {
	if len(r.acts) == 0 {
		return
	}
	a, m := r.acts[0], r.m
	r.m, r.acts = nil, r.acts[1:]
	if r == r.by.folds {
		r.by.folds = nil
		for _, o := range w.rows {
			for _, s := range o.steps {
				if s.fold && o.by == r.by && !s.delivered {
					o.got[s.call].err, s.delivered = m.(*fold).err, true
					w.deliver(o)
				}
			}
		}
		return
	}
	switch m := m.(type) {
	case *framed:
		w.judge(r, &a, m.write)
	case *sum:
		if m.err == nil && (m.values[0].N > r.top || m.values[0].N < r.low && !w.lossy) {
			w.fails("%s read %d, and it was %d to %d", r.name, m.values[0].N, r.low, r.top)
		}
		if m.err != nil && w.fault == w.scene.fault {
			w.fails("%s can't read: %v", r.name, m.err)
		}
	}
	w.begin(r)
}
