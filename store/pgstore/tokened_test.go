package pgstore_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/quipudb/quipu/internal/pgtest"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/pgstore"
)

// uuid7 returns a token that carries a time.
func uuid7(at time.Time, n int) string {
	ms := at.UnixMilli()
	return fmt.Sprintf("%08x-%04x-7000-8000-%012x", ms>>16, ms&0xffff, n)
}

func stamped(d store.Delta, token string) store.Delta {
	d.Guard.Token, d.Guard.Digest = token, uint64(d.N)
	return d
}

// ways counts the batches that went the short way, and the transactions of others.
func ways(t testing.TB, s *pgstore.Store) (short, long float64) {
	return meter(t, s, "quipu_postgres_plain_total"), meter(t, s, "quipu_postgres_transactions_total")
}

// sent sends a batch twice, checks that it took the short way or not, and that the
// repeat is told the first results, and returns them.
func sent(t *testing.T, s *pgstore.Store, short bool, b store.Batch) []store.Result {
	t.Helper()
	before, longBefore := ways(t, s)
	r, err := try(t.Context(), s, b)
	if err != nil {
		t.Fatal(err)
	}
	if after, long := ways(t, s); after > before != short || long > longBefore == short {
		t.Errorf("%+v: went the short way: %v, the long way: %v", b.Deltas, after > before, long > longBefore)
	}
	again, err := try(t.Context(), s, b)
	if err != nil || !again.Replayed || len(again.Results) != len(r.Results) {
		t.Fatalf("%+v again: %+v, %v", b.Deltas, again, err)
	}
	for i, second := range again.Results {
		first := r.Results[i]
		if first.Replayed = true; second != first {
			t.Errorf("%+v again: %+v, first %+v", b.Deltas[i], second, first)
		}
	}
	return r.Results
}

