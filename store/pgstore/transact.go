package pgstore

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/internal/plan"
	"github.com/quipudb/quipu/store"
)

// A work is what one transaction has to do: decide batches, and bring cells up
// to date with the time and with what is pending.
type work struct {
	batches []*store.Batch
	replies []*store.Reply
	cells   []store.Cell // besides those of the batches
	lazy    bool         // it need not be on disk when it is told
	retries int          // how often it was made again because the server ended it for another
	retires int64        // the writer up to which it does
	dueMS   int64        // when it first found no room; 0 if it has not
	swept   int          // how often room was made for it

	// Locks that it turned out to need.
	create bool            // on the namespaces of its cells, shared
	alone  map[string]bool // on these namespaces, alone
	found  bool            // on the number of namespaces, alone
	admit  bool            // on which writers have marks
	raise  bool            // on the fences, alone
}

// attemptsMax is how often a transaction is made again that the server ended for
// another, and how often room is made for it.
const attemptsMax = 20

// raiseWait is how long a fence that is to be raised waits for batches under way.
const raiseWait = "2s"

// transact makes the transaction, again and again if it has to, and returns the
// state that the last one left.
func (s *Store) transact(ctx context.Context, w *work) (*state, error) {
	w.begin(s)
	for {
		st, err := s.attempt(ctx, w)
		if errors.Is(err, errSweep) {
			// A sweep needs a connection, and the one of the attempt has been given
			// back: if all who find no room kept theirs, none would be left to make it.
			if err = s.sweep(ctx, w.dueMS); err == nil {
				w.swept++
				pause(ctx, w.swept) // what it left, another is removing
				continue
			}
		}
		if err == nil && st.more() || s.again(ctx, w, err) {
			continue
		}
		if transient(err) != nil { // too often
			err = failure(ctx, err)
		}
		return st, err
	}
}

// again reports whether a transaction that failed is to be made again, and waits a
// moment if the server ended it.
func (s *Store) again(ctx context.Context, w *work, err error) bool {
	if errors.Is(err, errRepeat) {
		return true
	}
	switch code(err) {
	case codeSerialization, codeDeadlock, codeUnique:
	case codeNoEpoch:
		s.tables.set(nil)
	default:
		return false
	}
	s.meters.retries.Add(1)
	w.retries++
	if w.retries >= attemptsMax || ctx.Err() != nil {
		return false
	}
	pause(ctx, w.retries)
	return true
}

// pause waits a moment, the longer the more often it was waited before.
func pause(ctx context.Context, times int) {
	wait := time.NewTimer(rand.N(time.Duration(times) * 2 * time.Millisecond))
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
	}
}

// begin says which locks are needed as far as the batches tell.
func (w *work) begin(s *Store) {
	w.alone = make(map[string]bool)
	for _, b := range w.batches {
		for i := range b.Deltas {
			d := &b.Deltas[i]
			switch {
			case d.Op == store.OpRetire:
				w.admit, w.retires = true, max(w.retires, d.N)
			case d.Op == store.OpAdd, d.Op == store.OpSet, d.Op == store.OpLayout, d.Op == store.OpPut, d.Guard.Token != "":
				w.create = true
			}
			if s.limits.KeysMax <= s.margin || d.Guard.Token != "" && s.limits.TokensMax <= s.margin {
				w.alone[d.Cell.Namespace] = true
			}
		}
	}
}

// attempt makes the transaction once, and returns the state that it left.
func (s *Store) attempt(ctx context.Context, w *work) (*state, error) {
	if err := s.room(ctx, w); err != nil {
		return nil, err
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, failure(ctx, err)
	}
	defer conn.Release()
	s.meters.transactions.Add(1)
	st, err := s.load(ctx, conn, w)
	if err == nil {
		err = st.decide(w)
	}
	if err != nil {
		s.rollback(ctx, conn)
		return nil, cmp.Or(transient(err), failure(ctx, err))
	}
	err = s.save(ctx, conn, st)
	if code(err) != "" {
		s.rollback(ctx, conn)
	}
	if len(w.batches) == 0 || st.more() { // whatever became of it, nobody asked for it
		return st, cmp.Or(transient(err), failure(ctx, err))
	}
	return st, cmp.Or(transient(err), unsure(ctx, err))
}

