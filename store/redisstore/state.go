package redisstore

import (
	"context"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/internal/plan"
	"github.com/quipudb/quipu/store"
)

// A state is what a batch names of a partition: as it was when it was loaded,
// and as the batch leaves it. It is a decide.State.
type state struct {
	home   *partition
	limits store.Limits // of the partition
	spaces []*space
	find   map[string]*space

	drawers []*tray
	trays   map[drawer]*tray
	held    map[store.PartCell]*held
	fences  []*fence
	books   decide.Fences
	floors  decide.Floors
	turns   []int64 // from when on events are decided otherwise

	// As loaded.
	nowMS       int64
	nowUS       int64
	base        uint64 // the versions above it are for this batch
	mark, floor string
	marks       string // how many
	names       int64  // namespaces that may have keys or tokens

	// As decided.
	version  uint64 // the last one given
	record   decide.Record
	full     bool // it was told that there is no room
	crowded  bool // for one more namespace
	newMark  string
	newFloor store.Writer
	missed   []store.PartCell // parts that were asked for and not loaded
}

// A space is what a batch names of a namespace.
type space struct {
	name   string
	cells  []*cell
	tokens []*token
	byKey  map[string]*cell
	field  map[string]*token

	known         bool  // it is among the names
	had, held     int64 // keys and tokens there were
	keys, decided int64 // keys and tokens there are now
	refused       int64 // tokens that remember a refusal
}

type cell struct {
	key   string
	stamp string      // as loaded, "" if it was not there
	was   store.Value // as loaded
	is    store.Value
	gone  bool // it had expired when it was loaded
	put   bool // it was changed

	looked bool // the decision depends on its value
}

type token struct {
	name, field string
	had         bool // it was there
	is          decide.Token
	put         bool
}

// newState returns a state that names nothing yet.
func newState(p *partition, limits store.Limits) *state {
	return &state{
		home: p, limits: limits, find: make(map[string]*space), trays: make(map[drawer]*tray), held: make(map[store.PartCell]*held),
		books: make(decide.Fences), floors: make(decide.Floors),
	}
}

// again returns a state that names the same, and the parts that were missed. None of it is
// decided.
func (st *state) again() *state {
	next := newState(st.home, st.limits)
	for _, sp := range st.spaces {
		next.space(sp.name)
		for _, c := range sp.cells {
			next.cell(store.Cell{Namespace: sp.name, Key: c.key})
		}
	}
	for id := range st.held { // the missed ones too
		next.part(id.Cell, id.Part)
	}
	return next
}

// space names a namespace.
func (st *state) space(name string) *space {
	s := st.find[name]
	if s == nil {
		s = &space{name: name, byKey: make(map[string]*cell), field: make(map[string]*token)}
		st.find[name] = s
		st.spaces = append(st.spaces, s)
	}
	return s
}

// cell names a cell.
func (st *state) cell(c store.Cell) *cell {
	s := st.space(c.Namespace)
	x := s.byKey[c.Key]
	if x == nil {
		x = &cell{key: c.Key}
		s.byKey[c.Key] = x
		s.cells = append(s.cells, x)
	}
	return x
}

// token names a token.
func (st *state) token(c store.Cell, name string) *token {
	s := st.space(c.Namespace)
	field := tokenField(c.Key, name)
	x := s.field[field]
	if x == nil {
		x = &token{name: name, field: field}
		s.field[field] = x
		s.tokens = append(s.tokens, x)
	}
	return x
}

// batch names everything that a batch does.
func (st *state) batch(b *store.Batch) {
	plan.Names(b, func(c store.Cell) { st.cell(c) }, func(c store.Cell, name string) { st.token(c, name) })
	st.besides(b)
}

// Cell returns a cell as it is now.
func (st *state) Cell(c store.Cell) store.Value { return st.cell(c).is }

// Put makes a cell v. To delete what is not there changes nothing.
func (st *state) Put(c store.Cell, v store.Value) uint64 {
	x, s := st.cell(c), st.space(c.Namespace)
	if !x.is.Exists && !v.Exists {
		return 0
	}
	if x.is.Exists {
		s.keys--
	}
	if v.Exists {
		s.keys++
		st.version++
		v.Version = st.version
	}
	x.is, x.put = v, true
	return v.Version
}

