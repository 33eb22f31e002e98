package pgstore

import (
	"cmp"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/store"
)

// A state is what a transaction has locked and loaded, and what it makes of it.
type state struct {
	limits store.Limits
	margin int64
	work   *work
	clock  decide.Clock

	order      []store.Cell // sorted
	cells      map[store.Cell]*cell
	tokens     map[tokenID]*token
	remembered []tokenID
	marks      map[store.Writer]*mark
	floor      store.Writer
	retired    store.Writer // those up to it lose their marks; 0 if none is retired
	markCount  int
	gen        int32
	spaces     map[string]*space
	spaceCount int
	unnumbered decide.Record
	versions   []int64 // not yet used
	pending    []pending
	refused    map[int64]store.Outcome // of pending adds, by id
	forgotten  []pending               // refused adds, whose tokens go

	parts   map[store.PartCell]*part
	tallies map[tallyID]decide.Record // of what is changed in epochs
	left    *cell                     // the last that was left absent
	books   decide.Fences
	floors  decide.Floors
	raised  map[fence]int64

	// Cells that were not loaded before are asked for with these, while the transaction is
	// open; err is the first error.
	sql *statements
	ask func(sql string, args []any, read func(pgx.Rows) error)
	err error

	due     bool // there is what need not be kept since the work found no room
	full    bool // something was refused for want of room
	recount bool // it must be decided again, with other locks
}

type cell struct {
	row, now store.Value
	last     uint64 // the highest version it had
}

// termOf returns what the row of a cell holds besides its value: its version, its term, and
// the deadline of an object.
func termOf(v store.Value) (version, term, until int64) {
	switch version = int64(v.Version); v.Layout {
	case 0:
		return version, v.DeadlineMS, 0
	case store.LayoutObject:
		return -version, 0, v.DeadlineMS
	default:
		return version, -v.Layout, 0
	}
}

// setTerm is the reverse of termOf. Version 0 is that of a cell that does not exist.
func setTerm(v *store.Value, version, term, until int64) {
	v.Exists, v.Version = version != 0, uint64(max(version, -version))
	if v.DeadlineMS, v.Layout = max(term, 0), max(-term, 0); version < 0 {
		v.DeadlineMS, v.Layout = until, store.LayoutObject
	}
}

type tokenID struct {
	cell store.Cell
	name string
}

// A token is what is remembered, and the generations that have a row of it, and whether
// it was refused there.
type token struct {
	decide.Token
	known    bool
	gens     []int32
	refusals []bool
}

type mark struct {
	decide.Mark
	was     bool // it has a row
	changed bool

	made // of a plain batch, instead of results
}

// A space is how much a namespace has.
type space struct {
	keys, tokens, refusals             int64 // as counted by others
	madeKeys, madeTokens, madeRefusals int64
}

func (s *space) exists() bool  { return s.keys+s.madeKeys > 0 || s.tokens+s.madeTokens > 0 }
func (s *space) existed() bool { return s.keys > 0 || s.tokens > 0 }

// pendingMax is how many pending adds one transaction folds.
const pendingMax = 10_000

type pending struct {
	id    int64
	cell  int // in order
	delta int64
	gen   int32 // of its token; 0 if it has none
	token []byte
}

// Cell returns a cell as it is now.
func (st *state) Cell(c store.Cell) store.Value { return st.cells[c].now }

// Put makes a cell v.
func (st *state) Put(c store.Cell, v store.Value) uint64 {
	at, sp := st.cells[c], st.space(c.Namespace)
	if at.now.Exists {
		sp.madeKeys--
	}
	if !v.Exists {
		at.now, st.left = store.Value{}, at
		return 0
	}
	sp.madeKeys++
	v.Version = max(uint64(st.versions[0]), at.last+1)
	st.versions = st.versions[1:]
	at.now, at.last = v, v.Version
	return v.Version
}

// Token returns what is remembered of a token.
func (st *state) Token(c store.Cell, name string) (decide.Token, bool) {
	t := st.tokens[tokenID{c, name}]
	return t.Token, t.known
}