// New tokens go the short way, beside adds that have none. What a token, its age or
// its cell makes unusual is decided the long way.
func TestTokened(t *testing.T) {
	schema := newSchema()
	s := open(t, server.URL(), pgstore.Options{Schema: schema})
	w, err := store.Enlist(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	now, shard := time.Now(), store.ShardCell(at("home"), 1)
	do(t, s, add("home", 5), lay(at("home"), 0, 7), lay(shard, 0, 3), add("other", 1))
	do(t, s, store.Delta{Cell: at("due"), Op: store.OpSet, N: 1, Expiry: store.ExpirySet, DeadlineMS: now.Add(time.Hour).UnixMilli()})
	do(t, s, store.Delta{Cell: at("over"), Op: store.OpSet, N: math.MaxInt64})
	do(t, s, store.Delta{Cell: at("other"), Op: store.OpSettle, Guard: store.Guard{Token: "settled"}})
	if _, err := try(t.Context(), s, store.Batch{Writer: w, Seq: 1, Deltas: []store.Delta{add("other", 1)}}); err != nil {
		t.Fatal(err)
	}
	seq := uint64(1)
	f := func(short bool, deltas []store.Delta, outcomes ...store.Outcome) []store.Result {
		t.Helper()
		seq++
		rs := sent(t, s, short, store.Batch{Writer: w, Prev: seq - 1, Seq: seq, Apart: true, Deltas: deltas})
		for i, o := range outcomes {
			if rs[i].Outcome != o {
				t.Errorf("%+v: outcome %d, want %d", deltas[i], rs[i].Outcome, o)
			}
			if token := deltas[i].Guard.Token; o == store.Applied && token != "" {
				kept := rs[i]
				kept.Replayed, kept.Existed, kept.DeadlineMS = false, false, 0
				fate, err := s.Lookup(t.Context(), deltas[i].Cell, token)
				if err != nil || fate.State != store.TokenApplied || fate.Result != kept || fate.N != deltas[i].N || fate.Want != deltas[i].Want {
					t.Errorf("%s is kept as %+v, %v; its result is %+v", token, fate, err, rs[i])
				}
			}
		}
		return rs
	}
	const yes, split, expired = store.Applied, store.Split, store.Expired
	f(true, []store.Delta{stamped(add("other", 1), "a")}, yes)
	rs := f(true, []store.Delta{
		stamped(add("other", 1), "d"), add("other", 2), once(add("other", 3), "c"), once(add("new", -4), "b"), stamped(add("other", 5), "b"),
		once(add("new", -6), "a"),
		{Cell: shard, Op: store.OpAdd, N: 1},
		add("home", 1),
	}, yes, yes, yes, yes, yes, yes, yes, yes)
	if c, b := rs[2], rs[5]; c.Before != 6 || c.After != 9 || b.Before != -4 || b.After != -10 {
		t.Errorf("the results are %+v and %+v", c, b)
	}
	f(true, []store.Delta{stamped(add("home", 1), "a"), laid(once(add("home", 1), "b"), 7)}, yes, yes)
	f(true, []store.Delta{once(add("due", 1), "a")}, yes)
	f(true, []store.Delta{
		once(add("other", 1), uuid7(now, 0)), once(add("other", 1), uuid7(now.Add(-23*time.Hour), 1)),
		once(add("other", 1), uuid7(now.Add(23*time.Hour), 1)),
	}, yes, yes, yes)

	f(false, []store.Delta{add("other", 1), stamped(add("other", 1), "a")}, yes, yes)
	f(false, []store.Delta{stamped(add("other", 2), "a"), add("other", 1)}, store.Mismatch, yes)
	f(false, []store.Delta{once(add("other", 1), "twice"), once(add("other", 1), "twice")}, yes)
	f(false, []store.Delta{once(add("other", 1), "settled"), add("other", 1)}, store.Settled, yes)
	f(false, []store.Delta{once(add("home", 1), "c"), add("home", 1)}, split, yes)
	f(false, []store.Delta{once(add("other", 1), uuid7(now.Add(-25*time.Hour), 2)), once(add("other", 1), "e")}, expired, yes)
	f(false, []store.Delta{once(add("other", 1), uuid7(now.Add(25*time.Hour), 3)), once(add("other", 1), "g")}, expired, yes)
	f(false, []store.Delta{once(add("over", 1), "h"), once(add("other", 1), "i")}, store.Overflow, yes)
	f(true, []store.Delta{once(add("over", -1), "h")}, yes) // of one that was refused
	execute(t, fmt.Sprintf(`select %s.add('other', 1000)`, schema))
	if r := do(t, s, once(add("other", 1), "j"))[0]; r.Before < 1000 {
		t.Errorf("after an add by SQL: %+v", r)
	}
	audited(t, s)
}

// A token that was used just before a generation began is known in the next one.
func TestTokenedOverGenerations(t *testing.T) {
	const window = time.Hour
	var nowMS atomic.Int64
	nowMS.Store(time.Now().Add(time.Minute).UnixMilli())
	s := open(t, server.URL(), pgstore.Options{
		Schema: newSchema(), Limits: store.Limits{TokenWindow: window},
		Now: func() time.Time { return time.UnixMilli(nowMS.Load()) },
	})
	s.Still() // it would begin generations too
	do(t, s, add("a", 1))
	for i, ms := range []int64{window.Milliseconds() - 1, window.Milliseconds(), window.Milliseconds()} {
		nowMS.Add(ms)
		token := fmt.Sprint(i)
		before, _ := ways(t, s)
		if r := do(t, s, once(add("a", 1), token))[0]; r.Outcome != store.Applied || r.Replayed {
			t.Errorf("token %s: %+v", token, r)
		}
		if after, _ := ways(t, s); after != before+1 {
			t.Errorf("token %s did not go the short way", token)
		}
		nowMS.Add(1)
		if err := s.Rotate(t.Context()); err != nil {
			t.Fatal(err)
		}
		if r := do(t, s, once(add("a", 1), token))[0]; !r.Replayed {
			t.Errorf("token %s after a rotation: %+v", token, r)
		}
	}
	holds(t, s, "a", 4)
	audited(t, s)
}

// No generation begins beside a batch that may add to the last one.
func TestTokenedHoldsGeneration(t *testing.T) {
	var nowMS atomic.Int64
	nowMS.Store(time.Now().UnixMilli())
	schema := newSchema()
	s := open(t, server.URL(), pgstore.Options{Schema: schema, Now: func() time.Time { return time.UnixMilli(nowMS.Load()) }})
	do(t, s, add("a", 1))
	conn := connect(t)
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), fmt.Sprintf(`select from %s.cells for update`, schema)); err != nil {
		t.Fatal(err)
	}
	said := make(chan error)
	go func() {
		_, err := try(t.Context(), s, store.Batch{Deltas: []store.Delta{once(add("a", 1), "t")}})
		said <- err
	}()
	blocked(t, schema)
	nowMS.Add((25 * time.Hour).Milliseconds())
	if err := s.Rotate(t.Context()); err != nil {
		t.Error(err)
	}
	var gen int
	if err := tx.QueryRow(t.Context(), fmt.Sprintf(`select max(gen) from %s.generation`, schema)).Scan(&gen); err != nil || gen != 1 {
		t.Errorf("generation %d began, %v", gen, err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-said; err != nil {
		t.Error(err)
	}
	audited(t, s)
}

// The time of a token is not before what was seen.
func TestTokenedTime(t *testing.T) {
	schema := newSchema()
	open(t, server.URL(), pgstore.Options{Schema: schema})
	const later = 5_000_000_000_000
	execute(t, fmt.Sprintf(`update %s.tally set at_ms = %d`, schema, int64(later)))
	s := open(t, server.URL(), pgstore.Options{Schema: schema})
	do(t, s, add("a", 1))
	do(t, s, once(add("a", 1), "t"))
	if short, _ := ways(t, s); short != 1 {
		t.Errorf("%v batches went the short way", short)
	}
	if f, err := s.Lookup(t.Context(), at("a"), "t"); err != nil || f.AtMS != later {
		t.Errorf("the token is %+v, %v: the time was %d before", f, err, int64(later))
	}
}

// A namespace that somebody counts alone gets no token meanwhile.
func TestTokenedWaitsForCount(t *testing.T) {
	schema := newSchema()
	s := open(t, server.URL(), pgstore.Options{Schema: schema})
	do(t, s, add("a", 1))
	for i, lock := range s.CountLocks("default") {
		tx, err := connect(t).Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), `select pg_advisory_xact_lock($1)`, lock); err != nil {
			t.Fatal(err)
		}
		before, _ := ways(t, s)
		done := make(chan error, 1)
		go func() {
			_, err := try(t.Context(), s, store.Batch{Deltas: []store.Delta{once(add("a", 1), fmt.Sprint(i))}})
			done <- err
		}()
		for waits := 0; waits == 0; {
			if len(done) > 0 {
				t.Fatalf("it does not wait: %v", <-done)
			}
			err := tx.QueryRow(t.Context(), `select count(*) from pg_locks
				where locktype = 'advisory' and not granted and classid::bigint << 32 | objid::bigint = $1`, lock).Scan(&waits)
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if after, _ := ways(t, s); after != before {
			t.Error("it went the short way")
		}
	}
}

