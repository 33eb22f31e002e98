package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/quipudb/quipu/internal/load"
	"github.com/quipudb/quipu/internal/load/redisproc"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/pgstore"
)

const (
	postgresHotAbout = "One hot counter in PostgreSQL, acknowledged after its commit with synchronous_commit on: two Quipu nodes, `INCR` over RESP " +
		"at depth 16 on 50 connections to each, against a counter split by hand into 100 rows, of which pgbench updates one at random, on 64 connections. " +
		"CPU time is PostgreSQL's."
	postgresBatchAbout = "Batches of 1,000 adds by 4 callers, keys uniform out of a million that all exist, into PostgreSQL with synchronous_commit on: " +
		"Quipu's store, each batch once and for all under its writer's number, against the plain upsert: `INSERT … SELECT unnest … ON CONFLICT DO UPDATE`, " +
		"sorted, through the same client library. CPU time is PostgreSQL's."
	redisHotAbout = "One hot counter in a Redis Cluster of three masters, each with a replica, appendfsync always: a Quipu node, `INCR` over RESP " +
		"at depth 16 on 200 connections, against `INCR` at the master that has the key, likewise. CPU time is that of all six Redis servers."
)

// Sides and metrics of the figures of stores.
const (
	byHand     = "100 rows, by hand"
	plain      = "plain upsert"
	storeCalls = "store calls/1,000 increments"
)

const storeDepth = 16

// postgresHot measures one hot counter over PostgreSQL.
func postgresHot(s *session) (err error) {
	d := pick(s, 5*time.Second, time.Second)
	pg, err := startPostgres(s.ctx, s.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pg.Stop()) }()
	nodes, err := s.serveUnder(2, pg.URL())
	defer func() { err = errors.Join(err, nodes.stop()) }()
	if err != nil {
		return err
	}
	s.note("%s, default settings, over a Unix socket.", pg.Version)
	cpu := func() (time.Duration, error) { return cpuTimeOfAll(pg.PID) }
	err = s.alternate(
		func() error { return s.driveNodes(nodes, 100, d, cpu) },
		func() error { return s.drivePostgres(byHand, pg, pgLoad{rows: 100, connections: 64}, d) },
	)
	if err != nil {
		return err
	}
	s.atLeast("rate over that of 100 rows by hand", s.over("quipu", byHand, rate), 30)
	s.atMost("store calls for 1,000 increments", s.median("quipu", storeCalls), 5)
	return nil
}

// redisHot measures one hot counter over a Redis Cluster.
func redisHot(s *session) (err error) {
	d := pick(s, 5*time.Second, time.Second)
	cluster, err := redisproc.StartCluster(s.ctx, s.dir, "--appendonly", "yes", "--appendfsync", "always")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	text, err := cluster.Nodes[0].Command(s.ctx, "CLUSTER", "KEYSLOT", load.KeyZero)
	if err != nil {
		return err
	}
	slot, err := strconv.Atoi(strings.TrimPrefix(text, ":"))
	if err != nil {
		return err
	}
	master, _, err := cluster.Owner(s.ctx, slot)
	if err != nil {
		return err
	}
	nodes, err := s.serveUnder(1, "redis://"+cluster.Nodes[0].Addr)
	defer func() { err = errors.Join(err, nodes.stop()) }()
	if err != nil {
		return err
	}
	s.note("%s.", master.Version)
	cpu := func() (total time.Duration, err error) {
		for _, n := range cluster.Nodes {
			one, e := cpuTime(n.PID())
			total, err = total+one, errors.Join(err, e)
		}
		return total, err
	}
	err = s.alternate(
		func() error { return s.driveNodes(nodes, 200, d, cpu) },
		func() error {
			_, err := s.driveStore("redis", cpu, func() ([]*load.Report, error) { return direct(s.ctx, master, hotLoad(200, d)) })
			return err
		},
	)
	if err != nil {
		return err
	}
	s.atLeast("rate over that of INCR", s.over("quipu", "redis", rate), 1.3)
	s.atMost("CPU time of the store over that of INCR", s.over("quipu", "redis", cpuNS), 0.1)
	s.atMost("store calls for 1,000 increments", s.median("quipu", storeCalls), 5)
	return nil
}

// A nodes is servers over one store.
type nodes []*quipuServer

func (n nodes) stop() (err error) {
	for _, server := range n {
		err = errors.Join(err, server.stop())
	}
	return err
}

// resp returns where the nodes speak RESP.
func (n nodes) resp() (addrs []string) {
	for _, server := range n {
		addrs = append(addrs, server.doors["resp"])
	}
	return addrs
}

// calls returns how many combined batches the nodes have sent to their store.
func (n nodes) calls(ctx context.Context) (total float64, err error) {
	for _, server := range n {
		one, err := meterOf(ctx, "http://"+server.doors["http"], "quipu_node_flights_total")
		if err != nil {
			return 0, err
		}
		total += one
	}
	return total, nil
}

// meterOf asks a server for a meter.
func meterOf(ctx context.Context, url, name string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("%s has no meter %s", url, name)
}

// hotLoad increments one counter for some time.
func hotLoad(connections int, d time.Duration) load.Config {
	return load.Config{Op: load.Incr, Dist: load.Hot, Connections: connections, Depth: storeDepth, Duration: d}
}

// direct loads a Redis server.
func direct(ctx context.Context, server *redisproc.Server, c load.Config) ([]*load.Report, error) {
	c.Target, c.ServerPID = "redis://"+server.Addr, server.PID()
	r, err := generate(ctx, c)
	return []*load.Report{r}, err
}

