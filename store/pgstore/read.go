package pgstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/store"
)

// Read fills values[i] with the value of cells[i], all at one moment, in one
// statement. If a cell has expired or has adds pending, that is dealt with first.
func (s *Store) Read(ctx context.Context, cells []store.Cell, values []store.Value) error {
	if err := store.CheckRead(cells, values); err != nil {
		return err
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	if len(cells) == 0 {
		return nil
	}
	s.meters.reads.Add(1)
	stale := false
	namespaces, keys := columns(cells)
	var i int
	r := row{asked: s.heard.Ask()}
	err := s.query(ctx, s.sql.read, []any{namespaces, keys}, append([]any{&i}, r.columns()...), func(asOfMS int64) {
		values[i] = s.value(&r, asOfMS)
		stale = stale || r.stale
	})
	if err != nil || !stale {
		return err
	}
	fresh, err := s.freshen(ctx, cells)
	for i, c := range cells {
		if err == nil {
			values[i] = fresh[c]
		}
	}
	return err
}

// query makes a statement that reads, and calls each for every row, after it was
// scanned, with as of when it is if the server is a standby, and otherwise with 0.
//
// That is asked for before the statement takes its snapshot, on the same connection:
// the next one may be to another server, and this one may be promoted any time.
func (s *Store) query(ctx context.Context, sql string, args, scans []any, each func(asOfMS int64)) error {
	s.meters.trips.Add(1)
	var asOfMS *int64
	forEach := func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, scans, func() error {
			if asOfMS == nil {
				each(0)
			} else {
				each(*asOfMS)
			}
			return nil
		})
		return err
	}
	if !s.existing {
		rows, err := s.pool.Query(ctx, sql, args...)
		if err == nil {
			err = forEach(rows)
		}
		return failure(ctx, err)
	}
	var b pgx.Batch
	b.Queue(s.sql.replayed).QueryRow(func(row pgx.Row) error { return row.Scan(&asOfMS) })
	b.Queue(sql, args...).Query(forEach)
	return failure(ctx, s.pool.SendBatch(ctx, &b).Close())
}

// A row is a cell as it is stored.
type row struct {
	n         int64
	version   int64
	term      int64
	until     int64
	nowMS     int64
	asked     time.Duration // when it was, as heard.Ask tells it
	pendingMS *int64        // when the first of the adds was made that are pending; nil if none is
	stale     bool          // it has to be brought up to date
}

func (r *row) columns() []any {
	return []any{&r.n, &r.version, &r.term, &r.until, &r.nowMS, &r.pendingMS}
}

// value returns what a row means. A store that only reads can't remove a cell that
// has expired, so it says that it is absent. Nor can it fold what is pending: so it
// says that it may lack what was added since.
func (s *Store) value(r *row, asOfMS int64) store.Value {
	v := store.Value{N: r.n, AsOfMS: asOfMS}
	setTerm(&v, r.version, r.term, r.until)
	past := s.past(v.DeadlineMS, r.nowMS, r.asked)
	if r.stale = !s.existing && (past || r.pendingMS != nil); !s.existing {
		return v
	}
	if past {
		v = store.Value{AsOfMS: asOfMS}
	}
	if r.pendingMS != nil && (asOfMS == 0 || *r.pendingMS < asOfMS) {
		v.AsOfMS = *r.pendingMS
	}
	return v
}

// past reports whether a deadline has come. The time is taken after the read,
// never before: a cell that was removed because it had expired is then seen
// beside others that have, too.
func (s *Store) past(deadlineMS, serverMS int64, asked time.Duration) bool {
	if deadlineMS == 0 {
		return false
	}
	if s.now != nil {
		serverMS = s.now().UnixMilli()
	}
	return deadlineMS <= s.time(serverMS, asked)
}

// freshen removes those of the cells that have expired, folds what is pending,
// and returns the cells as they are then.
func (s *Store) freshen(ctx context.Context, cells []store.Cell) (map[store.Cell]store.Value, error) {
	st, err := s.transact(ctx, &work{cells: cells})
	if err != nil {
		return nil, err
	}
	fresh := make(map[store.Cell]store.Value, len(st.cells))
	for c, at := range st.cells {
		fresh[c] = at.now
	}
	return fresh, nil
}

// Scan returns up to n cells of a namespace in the order of their keys.
func (s *Store) Scan(ctx context.Context, r store.Range, n int) ([]store.Entry, error) {
	if n < 1 || n > store.ScanMax {
		return nil, store.Errorf(store.KindInvalid, "scan of %d cells: want 1 to %d", n, store.ScanMax)
	}
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	s.meters.reads.Add(1)
	if s.existing {
		return s.pages(ctx, r, n)
	}
	for {
		found, stale, err := s.page(ctx, r, n)
		if err != nil || len(stale) == 0 {
			return found, err
		}
		fresh, err := s.freshen(ctx, stale)
		if err != nil {
			return nil, err
		}
		// An expired cell leaves a gap in the page.
		whole := true
		for i := range found {
			if v, ok := fresh[store.Cell{Namespace: r.Namespace, Key: found[i].Key}]; ok {
				found[i].Value = v
				whole = whole && v.Exists
			}
		}
		if whole {
			return found, nil
		}
	}
}