// Tokens are counted where nobody else counts: such a batch may have what those who
// count as others do wait for.
func TestTokenedCountsApart(t *testing.T) {
	schema := newSchema()
	s := open(t, server.URL()+"&lock_timeout=5000", pgstore.Options{Schema: schema})
	do(t, s, add("a", 1))
	tx, err := connect(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), fmt.Sprintf(`
		insert into %s.space as s select 'default', 1, slot, 0 from generate_series(0, 31) as slot
		on conflict (ns, gen, slot) do update set n = s.n`, schema)); err != nil {
		t.Fatal(err)
	}
	if r := do(t, s, once(add("a", 1), "t"))[0]; r.Outcome != store.Applied {
		t.Errorf("it returned %+v", r)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	audited(t, s)
}

// Repeats and refusals are no errors of the server's.
func TestTokenedIsQuiet(t *testing.T) {
	own := pgtest.For(t, "fsync=off")
	s := open(t, own.URL(), pgstore.Options{})
	do(t, s, store.Delta{Cell: at("full"), Op: store.OpSet, N: math.MaxInt64})
	for range 3 {
		do(t, s, once(add("a", 1), "t"), once(add("full", 1), "t"))
	}
	holds(t, s, "a", 1)
	log, err := os.ReadFile(own.Path("postgres.log"))
	if err != nil || strings.Contains(string(log), "ERROR") {
		t.Errorf("the log is %s, %v", log, err)
	}
}