// transient returns err if the transaction is to be made again.
func transient(err error) error {
	switch code(err) {
	case codeSerialization, codeDeadlock, codeUnique, codeNoEpoch:
		return err
	}
	if errors.Is(err, errRepeat) || errors.Is(err, errSweep) {
		return err
	}
	return nil
}

// rollback ends a transaction that failed. If it can't, the pool closes the
// connection, which does the same.
func (s *Store) rollback(ctx context.Context, conn *pgxpool.Conn) {
	if conn.Conn().IsClosed() || ctx.Err() != nil {
		return
	}
	s.meters.trips.Add(1)
	_, _ = conn.Exec(ctx, "rollback")
}

// send sends statements together. Each has a function that reads its rows.
func (s *Store) send(ctx context.Context, conn *pgxpool.Conn, b *pgx.Batch) error {
	s.meters.trips.Add(1)
	return conn.SendBatch(ctx, b).Close()
}

// load takes the locks in their order, and reads what they guard.
func (s *Store) load(ctx context.Context, conn *pgxpool.Conn, w *work) (*state, error) {
	st := &state{
		limits: s.limits, margin: s.margin, work: w,
		cells:  make(map[store.Cell]*cell),
		tokens: make(map[tokenID]*token),
		marks:  make(map[store.Writer]*mark),
		spaces: make(map[string]*space), refused: make(map[int64]store.Outcome),
		parts: make(map[store.PartCell]*part), tallies: make(map[tallyID]decide.Record),
		books: make(decide.Fences), floors: make(decide.Floors), raised: make(map[fence]int64),
		sql: &s.sql,
	}
	st.ask = func(sql string, args []any, read func(pgx.Rows) error) {
		q := &pgx.Batch{}
		q.Queue(sql, args...).Query(read)
		if err := s.send(ctx, conn, q); st.err == nil {
			st.err = err
		}
	}
	ids, versions := st.name(w)
	q := &pgx.Batch{}
	q.Queue("begin")
	if w.lazy {
		q.Queue("set local synchronous_commit = off")
	}
	if len(w.batches) > 0 {
		s.queueFences(q, st)
	}
	s.lock(q, st, len(ids) > 0)
	var writers []int64
	for _, b := range w.batches {
		if b.Writer != 0 {
			writers = append(writers, int64(b.Writer))
		}
	}
	if len(writers) > 0 || w.retires > 0 {
		q.Queue(s.sql.lockMarks, writers, w.retires).Query(st.readMarks)
	}
	namespaces, keys := columns(st.order)
	if len(st.order) > 0 {
		q.Queue(s.sql.lockCells, namespaces, keys)
		q.Queue(s.sql.loadCells, namespaces, keys).Query(st.readCells)
		q.Queue(s.sql.loadPending, namespaces, keys, pendingMax).Query(st.readPending)
		q.Queue(s.sql.draw, namespaces, keys, versions, pendingMax).Query(st.readVersions)
	}
	if parts := w.parts(); len(parts) > 0 {
		ps := placesOf(parts)
		q.Queue(s.sql.loadParts, ps.args()...).Query(st.readParts(parts))
	}
	if len(ids) > 0 {
		s.queueTokens(q, st, ids)
	}
	if w.dueMS != 0 { // before the counts: whoever removed what was due has counted it
		q.Queue(s.sql.due, w.dueMS, w.dueMS-store.TokenKeptMS(s.limits.TokenWindow)).
			QueryRow(func(row pgx.Row) error { return row.Scan(&st.due) })
	}
	if w.create {
		q.Queue(s.sql.loadSpaces, distinct(namespaces)).Query(st.readSpaces)
		q.Queue(s.sql.countSpaces, w.found).QueryRow(func(row pgx.Row) error { return row.Scan(&st.spaceCount) })
	}
	var nowUS, floor int64
	q.Queue(s.sql.loadMarks, w.admit).QueryRow(func(row pgx.Row) error {
		return row.Scan(&nowUS, &floor, &st.markCount, &st.gen)
	})
	asked := s.heard.Ask()
	if err := s.send(ctx, conn, q); err != nil {
		return nil, err
	}
	if s.now != nil {
		nowUS = s.now().UnixMicro()
	}
	st.floor = store.Writer(floor)
	st.clock = decide.Clock{NowMS: s.time(nowUS/1000, asked), NowUS: nowUS, Window: s.limits.TokenWindow}
	return st, nil
}

