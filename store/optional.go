package store

import (
	"context"
	"io"
	"strconv"
)

// An Auditor is a Store that can check what it serves against a separate
// record: the marks have the number and the sums of everything that was
// applied.
type Auditor interface {
	Audit(ctx context.Context) (Audit, error)
}

// An Audit is the result of checking a store.
type Audit struct {
	Cells  int64   // cells read
	Tokens int64   // tokens read
	Deltas uint64  // changes applied since the store was made, as the marks count them
	Drift  []Drift // what is not as it should be, or is lost; empty if all is well

	// Unproved is what a check can't know, in words: an independent record tells that
	// something differs, and not that its own end is gone as well.
	Unproved []string
}

// A Drift is a difference between what a store serves and its record.
type Drift struct {
	What string // what was compared
	Have string // what is served
	Want string // what the record says
}

// A Snapshotter is a Store that can write a consistent copy of itself while it
// serves.
type Snapshotter interface {
	Snapshot(ctx context.Context, w io.Writer) error
}

// A Meter is a Store that has metrics.
type Meter interface {
	// Meters calls f for each meter, in a fixed order. Names are in the style
	// of Prometheus: quipu_<noun>_<unit>, counters end in _total.
	Meters(f func(name, help string, value float64))
}

// A Prober is a Store that can cheaply tell whether it accepts writes.
type Prober interface {
	// Probe returns nil if a partition takes writes now, and otherwise why not. It
	// changes no cell, and does not try twice.
	Probe(ctx context.Context, partition int) error
}

// Probe returns nil if a partition of a store accepts writes now, and otherwise
// the reason. If the store is no Prober, Probe deletes a cell that does not
// exist, which changes nothing.
func Probe(ctx context.Context, s Store, partition int) error {
	if p, ok := s.(Prober); ok {
		return p.Probe(ctx, partition)
	}
	c := ProbeCell(partition, s.Traits().Partitions)
	b := Batch{
		Partition: partition,
		If:        []Condition{{Cell: c}},
		Deltas:    []Delta{{Cell: c, Op: OpDelete, Guard: Guard{Exists: ExistsNot}}},
	}
	var replies [1]Reply
	if err := s.Apply(ctx, []Batch{b}, replies[:]); err != nil {
		return err
	}
	return replies[0].Err
}

// ProbeCell returns a cell of a partition, of n, that never exists.
func ProbeCell(partition, n int) Cell {
	for i := 0; ; i++ {
		if c := (Cell{Key: "probe." + strconv.Itoa(i)}); PartitionOf(c, n) == partition {
			return c
		}
	}
}

// A Starter is a Store for callers that must not wait, such as the loop of a
// server with many connections.
type Starter interface {
	// Start is Apply without waiting. It reports false, having changed nothing, if it
	// would have to wait for anything but durability: for room, or for the disk.
	// Otherwise it has filled the replies, and calls done with the result that Apply
	// would have returned, as soon as the replies may be told to anyone. Done is
	// called once, here or in another goroutine, and must not block; it may not be
	// called before Flush. The caller may reuse the batches when Start returns. Close
	// waits for all that was started.
	Start(batches []Batch, replies []Reply, done func(error)) bool

	// Flush makes everything that was started durable. Here allows the store to do it
	// in this goroutine, for as long as the disk takes, which saves waking another.
	Flush(here bool)

	// Peek is Read without waiting. It reports false if it would have to wait, or if
	// Read would return an error.
	Peek(cells []Cell, values []Value) bool
}

// An Adder is a Starter with a fast path for the most common calls: plain adds
// that want their value, each a delta of OpAdd with Want and nothing else.
type Adder interface {
	Starter

	// StartAdds is Start for plain adds, as durable as Synced. It decides, in their
	// order, the adds that it can decide in one step, as Apply would decide each in a
	// batch by itself, and writes the results into a. It leaves the others unchanged,
	// with Left set: they are for Start or Apply. When it leaves one, it leaves all
	// later adds to the same cell, so that these stay in order. It reports false if it
	// leaves all; then done is not called. The caller may reuse a when StartAdds
	// returns.
	StartAdds(a *Adds, done func(error)) bool
}

// Adds are plain adds to cells of one namespace.
type Adds struct {
	Namespace string
	Book      int64  // as in Batch.Books; 0 is none
	Keys      []byte // of the adds, which the caller has checked as CheckKey does
	Each      []Add
}

// An Add is one or more additions of the same amount to one cell, each decided
// as if it came alone. The value after the first is Before+N, after the second
// Before+2N.
type Add struct {
	N      int64  // what is added each time
	Before int64  // the value before the first; 0 of an absent cell
	Key    uint32 // where its key begins in Adds.Keys
	Times  uint32 // how often N is added, 1 or more
	Taken  uint32 // how many of them were made: the others, which come last, would leave int64
	Size   uint16 // of the key
	Left   bool   // it was not decided. If it is set before, it won't be
}

// KeyOf returns the key of an add.
func (a *Adds) KeyOf(add *Add) []byte { return a.Keys[add.Key:][:add.Size:add.Size] }

// A Clock is a Store that can tell its time without waiting. Compare deadlines
// with this time, because the clock of the caller may differ.
type Clock interface {
	// NowMS returns the time that a cell's deadline is judged by, in Unix
	// milliseconds: as the store has told it, with what has passed since. It is 0 if
	// the store has not told it yet. Once Read has returned the deadline of a cell, or
	// ReadParts a part of it, it is not behind the time at which that was there.
	NowMS(c Cell) int64
}

// A Sizer is a Store that knows the number of cells of a namespace without
// reading them all.
type Sizer interface {
	// Size returns the number of cells. It counts those that have expired and
	// were not removed yet.
	Size(ctx context.Context, namespace string) (int64, error)
}

// A Namespacer is a Store that knows which namespaces it has.
type Namespacer interface {
	// Namespaces returns up to n of the namespaces that have a cell and are
	// greater than after, in byte order, without the store's own. A result shorter
	// than n is the end. One whose cells have all expired may be among them until
	// they are removed.
	Namespaces(ctx context.Context, after string, n int) ([]string, error)
}

// A Witness is a Store that can tell whether it still has what it once had: a
// crash takes changes that were acknowledged as less than Synced, and a failover
// or a restored backup may take any.
type Witness interface {
	// Lost reports whether the change that gave a cell a version is missing. The
	// version is one that this store, or what was in its place before, has told; v
	// is the cell as it was read since, and where that says enough, nothing else
	// is asked.
	//
	// A change that is there, or was there and was followed by others, is never
	// called lost, whatever became of the cell. One that is missing is called so
	// as far as the store can tell, which each store says.
	Lost(ctx context.Context, c Cell, version uint64, v Value) (bool, error)
}

// Lacks reports whether a cell that was read as v lacks the change that gave it a
// version, and whether v is enough to know.
func (v Value) Lacks(version uint64) (lacks, known bool) {
	whole := v.Exists && (v.Layout == 0 || v.IsObject())
	return whole && v.Version < version, whole
}

// A Carrier is a Store of several partitions that takes what is for many of them in one
// trip, if they are on one server.
type Carrier interface {
	// Route returns the number of the server that has a partition, below that of the
	// partitions. It may change at any time, and may be out of date: then there are more
	// trips.
	Route(partition int) int

	// Carry is Apply of batches of different partitions, which answers each as soon as
	// it can: it calls done once for each, with its place and the error that Apply
	// would have returned for it alone, one after the other or side by side. It returns
	// when most are answered; those that take longer may be later.
	Carry(ctx context.Context, batches []*Batch, replies []*Reply, done func(i int, err error))
}