// A schema that was made before there was the function gets it.
func TestMigrateFunctions(t *testing.T) {
	schema := newSchema()
	old := open(t, server.URL(), pgstore.Options{Schema: schema})
	do(t, old, add("a", 1))
	execute(t, fmt.Sprintf(`drop function %[1]s.tokened; drop function %[1]s.%[2]s`, schema, pgstore.Newest))
	var wg sync.WaitGroup
	for range 4 { // at once
		wg.Go(func() {
			if from, to, err := pgstore.Migrate(t.Context(), server.URL(), schema); err != nil || from != to {
				t.Errorf("migrated from %d to %d, %v", from, to, err)
			}
		})
	}
	wg.Wait()
	s := open(t, server.URL(), pgstore.Options{Schema: schema})
	do(t, s, once(add("a", 1), "t"))
	if short, _ := ways(t, s); short != 1 {
		t.Errorf("%v batches went the short way", short)
	}
	do(t, old, add("a", 1))
	holds(t, s, "a", 3)
}

// Cells and tokens are looked for by their index, also with a plan that was made
// when there were none.
func TestFoundByIndex(t *testing.T) {
	schema := newSchema()
	open(t, server.URL(), pgstore.Options{Schema: schema})
	for name, sql := range pgstore.Finders(schema) {
		conn := connect(t)
		if _, err := conn.PgConn().Exec(t.Context(), `set plan_cache_mode = force_generic_plan; prepare find as `+sql).ReadAll(); err != nil {
			t.Fatal(err)
		}
		args := strings.TrimSuffix(strings.Repeat("'{}', ", strings.Count(sql, "::bytea[]")), ", ")
		rows, err := conn.Query(t.Context(), `explain execute find(`+args+`)`, pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		all := fmt.Sprint(plan)
		if err != nil || !strings.Contains(all, "Index Scan") || strings.Contains(all, "Seq Scan on cell") || strings.Contains(all, "Seq Scan on token") {
			t.Errorf("the plan of %s is %q, %v", name, plan, err)
		}
	}
}

// Batches of tokens and adds by SQL that share them count each once.
func TestTokenedRaces(t *testing.T) {
	schema := newSchema()
	stores := []*pgstore.Store{
		open(t, server.URL(), pgstore.Options{Schema: schema}), open(t, server.URL(), pgstore.Options{Schema: schema}),
	}
	const rounds, each, callers = 40, 5, 4
	do(t, stores[0], add("a", 0), add("b", 0))
	digest := func(n int64) (d int64) {
		t.Helper()
		if err := connect(t).QueryRow(t.Context(), fmt.Sprintf(`select %s.digest($1)`, schema), n).Scan(&d); err != nil {
			t.Fatal(err)
		}
		return d
	}(1)
	var conns [callers]*pgx.Conn
	for g := range conns {
		conns[g] = connect(t)
	}
	var first atomic.Int64
	for i := range rounds { // all meet again and again, so that they are at the same tokens
		key := func(j int) string { return []string{"a", "b"}[j%2] }
		token := func(j int) string { return fmt.Sprintf("%d-%d", i, j) }
		var wg sync.WaitGroup
		for g, conn := range conns {
			wg.Go(func() {
				for j := each - 1; j >= 0; j-- {
					if _, err := conn.Exec(t.Context(), fmt.Sprintf(`select %s.add($1, 1, $2)`, schema), key(j), token(j)); err != nil {
						t.Error(err)
					}
				}
			})
			wg.Go(func() {
				var b store.Batch
				for j := range each {
					d := add(key(j), 1)
					d.Guard.Token, d.Guard.Digest = token(j), uint64(digest)
					b.Deltas = append(b.Deltas, d)
				}
				r, err := try(t.Context(), stores[g%2], b)
				if err != nil {
					t.Error(err)
				}
				for _, res := range r.Results {
					if res.Outcome != store.Applied {
						t.Errorf("outcome %d", res.Outcome)
					}
					if !res.Replayed {
						first.Add(1)
					}
				}
			})
		}
		wg.Wait()
	}
	t.Logf("of %d tokens %d were first in a batch", rounds*each, first.Load())
	holds(t, stores[0], "a", rounds*(each-each/2))
	holds(t, stores[1], "b", rounds*(each/2))
	if a := audited(t, stores[0]); a.Tokens != rounds*each {
		t.Errorf("%d tokens, want %d", a.Tokens, rounds*each)
	}
}

// A token that a transaction of somebody else has just used is waited for, and is
// new if that does not commit.
func TestTokenedMeetsTransaction(t *testing.T) {
	schema := newSchema()
	s := open(t, server.URL(), pgstore.Options{Schema: schema})
	do(t, s, add("a", 1))
	f := func(token string, end func(pgx.Tx) error, replayed bool) {
		t.Helper()
		tx, err := connect(t).Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var digest int64
		err = tx.QueryRow(t.Context(), fmt.Sprintf(`select %[1]s.digest(1) from (select %[1]s.add('a', 1, $1) offset 0) as add`, schema), token).Scan(&digest)
		if err != nil {
			t.Fatal(err)
		}
		before, _ := ways(t, s)
		said := make(chan store.Reply)
		go func() {
			d := add("a", 1)
			d.Guard.Token, d.Guard.Digest = token, uint64(digest)
			r, err := try(t.Context(), s, store.Batch{Deltas: []store.Delta{d}})
			if err != nil {
				t.Error(err)
			}
			said <- r
		}()
		blocked(t, schema)
		if err := end(tx); err != nil {
			t.Fatal(err)
		}
		if r := <-said; len(r.Results) != 1 || r.Results[0].Outcome != store.Applied || r.Results[0].Replayed != replayed {
			t.Errorf("token %s: %+v", token, r)
		}
		if after, _ := ways(t, s); after > before == replayed {
			t.Errorf("token %s went the short way: %v", token, after > before)
		}
	}
	f("t", func(tx pgx.Tx) error { return tx.Commit(t.Context()) }, true)
	f("u", func(tx pgx.Tx) error { return tx.Rollback(t.Context()) }, false)
	holds(t, s, "a", 3)
	audited(t, s)
}

// kept is what a schema has, but for versions, which depend on how many were drawn.
func kept(t *testing.T, conn *pgx.Conn, schema string) (all []string) {
	t.Helper()
	for _, sql := range []string{
		`select gen, ns, key, token, op, n, want, digest, at_ms, before, after from %s.token order by gen, ns, key, token`,
		`select ns, key, value, term from %s.cells order by ns, key`,
		`select writer, seq, digest, at_ms, deltas, total, proof from %s.mark order by writer`,
		// They wrap around, in each slot.
		`select sum(deltas), mod(sum(total) + 1180591620717411303424, 18446744073709551616), mod(sum(proof) + 1180591620717411303424, 18446744073709551616), max(at_ms) from %s.tally`,
		`select ns, gen, sum(n) from %s.space group by ns, gen having sum(n) <> 0 order by ns, gen`,
		`select gen, from_ms from %s.generation where gen > 1 order by gen`,
	} {
		rows, err := conn.Query(t.Context(), fmt.Sprintf(sql, schema))
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			values, err := rows.Values()
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, fmt.Sprintf("%q: %v", sql[:30], values))
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// One history the short way and the long way leaves the same, and is told the same.
func TestTokenedIsAsDecided(t *testing.T) {
	const window = time.Hour
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var nowMS atomic.Int64
	nowMS.Store(time.Now().Add(time.Minute).UnixMilli())
	var schemas [2]string
	var stores [2]*pgstore.Store
	var writers [2]store.Writer
	for i := range stores {
		schemas[i] = newSchema()
		stores[i] = open(t, server.URL(), pgstore.Options{
			Schema: schemas[i], Limits: store.Limits{TokenWindow: window}, Now: func() time.Time { return time.UnixMilli(nowMS.Load()) },
		})
		var err error
		if writers[i], err = store.Enlist(t.Context(), stores[i]); err != nil {
			t.Fatal(err)
		}
	}
	conn, tokens := connect(t), 0
	delta := func() store.Delta {
		d := add(fmt.Sprint("k", rng.IntN(4)), rng.Int64N(5)-1)
		if rng.IntN(4) == 0 {
			d.Cell.Namespace = "another"
		}
		d.Want = rng.IntN(2) == 0
		switch rng.IntN(60) {
		case 0:
			return store.Delta{Cell: d.Cell, Op: store.OpDelete, Want: true}
		case 1:
			return store.Delta{Cell: d.Cell, Op: store.OpSet, N: d.N, Expiry: store.ExpirySet, DeadlineMS: nowMS.Load() + rng.Int64N(1000)}
		case 2:
			d.Guard.Token = fmt.Sprint(rng.IntN(tokens + 1)) // perhaps a repeat
		case 3:
			d.Guard.Token = uuid7(time.UnixMilli(nowMS.Load()).Add(time.Duration(rng.IntN(5)-2)*window), tokens)
		case 4, 5, 6, 7:
		default:
			d.Guard.Token = fmt.Sprint(tokens)
		}
		tokens++
		d.Guard.Digest = uint64(d.N)
		return d
	}
	told := func(s *pgstore.Store, long bool, b store.Batch) store.Reply {
		t.Helper()
		batches := []store.Batch{b}
		if long { // two batches are never applied in one trip
			batches = append(batches, store.Batch{Deltas: []store.Delta{{Cell: at("none"), Op: store.OpGet}}})
		}
		replies := make([]store.Reply, len(batches))
		if err := s.Apply(t.Context(), batches, replies); err != nil || replies[0].Err != nil {
			t.Fatalf("Apply: %v, %v", err, replies[0].Err)
		}
		return replies[0]
	}
	seq := uint64(0)
	for range 300 {
		nowMS.Add(rng.Int64N(200))
		if rng.IntN(30) == 0 {
			nowMS.Add(rng.Int64N(2 * window.Milliseconds()))
			for _, s := range stores {
				if err := s.Rotate(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		b := store.Batch{}
		for range 1 + rng.IntN(6) {
			b.Deltas = append(b.Deltas, delta())
		}
		times := 1
		if rng.IntN(3) > 0 {
			b.Prev, b.Seq = seq, seq+1
			seq++
			times = 1 + rng.IntN(2)
		}
		for range times {
			var replies [2]store.Reply
			for i, s := range stores {
				if b.Writer = 0; b.Seq > 0 {
					b.Writer = writers[i]
				}
				replies[i] = told(s, i == 1, b)
				for j, r := range replies[i].Results {
					if token := b.Deltas[j].Guard.Token; token != "" && r.Outcome == store.Applied {
						if f, err := s.Lookup(t.Context(), b.Deltas[j].Cell, token); err != nil || f.Result.Version != r.Version {
							t.Errorf("%s is kept as %+v, %v; it was told as %+v", token, f, err, r)
						}
					}
					replies[i].Results[j].Version = min(r.Version, 1)
				}
			}
			if !slices.Equal(replies[0].Results, replies[1].Results) || replies[0].Mark != replies[1].Mark || replies[0].Replayed != replies[1].Replayed {
				t.Fatalf("%+v: told\n%+v, the long way\n%+v", b, replies[0], replies[1])
			}
		}
	}
	short, long := kept(t, conn, schemas[0]), kept(t, conn, schemas[1])
	for i := range min(len(short), len(long)) {
		if short[i] != long[i] {
			t.Fatalf("the short way keeps %s, the long way %s", short[i], long[i])
		}
	}
	if len(short) != len(long) {
		t.Errorf("%d rows, and %d the long way", len(short), len(long))
	}
	n, _ := ways(t, stores[0])
	if m, _ := ways(t, stores[1]); n < 100 || m != 1 { // to enlist
		t.Errorf("%v and %v went the short way", n, m)
	}
	audited(t, stores[0])
}
