package pgstore

import (
	"context"

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
	s.meters.trips.Add(1)
	rows, err := s.pool.Query(ctx, s.sql.read, namespaces, keys)
	if err != nil {
		return failure(ctx, err)
	}
	var i int
	var v store.Value
	var term, nowMS int64
	var pending bool
	_, err = pgx.ForEachRow(rows, []any{&i, &v.N, &v.Version, &term, &nowMS, &pending}, func() error {
		v.Exists = v.Version != 0
		setTerm(&v, term)
		values[i] = v
		stale = stale || pending || s.past(v.DeadlineMS, nowMS)
		return nil
	})
	if err != nil || !stale {
		return failure(ctx, err)
	}
	fresh, err := s.freshen(ctx, cells)
	for i, c := range cells {
		if err == nil {
			values[i] = fresh[c]
		}
	}
	return err
}

// past reports whether a deadline has come. The time is taken after the read,
// never before: a cell that was removed because it had expired is then seen
// beside others that have, too.
func (s *Store) past(deadlineMS, serverMS int64) bool {
	if deadlineMS == 0 {
		return false
	}
	if s.now != nil {
		serverMS = s.now().UnixMilli()
	}
	return deadlineMS <= s.time(serverMS)
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
	for {
		found, stale, err := s.page(ctx, r, n)
		if err != nil || len(stale) == 0 {
			return found, err
		}
		fresh, err := s.freshen(ctx, stale)
		if err != nil {
			return nil, err
		}
		// What has expired leaves a gap in the page.
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

// page returns a page of what is stored, and those of its cells that are not up
// to date.
func (s *Store) page(ctx context.Context, r store.Range, n int) (found []store.Entry, stale []store.Cell, err error) {
	s.meters.trips.Add(1)
	rows, err := s.pool.Query(ctx, s.sql.scan, []byte(r.Namespace), []byte(r.After), []byte(r.Prefix), prefixEnd(r.Prefix), n)
	if err != nil {
		return nil, nil, failure(ctx, err)
	}
	var key []byte
	var v store.Value
	var term, nowMS int64
	var pending bool
	_, err = pgx.ForEachRow(rows, []any{&key, &v.N, &v.Version, &term, &nowMS, &pending}, func() error {
		v.Exists = v.Version != 0
		setTerm(&v, term)
		found = append(found, store.Entry{Key: string(key), Value: v})
		if pending || s.past(v.DeadlineMS, nowMS) {
			stale = append(stale, store.Cell{Namespace: r.Namespace, Key: string(key)})
		}
		return nil
	})
	return found, stale, failure(ctx, err)
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
	s.meters.trips.Add(1)
	var nowMS int64
	var op *int16
	var n, digest, atMS, before, after, version *int64
	var want *bool
	err := s.pool.QueryRow(ctx, s.sql.lookup, []byte(c.Namespace), []byte(c.Key), []byte(name)).
		Scan(&nowMS, &op, &n, &want, &digest, &atMS, &before, &after, &version)
	if err != nil {
		return store.Fate{}, failure(ctx, err)
	}
	if own := s.clock(); own != nil {
		nowMS = *own
	}
	t := &token{}
	if op != nil {
		t.known = true
		t.Op, t.N, t.Want, t.AtMS = store.Op(*op), *n, *want, *atMS
		t.Result.Before, t.Result.After = *before, *after
		complete(&t.Token, *digest, *version)
	}
	st := &state{tokens: map[tokenID]*token{{c, name}: t}}
	return decide.Fate(st, decide.Clock{NowMS: s.time(nowMS), Window: s.limits.TokenWindow}, c, name), nil
}