// pages returns n cells that exist, from as many pages as it takes: those that have
// expired stay where they are.
func (s *Store) pages(ctx context.Context, r store.Range, n int) (all []store.Entry, err error) {
	for {
		found, _, err := s.page(ctx, r, n)
		if err != nil {
			return nil, err
		}
		for _, e := range found {
			if e.Value.Exists && len(all) < n {
				all = append(all, e)
			}
		}
		if len(found) < n || len(all) == n {
			return all, nil
		}
		r.After = found[n-1].Key
	}
}

// page returns a page of what is stored, and those of its cells that are not up
// to date.
func (s *Store) page(ctx context.Context, r store.Range, n int) (found []store.Entry, stale []store.Cell, err error) {
	var key []byte
	c := row{asked: s.heard.Ask()}
	args := []any{[]byte(r.Namespace), []byte(r.After), []byte(r.Prefix), prefixEnd(r.Prefix), n}
	err = s.query(ctx, s.sql.scan, args, append([]any{&key}, c.columns()...), func(asOfMS int64) {
		found = append(found, store.Entry{Key: string(key), Value: s.value(&c, asOfMS)})
		if c.stale {
			stale = append(stale, store.Cell{Namespace: r.Namespace, Key: string(key)})
		}
	})
	return found, stale, err
}

// prefixEnd returns the first key after all those that begin with a prefix, nil
// if there is none.
func prefixEnd(prefix string) []byte {
	end := []byte(prefix)
	for len(end) > 0 {
		if end[len(end)-1]++; end[len(end)-1] != 0 {
			return end
		}
		end = end[:len(end)-1]
	}
	return nil
}

// Size returns the number of cells of a namespace.
func (s *Store) Size(ctx context.Context, namespace string) (n int64, err error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.leave()
	s.meters.trips.Add(1)
	err = s.pool.QueryRow(ctx, s.sql.size, []byte(namespace)).Scan(&n)
	return n, failure(ctx, err)
}

// Namespaces returns up to n namespaces that have a cell, in order.
func (s *Store) Namespaces(ctx context.Context, after string, n int) ([]string, error) {
	if n < 1 || n > store.ScanMax {
		return nil, store.Errorf(store.KindInvalid, "list of %d namespaces: want 1 to %d", n, store.ScanMax)
	}
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	s.meters.trips.Add(1)
	rows, err := s.pool.Query(ctx, s.sql.namespaces, []byte(after), n) // the store's own is ""
	if err != nil {
		return nil, failure(ctx, err)
	}
	var found []string
	var ns []byte
	_, err = pgx.ForEachRow(rows, []any{&ns}, func() error {
		found = append(found, string(ns))
		return nil
	})
	return found, failure(ctx, err)
}

// Lookup reports what is known of a token now.
func (s *Store) Lookup(ctx context.Context, c store.Cell, name string) (store.Fate, error) {
	if err := store.CheckCell(c); err != nil {
		return store.Fate{}, err
	}
	if err := store.CheckToken(name); err != nil {
		return store.Fate{}, err
	}
	if err := s.enter(ctx); err != nil {
		return store.Fate{}, err
	}
	defer s.leave()
	s.meters.reads.Add(1)
	var nowMS, behindMS int64
	var op *int16
	var outcome *store.Outcome
	var refused *uint8
	var n, digest, atMS, before, after, version *int64
	var want *bool
	asked := s.heard.Ask()
	err := s.query(ctx, s.sql.lookup, []any{[]byte(c.Namespace), []byte(c.Key), []byte(name)},
		[]any{&nowMS, &op, &n, &want, &digest, &atMS, &before, &after, &version, &outcome, &refused}, func(asOfMS int64) { behindMS = asOfMS })
	if err != nil {
		return store.Fate{}, err
	}
	if own := s.clock(); own != nil {
		nowMS = *own
	}
	t := &token{}
	if op != nil {
		t.known = true
		t.Op, t.N, t.Want, t.AtMS = store.Op(*op), *n, *want, *atMS
		t.Result.Before, t.Result.After, t.Result.Outcome, t.Result.Refused = *before, *after, *outcome, *refused
		complete(&t.Token, *digest, *version)
	}
	st := &state{tokens: map[tokenID]*token{{c, name}: t}}
	f := decide.Fate(st, decide.Clock{NowMS: s.time(nowMS, asked), Window: s.limits.TokenWindow}, c, name)
	if f.State == store.TokenUnknown && behindMS != 0 {
		return store.Fate{}, store.Errorf(store.KindUnavailable,
			"this PostgreSQL is a standby, and does not know the token: the primary may; ask a server that uses it")
	}
	return f, nil
}
