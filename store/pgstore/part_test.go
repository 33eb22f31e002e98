package pgstore_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/pgstore"
)

func window(view uint16, e store.Epoch, position int64) store.Part {
	return store.PartFields{Kind: store.PartWindow, View: view, Epoch: e, Position: position}.Part()
}

func outside(view uint16) store.Part {
	return store.PartFields{Kind: store.PartOutside, View: view}.Part()
}

func applied(p store.Part) store.Rider {
	return store.Rider{Part: p, Op: store.OpAdd, Amount: store.AmountApplied}
}

// viewed returns the plan of adds under a book, each to parts of views 1 and up.
func viewed(t testing.TB, book int64, parts ...store.Part) *store.Plan {
	t.Helper()
	var riders []store.Rider
	for i, p := range parts {
		base := store.Rider{Part: outside(uint16(i + 1)), Op: store.OpAdd, Amount: store.AmountWas, When: store.Met{Kind: store.MetBook, N: book}}
		riders = append(riders, base, applied(p))
	}
	riders = append(riders, store.Rider{Part: store.PartFields{Kind: store.PartBook}.Part(), Op: store.OpMax, N: book})
	plan, err := store.NewPlan(riders...)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func with(d store.Delta, p *store.Plan) store.Delta {
	d.Event = &store.Event{Plan: p}
	return d
}

func readPart(t testing.TB, s store.Store, key string, p store.Part) store.Content {
	t.Helper()
	var v [1]store.Content
	if err := s.ReadParts(t.Context(), []store.PartCell{{Cell: at(key), Part: p}}, v[:]); err != nil {
		t.Fatal(err)
	}
	return v[0]
}

// partHolds checks a part of counter a.
func partHolds(t testing.TB, s store.Store, p store.Part, n int64) {
	t.Helper()
	if v := readPart(t, s, "a", p); v != (store.Content{N: n, Exists: true}) {
		t.Fatalf("part %x is %+v, want %d", p, v, n)
	}
}

func under(b store.Batch, book int64) store.Batch {
	b.Books = []store.Book{{Namespace: "default", ID: book}}
	return b
}

// The short way does to cells, parts, tokens and marks what the reference does.
func TestRidesAsDecided(t *testing.T) {
	seed, err := strconv.ParseUint(os.Getenv("QUIPU_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	defer func() {
		if t.Failed() {
			t.Logf("replay with QUIPU_SEED=%d go test ./store/pgstore -run TestRidesAsDecided", seed)
		}
	}()
	short := 0.0
	for i := range uint64(10) {
		short += ridesAsDecided(t, rand.New(rand.NewPCG(seed, i)))
	}
	if short < 40 {
		t.Errorf("%v of 400 batches went the short way", short)
	}
}

// ridesAsDecided runs one history, and returns how many batches went the short way.
func ridesAsDecided(t *testing.T, r *rand.Rand) (short float64) {
	now := func() time.Time { return time.UnixMilli(1_800_000_000_000) }
	s := open(t, server.URL(), pgstore.Options{Schema: newSchema(), Now: now})
	m := memstore.New(memstore.Options{Now: now})
	defer shut(t, m)
	keys, epochs := []string{"a", "b", "c", "d"}, []store.Epoch{7, 8, store.EpochForever}
	book, marks := int64(1), map[store.Writer]uint64{}
	var parts []store.PartCell
	var last *store.Batch
	for step := range 40 {
		if r.IntN(10) == 0 {
			book++
		}
		plans := make([]*store.Plan, 3)
		for i := range plans {
			ps := []store.Part{window(1, epochs[r.IntN(3)], r.Int64N(2)), store.PartFields{Kind: store.PartDim, View: 2, Name: "de"}.Part()}
			if r.IntN(4) == 0 {
				ps[0] = outside(1) // it is late
			}
			plans[i] = viewed(t, book, ps...)
			for _, key := range keys {
				for _, p := range append(ps, outside(1), outside(2), store.PartFields{Kind: store.PartBook}.Part()) {
					parts = append(parts, store.PartCell{Cell: at(key), Part: p})
				}
			}
		}
		b := under(store.Batch{Apart: r.IntN(2) == 0}, book)
		sign := 1 - 2*r.Int64N(2)
		for i := range 1 + r.IntN(8) {
			d := add(keys[r.IntN(len(keys))], sign*r.Int64N(5))
			if r.IntN(20) == 0 {
				d.N = -d.N
			}
			if d.Want = r.IntN(3) == 0; r.IntN(4) > 0 {
				d = with(d, plans[r.IntN(len(plans))])
			}
			if r.IntN(5) == 0 {
				d.Guard.Token, d.Guard.Digest = fmt.Sprintf("t%d.%d", step-r.IntN(2), i), 1
			}
			b.Deltas = append(b.Deltas, d)
		}
		if r.IntN(8) == 0 { // a counter with a deadline takes no events, one that was deleted does again
			first := store.Delta{Cell: at(keys[r.IntN(len(keys))]), Op: store.OpExpire, Expiry: store.ExpirySet, DeadlineMS: 1 << 50}
			if r.IntN(3) > 0 {
				first = store.Delta{Cell: first.Cell, Op: store.OpDelete}
			}
			for _, s := range []store.Store{s, m} {
				if _, err := try(t.Context(), s, under(store.Batch{Deltas: []store.Delta{first}}, book)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if r.IntN(2) == 0 {
			b.Writer = store.Writer(1 + r.IntN(2))
			b.Prev, b.Seq = marks[b.Writer], marks[b.Writer]+1
		}
		if last != nil && r.IntN(3) == 0 { // again, with riders of another definition
			for i := range last.Deltas {
				if last.Deltas[i].Event != nil {
					last.Deltas[i].Event = &store.Event{Plan: plans[0], Riders: []store.Rider{{Part: outside(9), Op: store.OpSet, N: 1}}}
				}
			}
			b = under(*last, book)
		}
		got, err1 := try(t.Context(), s, b)
		want, err2 := try(t.Context(), m, b)
		if store.KindOf(err1) != store.KindOf(err2) || got.Replayed != want.Replayed || !slices.EqualFunc(got.Results, want.Results, sameButVersion) {
			t.Fatalf("%+v\nbecame %+v, %v\nwant %+v, %v", b, got.Results, err1, want.Results, err2)
		}
		if last = nil; b.Writer != 0 && err1 == nil {
			marks[b.Writer] = b.Seq
			last = &b
		}
	}
	have, want := make([]store.Content, len(parts)), make([]store.Content, len(parts))
	if err := errors.Join(s.ReadParts(t.Context(), parts, have), m.ReadParts(t.Context(), parts, want)); err != nil {
		t.Fatal(err)
	}
	for i := range parts {
		if have[i] != want[i] {
			t.Fatalf("part %x of %s is %+v, want %+v", parts[i].Part, parts[i].Cell.Key, have[i], want[i])
		}
	}
	audited(t, s)
	return meter(t, s, "quipu_postgres_plain_total")
}

func sameButVersion(a, b store.Result) bool {
	same := (a.Version == 0) == (b.Version == 0)
	a.Version, b.Version = 0, 0
	return same && a == b
}

// A book is in force when it is raised: what was judged before it has ended by then.
func TestRaiseWaits(t *testing.T) {
	f := func(name string, writer store.Writer, d store.Delta) {
		t.Helper()
		o := pgstore.Options{Schema: newSchema()}
		s, other := open(t, server.URL(), o), open(t, server.URL(), o)
		do(t, s, store.Delta{Cell: at("a"), Op: store.OpSet})
		b := store.Batch{Deltas: []store.Delta{d}}
		if writer != 0 {
			if _, err := try(t.Context(), s, store.Batch{Writer: writer, Seq: 1, Deltas: []store.Delta{add("a", 0)}}); err != nil {
				t.Fatal(err)
			}
			b.Writer, b.Prev, b.Seq = writer, 1, 2
		}
		conn, look := connect(t), connect(t)
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), fmt.Sprintf(`select from %s.cells for update`, o.Schema)); err != nil {
			t.Fatal(err)
		}
		locks := func(mode string, granted bool) func() bool {
			return func() (some bool) {
				err := look.QueryRow(t.Context(), `select exists (select from pg_locks where relation = $1::regclass and mode = $2 and granted = $3)`,
					o.Schema+".fence", mode, granted).Scan(&some)
				return err != nil || some
			}
		}
		under, raised := make(chan error, 1), make(chan error, 1)
		go func() { _, err := try(t.Context(), s, b); under <- err }()
		until(t, name+": it is under way", locks("RowShareLock", true))
		go func() {
			_, err := try(t.Context(), other, store.Batch{Books: []store.Book{{Namespace: "default", ID: 3}}})
			raised <- err
		}()
		until(t, name+": the raise waits, or is over", func() bool { return len(raised) > 0 || locks("ExclusiveLock", false)() })
		if len(raised) > 0 {
			t.Fatalf("%s: a book is raised while a batch that was judged before is under way", name)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(<-under, <-raised); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		b.Prev, b.Seq = b.Prev+1, b.Seq+1
		if _, err := try(t.Context(), s, b); !errors.Is(err, store.ErrOutdated) {
			t.Errorf("%s: under no book: %v", name, err)
		}
	}
	f("plain", 0, add("a", 1))
	f("one", 7, add("a", 1))
	f("tokened", 0, once(add("a", 1), "t"))
	f("decided", 0, store.Delta{Cell: at("a"), Op: store.OpSet, N: 1})
}

// until waits until something is so.
func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); !is(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// What SQL adds to a counter that has views is outside of them, and nothing else is.
func TestPendingIsOutside(t *testing.T) {
	schema := newSchema()
	s := open(t, server.URL(), pgstore.Options{Schema: schema})
	plan := viewed(t, 2, window(1, 7, 0), store.PartFields{Kind: store.PartDim, View: 2, Name: "de"}.Part())
	do(t, s, add("a", 40))
	execute(t, fmt.Sprintf(`select %[1]s.add('a', 2); select %[1]s.add('plain', 7)`, schema)) // before the book
	for range 2 {
		if _, err := try(t.Context(), s, under(store.Batch{Deltas: []store.Delta{with(add("a", 1), plan)}}, 2)); err != nil {
			t.Fatal(err)
		}
	}
	execute(t, fmt.Sprintf(`select %[1]s.add('a', 100, 't'); select %[1]s.add('a', 1000)`, schema))
	holds(t, s, "a", 1144)
	holds(t, s, "plain", 7)
	partHolds(t, s, window(1, 7, 0), 2)
	for _, view := range []uint16{1, 2} {
		partHolds(t, s, outside(view), 42)
	}
	// Views that come with a later book have it in what was before them.
	partHolds(t, s, outside(0).At(2), 1100)
	if v := readPart(t, s, "plain", outside(0).At(0)); v.Exists {
		t.Errorf("a counter without views has %+v outside of them", v)
	}
	audited(t, s)
}

// The tables of epochs are made ahead, and go when nothing in them is kept.
func TestEpochs(t *testing.T) {
	schema := newSchema()
	clock := time.UnixMilli(1_800_000_000_000)
	o := pgstore.Options{Schema: schema, Now: func() time.Time { return clock }}
	s, other := open(t, server.URL(), o), open(t, server.URL(), o)
	s.Still()
	other.Still()
	now := store.EpochAt(clock.UnixMilli(), time.Hour)
	tables := func() (es []store.Epoch) {
		t.Helper()
		rows, err := connect(t).Query(t.Context(), `select substr(tablename, 6) from pg_tables where schemaname = $1 and tablename like 'part\_%' and length(tablename) = 13 order by 1`, schema)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var name string
			if err := rows.Scan(&name); err != nil {
				t.Fatal(err)
			}
			e, err := strconv.ParseUint(name, 16, 32)
			if err != nil {
				t.Fatal(err)
			}
			es = append(es, store.Epoch(e))
		}
		return es
	}
	have := func(want ...store.Epoch) {
		t.Helper()
		if got := tables(); !slices.Equal(got, want) {
			t.Fatalf("there are %x, want %x", got, want)
		}
	}
	turn := func(s *pgstore.Store) {
		t.Helper()
		if err := s.Turn(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	count := func(view uint16, e store.Epoch) error {
		_, err := try(t.Context(), s, store.Batch{Deltas: []store.Delta{with(add("a", 1), viewed(t, 1, slices.Repeat([]store.Part{window(view, e, 0)}, 1)...))}})
		return err
	}
	floor := func(view uint16, e store.Epoch) {
		t.Helper()
		floors := []store.Floor{{Namespace: "default", Kind: store.PartWindow, View: view, Epoch: e}}
		if _, err := try(t.Context(), s, store.Batch{Floors: floors}); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmp.Or(count(1, now), count(2, now), count(2, store.EpochForever)); err != nil {
		t.Fatal(err)
	}
	turn(s)
	have(now, now+1, store.EpochForever)
	clock = clock.Add(time.Hour)
	turn(s)
	have(now, now+1, now+2, store.EpochForever)

	floor(1, now+1)
	clock = clock.Add(3 * time.Hour)
	turn(other)
	have(now, store.EpochForever) // view 2 keeps it; what was made ahead in vain is gone
	floor(2, now+1)
	if v := readPart(t, s, "a", window(2, now, 0)); v.Exists {
		t.Errorf("below the floor is %+v", v)
	}
	if err := count(2, now); !errors.Is(err, store.ErrLate) {
		t.Errorf("below the floor, while the table is there: %v", err)
	}
	audited(t, s)
	turn(other)
	have(store.EpochForever)
	audited(t, s)
	var tallies int
	if err := connect(t).QueryRow(t.Context(), fmt.Sprintf(`select count(*) from %s.part_tally where epoch = -1 and total = 1`, schema)).Scan(&tallies); err != nil || tallies != 2 {
		t.Errorf("%d tallies of what is gone, %v", tallies, err)
	}
	if err := count(2, now); !errors.Is(err, store.ErrLate) {
		t.Errorf("below the floor: %v", err)
	}
	// S does not know that the table has gone; both ways lead to a new one.
	if err := count(3, now); err != nil {
		t.Fatal(err)
	}
	turn(other)
	have(now, store.EpochForever)
	floor(3, now+1)
	turn(other)
	set := with(store.Delta{Cell: at("a"), Op: store.OpSet, N: 9}, nil)
	set.Event.Riders = []store.Rider{applied(window(4, now, 0))}
	do(t, s, set)
	partHolds(t, s, window(4, now, 0), 9-4)
	audited(t, s)
}

// Parts are looked for by their index, in the tables of the epochs that are named and in no
// other.
func TestPartsByIndex(t *testing.T) {
	schema := newSchema()
	s := open(t, server.URL(), pgstore.Options{Schema: schema})
	s.Still()
	do(t, s, with(add("a", 1), viewed(t, 1, window(1, 7, 0), window(2, 8, 0))))
	for sql, args := range pgstore.PartFinders(schema, 7) {
		conn := connect(t)
		if _, err := conn.PgConn().Exec(t.Context(), `set enable_seqscan = off; prepare find as `+sql).ReadAll(); err != nil {
			t.Fatal(err)
		}
		for range 10 { // the server may change its plan after the fifth time
			if _, err := conn.Exec(t.Context(), `execute find(`+args+`)`, pgx.QueryExecModeSimpleProtocol); err != nil {
				t.Fatal(err)
			}
		}
		rows, err := conn.Query(t.Context(), `explain execute find(`+args+`)`, pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		all := fmt.Sprint(plan)
		if err != nil || !strings.Contains(all, "using part_00000007_pkey") || strings.Contains(all, "Seq Scan on part") ||
			strings.Contains(all, "Sort") || strings.Contains(all, "part_none") || strings.Contains(all, "part_00000008") {
			t.Errorf("%s: the plan is %q, %v", sql, plan, err)
		}
	}
}

// A range of rows is of one epoch if it can only have rows of that.
func TestScanParts(t *testing.T) {
	s := open(t, server.URL(), pgstore.Options{Schema: newSchema()})
	m := memstore.New(memstore.Options{})
	defer shut(t, m)
	var parts []store.Part
	for _, e := range []store.Epoch{7, 8, 1<<28 - 1, store.EpochForever} {
		parts = append(parts, window(1, e, 0), window(1, e, 1), window(2, e, -1), store.PartFields{Kind: store.PartEntries, View: 65_535, Epoch: e, Position: 1}.Part())
	}
	parts = append(parts, outside(1), outside(2), store.PartFields{Kind: store.PartHeld, Name: "\u00ff"}.Part())
	for _, key := range []string{"a", "aa", "b"} {
		for _, p := range parts {
			d := store.Delta{Cell: at(key), Op: store.OpSet, N: 1, Event: &store.Event{Part: p}}
			if p.Kind().HasBytes() {
				d.Op, d.N, d.Event.Bytes = store.OpPut, 0, []byte(key)
			}
			do(t, s, d)
			do(t, m, d)
		}
	}
	f := func(r store.Rows, n int) {
		t.Helper()
		for _, r.Back = range []bool{false, true} {
			for _, limit := range []int{store.ScanMax, 2} {
				have, err1 := s.ScanParts(t.Context(), r, limit)
				want, err2 := m.ScanParts(t.Context(), r, limit)
				if err := errors.Join(err1, err2); err != nil || !slices.Equal(have, want) || limit > n && len(have) != n {
					t.Errorf("%+v: %+v, want %d, %+v, %v", r, have, n, want, err)
				}
			}
		}
	}
	fields := func(p store.Part) store.PartFields { fs, _ := p.Fields(); return fs }
	last := fields(window(1, 7, 1<<40))
	f(store.Rows{Namespace: "default"}, 3*len(parts))
	f(store.Rows{Namespace: "other"}, 0)
	f(store.RowsUnder("default", fields(window(1, 7, 0)), ""), 6)
	f(store.RowsUnder("default", fields(window(1, 7, 0)), "a"), 4)
	f(store.RowsUnder("default", fields(window(1, store.EpochForever, 0)), ""), 6)
	f(store.RowsUnder("default", fields(window(1, 1<<28-1, 0)), "b"), 2)
	f(store.RowsUnder("default", store.PartFields{Kind: store.PartEntries, View: 65_535, Epoch: 1<<28 - 1}, ""), 3)
	f(store.RowsUnder("default", fields(outside(1)), ""), 6)
	f(store.RowsOf(at("a"), fields(window(1, 7, 1)), last), 1)
	f(store.RowsOf(at("a"), fields(outside(1)), fields(outside(9))), 2)
	both := store.RowsOf(at("a"), fields(window(1, 7, 0)), fields(window(1, 8, 1)))
	f(both, 7)
	f(store.Rows{Namespace: "default", From: "\x08", To: "\x81"}, 3)
	f(store.Rows{Namespace: "default", From: "\x81", To: "\x82"}, 36)
}