// queueFences holds the fences, before all other locks, and reads them. Whoever waits
// for them alone keeps the others waiting, and does not wait long.
func (s *Store) queueFences(q *pgx.Batch, st *state) {
	if st.work.raise {
		q.Queue("set local lock_timeout = '" + raiseWait + "'")
		q.Queue(s.sql.lockFences)
		q.Queue("set local lock_timeout to default")
	} else {
		q.Queue(s.sql.holdFences)
	}
	q.Queue(s.sql.loadFences, spacesOf(st.work.batches)).Query(st.readFences)
}

// parts returns the parts that the work names, each once.
func (w *work) parts() (parts []store.PartCell) {
	seen := make(map[store.PartCell]bool)
	for _, b := range w.batches {
		plan.Parts(b, func(id store.PartCell) {
			if !seen[id] {
				seen[id] = true
				parts = append(parts, id)
			}
		})
	}
	return parts
}

// name collects the cells and tokens that the work names, and returns the
// tokens, and how many versions it may need.
func (st *state) name(w *work) (ids []tokenID, versions int) {
	st.order = slices.Clone(w.cells)
	for _, b := range w.batches {
		versions += plan.Versions(b)
		plan.Names(b, func(c store.Cell) { st.order = append(st.order, c) }, func(c store.Cell, name string) {
			if id := (tokenID{c, name}); st.tokens[id] == nil {
				st.tokens[id] = &token{}
				ids = append(ids, id)
			}
		})
	}
	st.order = sortCells(st.order)
	for _, c := range st.order {
		st.cells[c] = &cell{}
	}
	return ids, versions
}

// lock takes the advisory locks.
func (s *Store) lock(q *pgx.Batch, st *state, tokens bool) {
	const alone, shared = "select pg_advisory_xact_lock($1)", "select pg_advisory_xact_lock_shared($1)"
	take := func(lock int64, exclusive bool) {
		if exclusive {
			q.Queue(alone, lock)
		} else {
			q.Queue(shared, lock)
		}
	}
	if tokens {
		take(s.locks.tokens, false)
	}
	if st.work.create {
		take(s.locks.spaces, st.work.found)
		spaces := make(map[int64]bool)
		for i, c := range st.order {
			if c.Namespace != "" && (i == 0 || c.Namespace != st.order[i-1].Namespace) {
				n := s.locks.namespace(c.Namespace)
				spaces[n] = spaces[n] || st.work.alone[c.Namespace]
			}
		}
		for _, n := range slices.Sorted(maps.Keys(spaces)) {
			take(n, spaces[n])
		}
	}
	if st.work.admit {
		take(s.locks.writers, true)
	}
}

// queueTokens reads tokens.
func (s *Store) queueTokens(q *pgx.Batch, st *state, ids []tokenID) {
	cells, names := make([]store.Cell, len(ids)), make([][]byte, len(ids))
	for i, id := range ids {
		cells[i], names[i] = id.cell, []byte(id.name)
	}
	namespaces, keys := columns(cells)
	q.Queue(s.sql.loadTokens, namespaces, keys, names).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var i int
			var gen int32
			var t decide.Token
			var digest, version int64
			if err := rows.Scan(&i, &gen, &t.Op, &t.N, &t.Want, &digest, &t.AtMS, &t.Result.Before, &t.Result.After, &version,
				&t.Result.Outcome, &t.Result.Refused); err != nil {
				return err
			}
			complete(&t, digest, version)
			at := st.tokens[ids[i]]
			at.gens, at.refusals = append(at.gens, gen), append(at.refusals, t.Refused())
			if !at.known || at.AtMS < t.AtMS {
				at.Token, at.known = t, true
			}
		}
		return rows.Err()
	})
}