// Remember keeps the decision on a token.
func (st *state) Remember(c store.Cell, name string, t decide.Token) {
	id := tokenID{c, name}
	st.tokens[id].Token, st.tokens[id].known = t, true
	st.remembered = append(st.remembered, id)
	st.space(c.Namespace).madeTokens++
	if t.Refused() {
		st.space(c.Namespace).madeRefusals++
	}
}

// Full reports whether a namespace has no room for n more. Close to a limit
// only a transaction that has the namespace alone can say no to that; one that
// says yes needs no lock, since it is so in what others have committed. The limit of
// refusals is not worth that: several at once may go a little beyond it.
func (st *state) Full(namespace string, what decide.Room, n int64) bool {
	if namespace == "" {
		return false
	}
	if !st.work.create {
		st.work.create, st.recount = true, true
		return true
	}
	sp := st.space(namespace)
	if !sp.exists() {
		if !st.work.found {
			st.work.found, st.recount = true, true
			return true
		}
		if st.namespaces() >= st.limits.NamespacesMax {
			st.full = true
			return true
		}
	}
	if what == decide.Refusals && sp.refusals+sp.madeRefusals+n > st.limits.RefusalsMax() {
		st.full = true
		return true
	}
	have, limit := sp.keys+sp.madeKeys, st.limits.KeysMax
	if what != decide.Keys {
		have, limit = sp.tokens+sp.madeTokens, st.limits.TokensMax
	}
	if have+n > limit {
		st.full = true
		return true
	}
	if have+n-1+st.margin > limit && !st.work.alone[namespace] {
		st.work.alone[namespace], st.recount = true, true
		return true
	}
	return false
}

// namespaces returns how many there are now.
func (st *state) namespaces() int {
	n := st.spaceCount
	for ns, sp := range st.spaces {
		if ns == "" || sp.exists() == sp.existed() {
			continue
		}
		if sp.exists() {
			n++
		} else {
			n--
		}
	}
	return n
}

func (st *state) space(namespace string) *space {
	sp := st.spaces[namespace]
	if sp == nil {
		sp = &space{}
		st.spaces[namespace] = sp
	}
	return sp
}

// expire removes the cells whose deadline has come. No batch did it, so what
// they held is taken from the record of batches without a writer.
func (st *state) expire() {
	for c, at := range st.cells {
		if at.now.Exists && at.now.DeadlineMS != 0 && at.now.DeadlineMS <= st.clock.NowMS {
			st.unnumbered.Merge(decide.Change(c, -uint64(at.now.N)))
			if at.now.Layout == store.LayoutObject {
				st.unnumbered.Merge(decide.Lose(st, c))
			}
			st.Put(c, store.Value{})
		}
	}
}

// more reports whether more may be pending than was loaded.
func (st *state) more() bool { return len(st.pending) == pendingMax }

// fold adds what is pending to its cells. A counter that has views has it outside of all
// of them: only a server knows which they are, and which windows it would be in.
func (st *state) fold() {
	if len(st.pending) == 0 {
		return
	}
	riders := st.outsides()
	var b store.Batch
	var r store.Reply
	for _, p := range st.pending {
		c := st.order[p.cell]
		d := store.Delta{
			Cell: c, Op: store.OpAdd, N: p.delta,
			Guard: store.Guard{Laid: true, Layout: st.cells[c].now.Layout}, // its own cell takes it, however large it is
		}
		if d.Guard.Layout == store.LayoutObject {
			d.Guard = store.Guard{} // an object refuses it
		}
		if len(riders[c]) > 0 {
			d.Event = &store.Event{Riders: riders[c]}
		}
		b.Deltas = append(b.Deltas, d)
	}
	decide.Deltas(st, st.clock, &b, &r, &st.unnumbered, nil)
	for i, res := range r.Results {
		if res.Outcome != store.Applied {
			st.refuse(&st.pending[i], res.Outcome)
		}
	}
}

// refuse keeps a pending add from being counted. Its token is forgotten, as that
// of any write that is refused.
func (st *state) refuse(p *pending, why store.Outcome) {
	st.refused[p.id] = why
	if len(p.token) == 0 {
		return
	}
	st.forgotten = append(st.forgotten, *p)
	if t := st.tokens[tokenID{st.order[p.cell], string(p.token)}]; t != nil {
		*t = token{}
	}
	p.gen = 0 // it was not counted yet
}