// Token returns what is remembered of a token.
func (st *state) Token(c store.Cell, name string) (decide.Token, bool) {
	x := st.token(c, name)
	return x.is, x.had || x.put
}

// Remember keeps the decision on a token.
func (st *state) Remember(c store.Cell, name string, t decide.Token) {
	x, s := st.token(c, name), st.space(c.Namespace)
	x.is, x.put = t, true
	s.decided++
	if t.Refused() {
		s.refused++
	}
}

// Full reports whether a namespace has no room for n more.
func (st *state) Full(namespace string, what decide.Room, n int64) bool {
	s := st.space(namespace)
	if what == decide.Refusals && s.refused+n > st.limits.RefusalsMax() {
		return namespace != "" // what has expired makes no room for it
	}
	full := what == decide.Keys && s.keys+n > st.limits.KeysMax || what != decide.Keys && s.decided+n > st.limits.TokensMax
	if !full && s.keys == 0 && s.decided == 0 {
		others := st.names // one without keys and tokens is none
		for _, o := range st.spaces {
			if o.known {
				others--
			}
			if o != s && o.name != "" && (o.keys > 0 || o.decided > 0) {
				others++
			}
		}
		full = others >= int64(st.limits.NamespacesMax)
		st.crowded = st.crowded || full && namespace != ""
	}
	full = full && namespace != ""
	st.full = st.full || full
	return full
}

// load reads everything that is named, and takes versions.
func (s *Store) load(ctx context.Context, st *state, writer store.Writer, versions int, w wait) error {
	// The time is kept if the decision depends on it; a cell that has expired is
	// removed by commit. And whoever waits for replicas must have written something.
	keep := versions > 0 || w != noWait
	for _, sp := range st.spaces {
		keep = keep || len(sp.tokens) > 0
	}
	keys := []string{st.home.head, st.home.marks, st.home.names}
	args := []string{
		s.now(), strconv.FormatInt(s.limits.TokenWindow.Milliseconds(), 10), writerName(writer),
		strconv.Itoa(versions), flag(keep), strconv.Itoa(len(st.spaces)), strconv.Itoa(len(st.fences)), strconv.Itoa(len(st.drawers)),
	}
	for _, sp := range st.spaces {
		keys = st.home.appendSpace(keys, sp.name)
		args = append(args, sp.name, strconv.Itoa(len(sp.cells)), strconv.Itoa(len(sp.tokens)))
		for _, c := range sp.cells {
			args = append(args, c.key)
		}
		for _, t := range sp.tokens {
			args = append(args, t.field)
		}
	}
	for _, f := range st.fences {
		args = append(args, f.field)
	}
	for _, t := range st.drawers {
		keys = append(keys, st.home.contents(t.drawer))
		args = append(args, strconv.Itoa(len(t.parts)))
		for _, h := range t.parts {
			args = append(args, h.field)
		}
	}
	asked := s.clocks[st.home.number].Ask()
	m, err := s.look(ctx, call{loadScript, keys, args}, w)
	if err != nil {
		return err
	}
	if err = st.loaded(m); err == nil {
		s.clocks[st.home.number].Tell(st.nowMS, asked)
	}
	return err
}

func writerName(w store.Writer) string {
	if w == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(w), 10)
}