// driveNodes loads the nodes, and records how they called their store.
func (s *session) driveNodes(n nodes, connections int, d time.Duration, cpu func() (time.Duration, error)) error {
	before, err := n.calls(s.ctx)
	if err != nil {
		return err
	}
	increments, err := s.driveStore("quipu", cpu, func() ([]*load.Report, error) { return n.generate(s.ctx, hotLoad(connections, d)) })
	if err != nil {
		return err
	}
	after, err := n.calls(s.ctx)
	s.record("quipu", storeCalls, (after-before)/float64(increments)*1000)
	return err
}

// driveStore runs a load, records its rate and the CPU time of the store, and
// returns how many operations it did.
func (s *session) driveStore(side string, cpu func() (time.Duration, error), run func() ([]*load.Report, error)) (int64, error) {
	before, err := cpu()
	if err != nil {
		return 0, err
	}
	reports, err := run()
	if err != nil {
		return 0, err
	}
	after, err := cpu()
	total, n := 0.0, operations(reports)
	for _, r := range reports {
		total += r.Rate
	}
	s.record(side, rate, total)
	s.record(side, cpuNS, float64(after-before)/float64(n))
	return n, err
}

// postgresBatch measures batches of uniform keys into PostgreSQL.
func postgresBatch(s *session) (err error) {
	pg, err := startPostgres(s.ctx, s.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pg.Stop()) }()
	s.note("%s, default settings, over a Unix socket.", pg.Version)
	b := pgBatches{session: s, pg: pg, time: pick(s, 10*time.Second, time.Second), keys: newKeys(pick(s, 1_000_000, 10_000), inOrder)}
	if b.store, err = pgstore.Open(s.ctx, pg.URL(), pgstore.Options{}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.store.Close()) }()
	if b.pool, err = pgxpool.New(s.ctx, pg.URL()); err != nil {
		return err
	}
	defer b.pool.Close()
	if err := b.fill(); err != nil {
		return err
	}
	if err := s.alternate(b.quipu, b.plain); err != nil {
		return err
	}
	s.atLeast("rate over that of the plain upsert", s.over("quipu", plain, rate), 0.8)
	return nil
}

const pgCallers = 4

type pgBatches struct {
	*session
	pg    *postgres
	time  time.Duration
	keys  keys
	store *pgstore.Store
	pool  *pgxpool.Pool
	seqs  [pgCallers]uint64
	ids   [pgCallers]store.Writer
}

const upsert = `INSERT INTO plain (key, n) SELECT unnest($1::text[]), unnest($2::bigint[])
	ON CONFLICT (key) DO UPDATE SET n = plain.n + excluded.n`

// fill makes all counters, on both sides.
func (b *pgBatches) fill() (err error) {
	for i := range b.ids {
		if b.ids[i], err = store.Enlist(b.ctx, b.store); err != nil {
			return err
		}
	}
	if _, err := b.pool.Exec(b.ctx, `CREATE TABLE plain (key text PRIMARY KEY, n bigint NOT NULL) WITH (fillfactor = 70)`); err != nil {
		return err
	}
	for from := 0; from < b.keys.len(); from += batchEvents {
		var chosen []string
		for i := from; i < min(from+batchEvents, b.keys.len()); i++ {
			chosen = append(chosen, b.keys.at(i))
		}
		if err := errors.Join(b.applyTo(0, chosen), b.upsert(chosen)); err != nil {
			return err
		}
	}
	_, err = b.pool.Exec(b.ctx, "VACUUM ANALYZE")
	return err
}

// choose returns keys at random.
func (b *pgBatches) choose() []string {
	chosen := make([]string, batchEvents)
	for i := range chosen {
		chosen[i] = b.keys.at(rand.IntN(b.keys.len()))
	}
	return chosen
}

// applyTo adds one to each of the keys as a caller's next batch.
func (b *pgBatches) applyTo(caller int, chosen []string) error {
	deltas := make([]store.Delta, len(chosen))
	for i, key := range chosen {
		deltas[i] = store.Delta{Cell: store.Cell{Namespace: "bench", Key: key}, Op: store.OpAdd, N: 1}
	}
	seq := b.seqs[caller]
	b.seqs[caller]++
	replies := make([]store.Reply, 1)
	err := b.store.Apply(b.ctx, []store.Batch{{Writer: b.ids[caller], Prev: seq, Seq: seq + 1, Deltas: deltas}}, replies)
	return errors.Join(err, replies[0].Err)
}

// upsert adds one to each of the keys, in the plainest way that does not
// deadlock.
func (b *pgBatches) upsert(chosen []string) error {
	slices.Sort(chosen)
	keys, sums := chosen[:0:0], []int64(nil)
	for _, key := range chosen {
		if n := len(keys); n > 0 && keys[n-1] == key {
			sums[n-1]++
			continue
		}
		keys, sums = append(keys, key), append(sums, 1)
	}
	_, err := b.pool.Exec(b.ctx, upsert, keys, sums)
	return err
}

func (b *pgBatches) quipu() error {
	return b.drivePG("quipu", func(c int) error { return b.applyTo(c, b.choose()) })
}

func (b *pgBatches) plain() error {
	return b.drivePG(plain, func(int) error { return b.upsert(b.choose()) })
}

// drivePG lets callers call op for some time, and records the rate and the CPU
// time of PostgreSQL.
func (b *pgBatches) drivePG(side string, op func(caller int) error) error {
	before, err := cpuTimeOfAll(b.pg.PID)
	if err != nil {
		return err
	}
	n, took, err := repeat(pgCallers, b.time, func(c int) (int, error) { return batchEvents, op(c) })
	if err != nil {
		return err
	}
	after, err := cpuTimeOfAll(b.pg.PID)
	b.record(side, rate, float64(n)/took.Seconds())
	b.record(side, cpuNS, float64(after-before)/float64(n))
	return err
}