// apply decides a batch if its mark, the fences and its conditions let it.
func (st *state) apply(b *store.Batch, r *store.Reply) error {
	if b.Writer == 0 {
		if st.admits(b, r) {
			decide.Deltas(st, st.clock, b, r, &st.unnumbered, st.retire)
		}
		return nil
	}
	m := st.marks[b.Writer]
	if m == nil {
		if !st.work.admit {
			st.work.admit, st.recount = true, true
			return nil
		}
		if !st.enlists(b.Writer, r) {
			return nil
		}
		m = &mark{}
	}
	digest := b.Digest()
	if m.plain() && m.Seq == b.Seq && m.Digest == digest {
		if err := m.recall(b); err != nil {
			return err
		}
	}
	if !m.Judge(b, digest, r) || !st.admits(b, r) {
		return nil
	}
	if st.marks[b.Writer] == nil {
		st.marks[b.Writer] = m
		st.markCount++
	}
	decide.Deltas(st, st.clock, b, r, &m.Record, st.retire)
	m.Set(b, digest, r)
	m.changed, m.made = true, made{}
	return nil
}

// enlists reports whether an unknown writer is let in; otherwise it has filled r.
func (st *state) enlists(w store.Writer, r *store.Reply) bool {
	r.Err = decide.Admit(w, st.floor, st.markCount, st.limits.WritersMax)
	return r.Err == nil
}

// recall makes the results of a mark that is of a plain batch, which is b. What b adds
// to parts may have changed since, with the definitions, and so may its bounds.
func (m *mark) recall(b *store.Batch) error {
	leads := *b
	leads.Deltas, leads.Books, leads.Floors = slices.Clone(b.Deltas), nil, nil
	for i := range leads.Deltas {
		leads.Deltas[i].Event, leads.Deltas[i].Guard.Bound = nil, nil
	}
	p, ok := plainOf(&leads)
	if !ok || !m.fits(p) {
		return store.Errorf(store.KindCorrupt, "the mark of writer %d is not that of its batch", b.Writer)
	}
	first := store.Reply{}
	p.answer(&first, &m.made)
	m.Results = first.Results
	return nil
}

// retire forgets the marks of writers up to last and refuses those writers from
// now on.
func (st *state) retire(last store.Writer) {
	st.floor = max(st.floor, last)
	st.retired = max(st.retired, last)
	for w, m := range st.marks {
		if w <= last {
			st.unnumbered.Merge(m.Record)
			delete(st.marks, w)
			st.markCount--
		}
	}
}

// A counted is what there is more of, or less, in a namespace: keys, or tokens
// of a generation, or those of them that were refused.
type counted struct {
	namespace string
	gen       int32
}

// counts returns what has to be added to the counts of namespaces, sorted.
func (st *state) counts() (order []counted, n map[counted]int64) {
	n = make(map[counted]int64)
	for c, at := range st.cells {
		if at.now.Exists != at.row.Exists {
			if at.now.Exists {
				n[counted{c.Namespace, 0}]++
			} else {
				n[counted{c.Namespace, 0}]--
			}
		}
	}
	for _, id := range st.remembered {
		t := st.tokens[id]
		for i, gen := range t.gens {
			n[counted{id.cell.Namespace, gen}]--
			if t.refusals[i] {
				n[counted{id.cell.Namespace, -gen}]--
			}
		}
		n[counted{id.cell.Namespace, st.gen}]++
		if t.Refused() {
			n[counted{id.cell.Namespace, -st.gen}]++
		}
	}
	for _, p := range st.pending {
		if p.gen > 0 {
			n[counted{st.order[p.cell].Namespace, p.gen}]++
		}
	}
	maps.DeleteFunc(n, func(_ counted, n int64) bool { return n == 0 })
	order = slices.SortedFunc(maps.Keys(n), func(a, b counted) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.gen, b.gen))
	})
	return order, n
}
