package redisstore_test

import (
	"bytes"
	"net"
	"sync"
	"testing"

	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/redisstore"
)

// trips are what was written about a counter, by the server it was written to.
type trips struct {
	about []byte
	mu    sync.Mutex // guards seen
	seen  map[string][][]byte
}

// A tripConn takes note of what is written on a connection, before it is.
type tripConn struct {
	net.Conn
	*trips
}

func (c tripConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, c.about) {
		c.mu.Lock()
		to := c.RemoteAddr().String()
		c.seen[to] = append(c.seen[to], bytes.Clone(b))
		c.mu.Unlock()
	}
	return c.Conn.Write(b)
}

// All shards of a counter are read by one write to each master, whatever the
// number of partitions they are in.
func TestClusterRoundTrips(t *testing.T) {
	c, url := clusterURL(t)
	if err := c.AwaitHealthy(t.Context()); err != nil {
		t.Fatal(err)
	}
	home := cell("laid-out")
	tr := &trips{about: []byte(home.Key), seen: make(map[string][][]byte)}
	o := redisstore.Options{Prefix: prefix(), Partitions: 64}
	k := kit{t, open(t, url, o.Wrapped(func(conn net.Conn) net.Conn { return tripConn{conn, tr} }))}
	cells := make([]store.Cell, 64)
	for i := range cells {
		cells[i] = store.ShardCell(home, i)
		k.reply(k.batch(store.Delta{Cell: cells[i], Op: store.OpAdd, N: int64(i)}))
	}
	values := make([]store.Value, len(cells))
	for range 2 { // the first may have to send the script
		tr.seen = make(map[string][][]byte)
		if err := k.Read(t.Context(), cells, values); err != nil {
			t.Fatal(err)
		}
	}
	for i, v := range values {
		if v.N != int64(i) {
			t.Errorf("shard %d reads %+v", i, v)
		}
	}
	asked := 0
	for to, writes := range tr.seen {
		if len(writes) != 1 {
			t.Errorf("%d writes to %s", len(writes), to)
		}
		for _, b := range writes {
			asked += bytes.Count(b, tr.about)
		}
	}
	if len(tr.seen) != 3 || asked != len(cells) {
		t.Errorf("%d servers were asked for %d cells, want 3 and %d", len(tr.seen), asked, len(cells))
	}
}
