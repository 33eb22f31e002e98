package pgstore

import (
	"sync/atomic"
	"time"

	"github.com/quipudb/quipu/internal/clock"
)

type meters struct {
	calls, reads, trips, plain, unusual, transactions, retries, refused, upkeepErrors atomic.Uint64
}

// Meters reports what the store did, and the state of its connections.
func (s *Store) Meters(f func(name, help string, value float64)) {
	m, p := &s.meters, s.pool.Stat()
	count := func(name, help string, n *atomic.Uint64) { f(name, help, float64(n.Load())) }
	count("quipu_postgres_applies_total", "Calls that applied batches.", &m.calls)
	count("quipu_postgres_reads_total", "Calls that read.", &m.reads)
	count("quipu_postgres_round_trips_total", "Times that the server was waited for.", &m.trips)
	count("quipu_postgres_plain_total", "Batches of plain adds, applied in one round trip.", &m.plain)
	count("quipu_postgres_unusual_total", "Batches of plain adds that the server could not apply by itself.", &m.unusual)
	count("quipu_postgres_transactions_total", "Transactions decided here, those made again included.", &m.transactions)
	count("quipu_postgres_retries_total", "Transactions that the server ended for another.", &m.retries)
	count("quipu_postgres_pending_refused_total", "Adds by SQL that could not be folded.", &m.refused)
	count("quipu_postgres_upkeep_errors_total", "Times that the upkeep failed.", &m.upkeepErrors)
	f("quipu_postgres_connections", "Connections.", float64(p.TotalConns()))
	f("quipu_postgres_connections_busy", "Connections in use.", float64(p.AcquiredConns()))
	f("quipu_postgres_connections_max", "Connections at most.", float64(p.MaxConns()))
	f("quipu_postgres_connection_waits_total", "Times that a connection was waited for.", float64(p.EmptyAcquireCount()))
	f("quipu_postgres_connections_opened_total", "Connections made.", float64(p.NewConnsCount()))
	clock.Meters(f, time.Now(), s.heard)
}