// loaded takes the reply of load.lua.
func (st *state) loaded(m rueidis.RedisMessage) error {
	all, err := partsOf(m, 6+7*len(st.spaces)+1+len(st.drawers))
	if err != nil {
		return err
	}
	p := parser{all: all}
	st.nowUS, st.base = p.number(), uint64(p.number())
	st.nowMS = st.nowUS / 1000
	st.mark, st.floor = p.text(), p.text()
	st.marks = strconv.FormatInt(p.number(), 10)
	st.names = p.number()
	st.version = st.base
	for _, sp := range st.spaces {
		sp.known = p.number() == 1
		sp.had, sp.held, sp.refused = p.number(), p.number(), p.number()
		sp.keys, sp.decided = sp.had, sp.held
		stamps, values, tokens := p.list(), p.list(), p.list()
		if p.err == nil && (len(stamps) != len(sp.cells) || len(values) != len(sp.cells) || len(tokens) != len(sp.tokens)) {
			return store.Errorf(store.KindCorrupt, "reply of another length")
		}
		if p.err != nil {
			break
		}
		for i, c := range sp.cells {
			c.stamp = stamps[i]
			if c.was, err = cellValue(stamps[i], values[i]); err != nil {
				return err
			}
			c.is = c.was
			if c.was.DeadlineMS != 0 && c.was.DeadlineMS <= st.nowMS {
				c.is, c.gone = store.Value{}, true
				sp.keys--
				// No delta does it, so it is entered here.
				st.record.Merge(decide.Change(store.Cell{Namespace: sp.name, Key: c.key}, -uint64(c.was.N)))
			}
		}
		for i, t := range sp.tokens {
			if t.had = tokens[i] != ""; t.had {
				if t.is, err = parseToken(tokens[i]); err != nil {
					return err
				}
			}
		}
	}
	if err := st.loadedParts(&p); err != nil {
		return err
	}
	st.lose()
	return nil
}

// lose removes the bytes of objects that had expired. Those that were not loaded are missed.
func (st *state) lose() {
	for _, sp := range st.spaces {
		for _, c := range sp.cells {
			if c.gone && c.was.Layout == store.LayoutObject {
				st.record.Merge(decide.Lose(st, store.Cell{Namespace: sp.name, Key: c.key}))
			}
		}
	}
}

// A parser takes the parts of a reply one after the other and keeps the first
// error.
type parser struct {
	all []rueidis.RedisMessage
	err error
}

func (p *parser) next() rueidis.RedisMessage {
	m := p.all[0]
	p.all = p.all[1:]
	return m
}

func (p *parser) failed(err error) {
	if err != nil && p.err == nil {
		p.err = store.Errorf(store.KindCorrupt, "reply of a script: %w", err)
	}
}

func (p *parser) number() int64 {
	m := p.next()
	n, err := m.AsInt64()
	p.failed(err)
	return n
}

func (p *parser) text() string {
	m := p.next()
	s, err := m.ToString()
	p.failed(err)
	return s
}

// list returns strings; those that are not there are "".
func (p *parser) list() []string {
	m := p.next()
	all, err := m.AsStrSlice()
	p.failed(err)
	return all
}

// changes reports whether there is anything to write.
func (st *state) changes() bool {
	if st.newMark != "" || st.newFloor != 0 || slices.ContainsFunc(st.drawers, (*tray).changes) {
		return true
	}
	for _, f := range st.fences {
		if st.raised(f) != "" {
			return true
		}
	}
	for _, sp := range st.spaces {
		for _, c := range sp.cells {
			if c.put || c.gone {
				return true
			}
		}
		for _, t := range sp.tokens {
			if t.put {
				return true
			}
		}
	}
	return false
}

// horizon returns from when on the same batch might be decided otherwise: a cell
// or a token it met expires, or a cell it made.
func (st *state) horizon(window time.Duration) int64 {
	horizon := int64(math.MaxInt64)
	at := func(ms int64) {
		if ms > st.nowMS {
			horizon = min(horizon, ms)
		}
	}
	for _, ms := range st.turns {
		at(ms)
	}
	w := window.Milliseconds()
	for _, sp := range st.spaces {
		for _, c := range sp.cells {
			at(c.was.DeadlineMS)
			at(c.is.DeadlineMS)
		}
		for _, t := range sp.tokens {
			if t.had {
				at(t.is.AtMS + w)
				at(t.is.AtMS + store.TokenKeptMS(window))
			}
			if ms, ok := store.TokenTime(t.name); ok {
				at(ms + w + 1)
				at(ms - w + 1)
			}
		}
	}
	return horizon
}