func (st *state) readMarks(rows pgx.Rows) error {
	for rows.Next() {
		var writer, seq, digest int64
		var t tally
		var results []byte
		m := &mark{was: true}
		err := rows.Scan(&writer, &seq, &digest, &t.deltas, &t.total, &t.proof, &results, &m.version, &m.odd, &m.versions, &m.afters, &m.terms, &m.fresh)
		if err != nil {
			return err
		}
		if m.Results, err = decodeResults(results); err != nil {
			return err
		}
		m.Seq, m.Digest, m.Record = uint64(seq), uint64(digest), t.record()
		st.marks[store.Writer(writer)] = m
	}
	return rows.Err()
}

func (st *state) readCells(rows pgx.Rows) error {
	for rows.Next() {
		var i int
		var version, term, until int64
		var v store.Value
		if err := rows.Scan(&i, &v.N, &version, &term, &until); err != nil {
			return err
		}
		if setTerm(&v, version, term, until); v.Exists {
			at := st.cells[st.order[i]]
			at.row, at.now, at.last = v, v, v.Version
		}
	}
	return rows.Err()
}

func (st *state) readPending(rows pgx.Rows) error {
	for rows.Next() {
		var p pending
		if err := rows.Scan(&p.id, &p.cell, &p.delta, &p.gen, &p.token); err != nil {
			return err
		}
		st.pending = append(st.pending, p)
	}
	return rows.Err()
}

func (st *state) readVersions(rows pgx.Rows) (err error) {
	st.versions, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	return err
}

func (st *state) readSpaces(rows pgx.Rows) error {
	for rows.Next() {
		var ns []byte
		var sp space
		if err := rows.Scan(&ns, &sp.keys, &sp.tokens, &sp.refusals); err != nil {
			return err
		}
		st.spaces[string(ns)] = &sp
	}
	return rows.Err()
}

// distinct returns sorted names once each.
func distinct(names [][]byte) [][]byte {
	return slices.CompactFunc(slices.Clone(names), func(a, b []byte) bool { return string(a) == string(b) })
}

// decide decides what was loaded. While more is pending than was loaded it only
// folds that, since whatever a batch is told has to count all of it. If something is
// refused for want of room, what was in the way then and need not be kept has to be
// removed first, by whoever does.
func (st *state) decide(w *work) error {
	for _, r := range w.replies {
		*r = store.Reply{Results: r.Results[:0]}
	}
	st.expire()
	st.fold()
	if !st.more() {
		for i, b := range w.batches {
			if err := st.apply(b, w.replies[i]); err != nil {
				return err
			}
		}
	}
	if st.err != nil {
		return st.err
	}
	if st.recount {
		return errRepeat
	}
	if !st.full || w.swept >= attemptsMax {
		return nil
	}
	if w.dueMS == 0 {
		w.dueMS = st.clock.NowMS
		return errRepeat
	}
	if st.due {
		return errSweep
	}
	return nil
}

// save writes what has changed, and commits.
func (s *Store) save(ctx context.Context, conn *pgxpool.Conn, st *state) error {
	q := &pgx.Batch{}
	s.saveFences(q, st)
	s.saveCells(q, st)
	s.saveParts(q, st)
	s.saveTokens(q, st)
	s.saveMarks(q, st)
	s.savePending(q, st)
	if order, n := st.counts(); len(order) > 0 {
		namespaces, gens, ns := make([][]byte, len(order)), make([]int32, len(order)), make([]int64, len(order))
		for i, c := range order {
			namespaces[i], gens[i], ns[i] = []byte(c.namespace), c.gen, n[c]
		}
		q.Queue(s.sql.count, namespaces, gens, ns)
	}
	if len(st.tallies) > 0 {
		q.Queue(s.sql.tallyParts, talliesOf(st.tallies)...)
	}
	if st.unnumbered != (decide.Record{}) {
		t := tallyOf(st.unnumbered)
		q.Queue(s.sql.tally, st.clock.NowMS, t.deltas, t.total, t.proof)
	}
	q.Queue("commit")
	return s.send(ctx, conn, q)
}

