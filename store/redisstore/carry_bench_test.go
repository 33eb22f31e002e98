package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/quipudb/quipu/internal/load/redisproc"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/redisstore"
)

// BenchmarkEvents is BenchmarkCarry of events, by what rides on each: nothing, three
// windows, and three windows for each value of two dimensions and for both together. The
// cells of an event are those and the total.
func BenchmarkEvents(b *testing.B) {
	riders := func(names ...string) (all []store.Rider) {
		for view, name := range names {
			kind := store.PartWindow
			if name != "" {
				kind = store.PartWindowDim
			}
			f := store.PartFields{Kind: kind, View: uint16(view + 1), Epoch: 7, Position: 1_700_000_000_000, Name: name}
			all = append(all, store.Rider{Part: f.Part(), Op: store.OpAdd, Amount: store.AmountApplied})
		}
		return append(all, based(1)...)
	}
	three := []string{"", "", ""}
	for _, of := range []struct {
		cells  int
		riders []store.Rider
	}{{1, nil}, {4, riders(three...)}, {12, riders(append(three, "de", "de", "de", "ios", "ios", "ios", "de,ios", "de,ios")...)}} {
		b.Run("cells="+strconv.Itoa(of.cells), func(b *testing.B) {
			var event *store.Event
			if of.riders != nil {
				plan, err := store.NewPlan(of.riders...)
				if err != nil {
					b.Fatal(err)
				}
				event = &store.Event{Plan: plan}
			}
			carries(b, 16, event)
		})
	}
}

// BenchmarkCarry adds to 800 uniform ones of 100,000 counters in one call, and reports
// the CPU time that an add takes in the server: what a partition costs, and what a cell
// does. The server does not sync its log.
func BenchmarkCarry(b *testing.B) {
	for _, partitions := range []int{4, 16, 64} {
		b.Run("partitions="+strconv.Itoa(partitions), func(b *testing.B) { carries(b, partitions, nil) })
	}
}

func carries(b *testing.B, partitions int, event *store.Event) {
	const adds = 800
	cells := make([]store.Cell, 100_000)
	for i := range cells {
		cells[i] = cell(fmt.Sprintf("key:%012d", i))
	}
	server := redisproc.For(b, "--appendonly", "yes", "--appendfsync", "no")
	s := open(b, "redis://"+server.Addr, redisstore.Options{Partitions: partitions})
	c := carrier{s, kit{b, s}.enlist(), make([]uint64, partitions), event}
	for from := 0; from < len(cells); from += 10_000 {
		c.carry(b, cells[from:from+10_000])
	}
	some, before := make([]store.Cell, adds), cpuOf(b, server.PID())
	b.ReportAllocs()
	for b.Loop() {
		for i := range some {
			some[i] = cells[rand.N(len(cells))]
		}
		c.carry(b, some)
	}
	b.ReportMetric(float64(cpuOf(b, server.PID())-before)/float64(b.N*adds), "server-ns/add")
}

// A carrier numbers batches, one for each partition.
type carrier struct {
	*redisstore.Store
	writer store.Writer
	marks  []uint64
	event  *store.Event // that each add leads
}

// carry adds 1 to each of some cells.
func (c *carrier) carry(b *testing.B, cells []store.Cell) {
	batches, replies := make([]*store.Batch, 0, len(c.marks)), make([]*store.Reply, 0, len(c.marks))
	byPartition := make([]*store.Batch, len(c.marks))
	for _, cell := range cells {
		p := store.PartitionOf(cell, len(c.marks))
		if byPartition[p] == nil {
			byPartition[p] = &store.Batch{Partition: p, Writer: c.writer, Prev: c.marks[p], Seq: c.marks[p] + 1, Apart: true}
			c.marks[p]++
			batches, replies = append(batches, byPartition[p]), append(replies, new(store.Reply))
		}
		byPartition[p].Deltas = append(byPartition[p].Deltas, store.Delta{Cell: cell, Op: store.OpAdd, N: 1, Want: true, Event: c.event})
	}
	c.Carry(b.Context(), batches, replies, func(i int, err error) {
		if err != nil || replies[i].Err != nil {
			b.Error(err, replies[i].Err)
		}
	})
}

// cpuOf returns the CPU time of a process in nanoseconds, as Linux tells it.
func cpuOf(b *testing.B, pid int) int64 {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/schedstat")
	if err != nil {
		b.Fatal(err)
	}
	ns, err := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return ns
}