// commit writes what was decided, if everything that was loaded is still so, and
// reports whether it did.
func (s *Store) commit(ctx context.Context, st *state, writer store.Writer, w wait) (bool, error) {
	keys := []string{st.home.head, st.home.marks, st.home.names, st.home.dues}
	columns := st.appendFences(nil)
	creates, removes := false, false
	for _, sp := range st.spaces {
		keys = st.home.appendSpace(keys, sp.name)
		var created, removed bool
		columns, created, removed = sp.appendArgs(columns)
		creates, removes = creates || created, removes || removed
	}
	if len(st.drawers) > 0 {
		keys = append(keys, st.home.drawers, st.home.tally)
	}
	for _, t := range st.drawers {
		keys = append(keys, st.home.contents(t.drawer), st.home.order(t.drawer))
		columns = t.appendArgs(columns)
	}
	newFloor := ""
	if st.newFloor != 0 {
		newFloor = strconv.FormatUint(uint64(st.newFloor), 10)
	}
	args := []string{
		s.now(), strconv.FormatInt(st.horizon(s.limits.TokenWindow), 10), strconv.FormatUint(st.base, 10), flag(creates), flag(removes),
		writerName(writer), st.mark, st.newMark, st.floor, newFloor, flag(st.full), strconv.FormatInt(st.names, 10),
	}
	args = s.appendLimits(args)
	args = appendRecord(args, st.record)
	args = append(args, strconv.FormatInt(s.share.RefusalsMax(), 10),
		strconv.Itoa(len(st.fences)), strconv.Itoa(len(st.spaces)), strconv.Itoa(len(st.drawers)))
	m, err := s.run(ctx, call{commitScript, keys, append(args, columns...)}, w)
	if err != nil {
		return false, err
	}
	n, err := m.AsInt64()
	if err != nil {
		return false, store.Errorf(store.KindCorrupt, "reply of a script: %w", err)
	}
	return n == 1, nil
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// appendArgs appends what commit.lua takes of a namespace, and reports whether
// cells were made where none was, and removed.
func (sp *space) appendArgs(args []string) (_ []string, creates, removes bool) {
	var unknown, remembered []*token
	refused := 0
	for _, t := range sp.tokens {
		if !t.had {
			unknown = append(unknown, t)
		}
		if t.put {
			remembered = append(remembered, t)
			if t.is.Refused() {
				refused++
			}
		}
	}
	var checks, puts, touched, gone []*cell
	fresh := 0
	for _, c := range sp.cells {
		touch := c.put && !c.looked && c.was.Exists && c.is.Exists && small(c.was.N, c.is.N)
		if !touch {
			checks = append(checks, c)
		}
		switch {
		case touch:
			touched = append(touched, c)
		case c.put && c.is.Exists:
			puts = append(puts, c)
			if !c.was.Exists {
				fresh++
			}
		case (c.put || c.gone) && c.was.Exists:
			gone = append(gone, c)
			fresh--
		}
		creates = creates || c.put && !c.was.Exists
		removes = removes || (c.put || c.gone) && !c.is.Exists
	}
	args = append(args, sp.name, strconv.FormatInt(sp.had, 10), strconv.Itoa(fresh), strconv.FormatInt(sp.held, 10),
		strconv.Itoa(len(checks)), strconv.Itoa(len(unknown)), strconv.Itoa(len(puts)), strconv.Itoa(len(gone)), strconv.Itoa(len(remembered)),
		strconv.Itoa(len(touched)), strconv.Itoa(refused))
	for _, c := range checks {
		args = append(args, c.key)
	}
	for _, c := range checks {
		args = append(args, c.stamp)
	}
	for _, t := range unknown {
		args = append(args, t.field)
	}
	for _, c := range puts {
		args = append(args, c.key)
	}
	for _, c := range puts {
		args = append(args, valueText(c.is))
	}
	for _, c := range puts {
		args = append(args, stamp(c.is))
	}
	for _, c := range puts {
		switch {
		case c.is.DeadlineMS != 0:
			args = append(args, score(c.is.DeadlineMS))
		case c.was.DeadlineMS != 0:
			args = append(args, "-")
		default:
			args = append(args, "")
		}
	}
	for _, c := range gone {
		args = append(args, c.key)
	}
	for _, t := range remembered {
		args = append(args, t.field)
	}
	for _, t := range remembered {
		args = append(args, tokenText(t.is))
	}
	for _, c := range touched {
		args = append(args, c.key)
	}
	for _, c := range touched {
		args = append(args, strconv.FormatInt(c.is.N-c.was.N, 10))
	}
	for _, c := range touched {
		args = append(args, strconv.FormatUint(c.is.Version, 10))
	}
	return args, creates, removes
}
