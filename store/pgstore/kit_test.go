package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/pgstore"
)

func at(key string) store.Cell { return store.Cell{Namespace: "default", Key: key} }

func add(key string, n int64) store.Delta { return store.Delta{Cell: at(key), Op: store.OpAdd, N: n} }

func once(d store.Delta, token string) store.Delta {
	d.Want, d.Guard.Token, d.Guard.Digest = true, token, uint64(d.N)
	return d
}

// try applies one batch. An error is the call's or the batch's.
func try(ctx context.Context, s store.Store, b store.Batch) (store.Reply, error) {
	r := make([]store.Reply, 1)
	if err := s.Apply(ctx, []store.Batch{b}, r); err != nil {
		return store.Reply{}, err
	}
	return r[0], r[0].Err
}

// do applies deltas that must be taken, and returns their results.
func do(t testing.TB, s store.Store, ds ...store.Delta) []store.Result {
	t.Helper()
	r, err := try(t.Context(), s, store.Batch{Deltas: ds})
	if err != nil {
		t.Fatalf("Apply: %v", err)
	}
	return r.Results
}

// holds checks what a counter is.
func holds(t testing.TB, s store.Store, key string, n int64) {
	t.Helper()
	var v [1]store.Value
	if err := s.Read(t.Context(), []store.Cell{at(key)}, v[:]); err != nil {
		t.Fatalf("Read: %v", err)
	}
	if v[0].N != n {
		t.Fatalf("%s is %d, want %d", key, v[0].N, n)
	}
}

func audited(t testing.TB, s *pgstore.Store) store.Audit {
	t.Helper()
	a, err := s.Audit(t.Context())
	if err != nil || len(a.Drift) > 0 {
		t.Fatalf("audit finds %+v, %v", a.Drift, err)
	}
	return a
}

// meter returns the value of a meter.
func meter(t testing.TB, s *pgstore.Store, name string) (value float64) {
	t.Helper()
	found := false
	s.Meters(func(n, _ string, v float64) {
		if n == name {
			value, found = v, true
		}
	})
	if !found {
		t.Fatalf("no meter %s", name)
	}
	return value
}

// connect returns a connection of a user of the database.
func connect(t testing.TB) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

// insist sends a batch until the answer is known.
func insist(ctx context.Context, s store.Store, b store.Batch) (store.Reply, error) {
	for {
		r, err := try(ctx, s, b)
		if !errors.Is(err, store.ErrUnknown) && !errors.Is(err, store.ErrUnavailable) {
			return r, err
		}
		if ctx.Err() != nil {
			return r, fmt.Errorf("after %w: %w", err, ctx.Err())
		}
	}
}