func (s *Store) saveCells(q *pgx.Batch, st *state) {
	var put, drop []store.Cell
	var gone uint64 // the highest version of those that go
	var values, versions, terms, untils []int64
	for _, c := range st.order {
		at := st.cells[c]
		switch {
		case !at.now.Exists:
			drop, gone = append(drop, c), max(gone, at.last)
		case at.now != at.row:
			put = append(put, c)
			version, term, until := termOf(at.now)
			values, versions = append(values, at.now.N), append(versions, version)
			terms, untils = append(terms, term), append(untils, until)
		}
	}
	if len(put) > 0 {
		namespaces, keys := columns(put)
		q.Queue(s.sql.putCells, namespaces, keys, values, versions, terms, untils)
	}
	if gone > 0 {
		q.Queue(s.sql.raise, int64(gone))
	}
	if len(drop) > 0 {
		namespaces, keys := columns(drop)
		q.Queue(s.sql.dropCells, namespaces, keys)
	}
}

func (s *Store) saveTokens(q *pgx.Batch, st *state) {
	if len(st.remembered) == 0 && len(st.forgotten) == 0 {
		return
	}
	slices.SortFunc(st.remembered, func(a, b tokenID) int {
		return cmp.Or(plan.Compare(a.cell, b.cell), cmp.Compare(a.name, b.name))
	})
	n := len(st.remembered)
	cells, names := make([]store.Cell, n), make([][]byte, n)
	ops, wants := make([]int16, n), make([]bool, n)
	outcomes, refused := make([]int16, n), make([]int16, n)
	var ns, digests, ats, befores, afters, versions []int64
	var oldGens []int32
	var oldCells []store.Cell
	var oldNames [][]byte
	for i, id := range st.remembered {
		t := st.tokens[id]
		cells[i], names[i], ops[i], wants[i] = id.cell, []byte(id.name), int16(t.Op), t.Want
		ns, digests, ats = append(ns, t.N), append(digests, int64(t.Digest)), append(ats, t.AtMS)
		befores, afters = append(befores, t.Result.Before), append(afters, t.Result.After)
		versions = append(versions, int64(t.Result.Version))
		outcomes[i], refused[i] = int16(cmp.Or(t.Result.Outcome, store.Applied)), int16(t.Result.Refused)
		for _, gen := range t.gens { // they have been kept long enough
			oldGens, oldCells, oldNames = append(oldGens, gen), append(oldCells, id.cell), append(oldNames, names[i])
		}
	}
	for _, p := range st.forgotten {
		oldGens, oldCells, oldNames = append(oldGens, p.gen), append(oldCells, st.order[p.cell]), append(oldNames, p.token)
	}
	if len(oldGens) > 0 {
		namespaces, keys := columns(oldCells)
		q.Queue(s.sql.dropTokens, oldGens, namespaces, keys, oldNames)
	}
	if n == 0 {
		return
	}
	namespaces, keys := columns(cells)
	q.Queue(s.sql.putTokens, st.gen, namespaces, keys, names, ops, ns, wants, digests, ats, befores, afters, versions, outcomes, refused)
}

func (s *Store) saveMarks(q *pgx.Batch, st *state) {
	if st.retired > 0 {
		q.Queue(s.sql.dropMarks, int64(st.retired))
		q.Queue(s.sql.raiseFloor, int64(st.retired))
	}
	for w, m := range st.marks {
		if m.changed {
			t := tallyOf(m.Record)
			q.Queue(s.sql.putMark, int64(w), int64(m.Seq), int64(m.Digest), st.clock.NowMS,
				t.deltas, t.total, t.proof, encodeResults(m.Results))
		}
	}
}

func (s *Store) savePending(q *pgx.Batch, st *state) {
	if len(st.pending) == 0 {
		return
	}
	ids := make([]int64, len(st.pending))
	for i, p := range st.pending {
		ids[i] = p.id
	}
	if len(st.refused) > 0 {
		refused := slices.Collect(maps.Keys(st.refused))
		outcomes := make([]int16, len(refused))
		for i, id := range refused {
			outcomes[i] = int16(st.refused[id])
		}
		q.Queue(s.sql.refuse, refused, outcomes)
		s.meters.refused.Add(uint64(len(refused)))
	}
	q.Queue(s.sql.dropPending, ids)
}
