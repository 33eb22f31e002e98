package pgstore_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/pgstore"
)

// BenchmarkEvents applies batches of 256 events, each to a total, two windows and a value of
// a dimension: to one counter, and to any of 10,000. Beside it is what people do without
// Quipu: three upserts for each event, here 256 of them in one transaction and
// one round trip.
func BenchmarkEvents(b *testing.B) {
	const events, keys = 256, 10_000
	for _, m := range []struct {
		name string
		keys int
	}{{"one key", 1}, {"10k keys", keys}} {
		key := func() string { return fmt.Sprintf("k%d", rand.IntN(m.keys)) }
		report := func(b *testing.B) {
			b.ReportMetric(float64(b.N)*events/b.Elapsed().Seconds(), "events/s")
		}
		b.Run(m.name, func(b *testing.B) {
			s := open(b, server.URL(), pgstore.Options{Schema: newSchema()})
			dims := make([]*store.Plan, 10)
			for i := range dims {
				dims[i] = viewed(b, 1, window(1, 7, 0), window(2, 8, 0), store.PartFields{Kind: store.PartDim, View: 3, Name: fmt.Sprint(i)}.Part())
			}
			var first store.Batch // of each counter under the book
			for i := range m.keys {
				first.Deltas = append(first.Deltas, with(add(fmt.Sprintf("k%d", i), 1), dims[0]))
				if len(first.Deltas) == 1000 || i == m.keys-1 {
					do(b, s, first.Deltas...)
					first.Deltas = first.Deltas[:0]
				}
			}
			batch := store.Batch{Writer: 7, Deltas: make([]store.Delta, events)}
			b.ResetTimer()
			for range b.N {
				for i := range batch.Deltas {
					batch.Deltas[i] = with(add(key(), 1), dims[rand.IntN(len(dims))])
				}
				batch.Prev, batch.Seq = batch.Seq, batch.Seq+1
				if _, err := try(b.Context(), s, batch); err != nil {
					b.Fatal(err)
				}
			}
			report(b)
		})
		b.Run(m.name+", three tables", func(b *testing.B) {
			schema, conn := newSchema(), connect(b)
			execute(b, fmt.Sprintf(`create schema %[1]s;
				create table %[1]s.total (key text primary key, n bigint not null);
				create table %[1]s.hour (key text, hour timestamptz, n bigint not null, primary key (key, hour));
				create table %[1]s.dimension (key text, name text, value text, n bigint not null, primary key (key, name, value))`, schema))
			upsert := func(table, values, conflict string) string {
				return fmt.Sprintf(`insert into %[1]s.%[2]s as t values (%[3]s) on conflict (%[4]s) do update set n = t.n + excluded.n`, schema, table, values, conflict)
			}
			total, hour := upsert("total", "$1, $2", "key"), upsert("hour", "$1, date_trunc('hour', now()), $2", "key, hour")
			dimension := upsert("dimension", "$1, 'country', $2, $3", "key, name, value")
			b.ResetTimer()
			for range b.N {
				q := &pgx.Batch{}
				for range events {
					k := key()
					q.Queue(total, k, 1)
					q.Queue(hour, k, 1)
					q.Queue(dimension, k, fmt.Sprint(rand.IntN(10)), 1)
				}
				if err := conn.SendBatch(b.Context(), q).Close(); err != nil {
					b.Fatal(err)
				}
			}
			report(b)
		})
	}
}

// BenchmarkOne applies numbered batches of one add, such as a node sends for a hot counter.
func BenchmarkOne(b *testing.B) {
	s := open(b, server.URL(), pgstore.Options{Schema: newSchema()})
	batch := store.Batch{Writer: 7, Deltas: []store.Delta{add("a", 1)}}
	for range b.N {
		batch.Prev, batch.Seq = batch.Seq, batch.Seq+1
		if _, err := try(b.Context(), s, batch); err != nil {
			b.Fatal(err)
		}
	}
}
