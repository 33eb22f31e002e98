package rpc

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/internal/port"
	"github.com/quipudb/quipu/internal/protocol"
	"github.com/quipudb/quipu/internal/server"
	pb "github.com/quipudb/quipu/quipupb"
	"github.com/quipudb/quipu/store"
)

const (
	// groupMax is how many batches of a stream are applied together at most, and
	// how many more are read meanwhile.
	groupMax = 64
	// aheadBytesMax is how many bytes of batches, about, are read ahead of the one
	// that is being applied. A client that sends and does not take its answers
	// holds no more than that, and one message.
	aheadBytesMax = 1 << 20
	// factBytes is what a fact of a batch takes in memory, about, and each of its
	// dimensions.
	factBytes = 128
)

// errDraining ends a stream. What it has not answered may be sent again.
var errDraining = store.Errorf(store.KindUnavailable, "the server is closing")

// Enlist issues a writer.
func (d *Door) Enlist(ctx context.Context, _ *pb.EnlistRequest) (*pb.EnlistReply, error) {
	w, err := d.db.Port().Enlist(ctx)
	if err != nil {
		return nil, err
	}
	return &pb.EnlistReply{Writer: uint64(w), Partitions: uint32(d.db.Port().Traits().Partitions)}, nil
}

// Write applies the batches of a stream. While a group of them becomes durable,
// the next one is read: so a client that does not wait for each answer pays for
// one sync with many batches.
func (d *Door) Write(s grpc.BidiStreamingServer[pb.WriteRequest, pb.WriteReply]) error {
	w := &writeStream{
		door: d, stream: s, ctx: s.Context(), visit: visitOf(s.Context()),
		read: make(chan request, groupMax), room: make(chan struct{}, 1),
	}
	readErr := make(chan error, 1)
	go func() {
		readErr <- w.readAll()
		close(w.read)
	}()
	defer w.leave()
	for {
		select {
		case r, ok := <-w.read:
			if !ok {
				return <-readErr
			}
			if err := w.serve(r); err != nil {
				return err
			}
		case <-d.draining:
			return errDraining
		}
	}
}

// A request is a batch that was read, and what it took from the budget.
type request struct {
	*pb.WriteRequest
	taken int64
}

// A writeStream is one stream being served.
type writeStream struct {
	door   *Door
	stream grpc.BidiStreamingServer[pb.WriteRequest, pb.WriteReply]
	ctx    context.Context
	visit  *visit
	read   chan request
	ahead  atomic.Int64  // bytes of what was read and not answered
	room   chan struct{} // told when it became less

	// One group.
	requests []request
	answers  []pb.WriteReply
	deltas   []store.Delta
	facts    []port.Fact // of the deltas of the batches, or none
	batches  []store.Batch
	replies  []store.Reply
	places   []int // of the batches among the requests
}

// readAll reads until the client has nothing more to send.
func (w *writeStream) readAll() error {
	for {
		m, err := w.stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		r := request{m, w.visit.hand()}
		select {
		case w.read <- r:
		case <-w.ctx.Done():
			w.visit.give(r.taken)
			return w.ctx.Err()
		}
		for ahead := w.ahead.Add(bytesOf(m)); ahead > aheadBytesMax; ahead = w.ahead.Load() {
			select {
			case <-w.room:
			case <-w.ctx.Done():
				return w.ctx.Err()
			}
		}
	}
}

// leave ends the reading, and gives back what was read and is not answered.
func (w *writeStream) leave() {
	w.visit.cancel()
	for r := range w.read {
		w.visit.give(r.taken)
	}
}

// bytesOf returns about how much memory a batch takes.
func bytesOf(r *pb.WriteRequest) int64 {
	n := len(r.Namespace)
	for _, key := range r.Keys {
		n += len(key) + 32
	}
	for _, f := range r.Facts {
		n += factBytes * (1 + len(f.Dims))
	}
	return int64(n)
}

// serve answers first, and what was read behind it.
func (w *writeStream) serve(first request) error {
	w.requests = append(w.requests[:0], first)
	defer w.forget()
	deltas := len(first.Keys)
	for more := true; more && len(w.requests) < groupMax && deltas < store.BatchDeltasMax; {
		select {
		case r, ok := <-w.read:
			if more = ok; ok {
				w.requests = append(w.requests, r)
				deltas += len(r.Keys)
			}
		default:
			more = false
		}
	}
	start := time.Now()
	w.answer()
	took := time.Since(start)
	meter := w.door.meters[pb.Quipu_Write_FullMethodName]
	// A client that takes no answers would keep the memory of its batches.
	stalled := time.AfterFunc(stallMax, w.visit.cancel)
	defer stalled.Stop()
	for i := range w.requests {
		code := codes.OK
		if e := w.answers[i].Error; e != nil {
			code = server.StatusOf(store.Kind(e.Kind)).RPC
		}
		meter.Observe(code, took)
		if err := w.stream.Send(&w.answers[i]); err != nil {
			return err
		}
	}
	return nil
}

// forget lets go of a group.
func (w *writeStream) forget() {
	for _, r := range w.requests {
		w.ahead.Add(-bytesOf(r.WriteRequest))
		w.visit.give(r.taken)
	}
	select {
	case w.room <- struct{}{}:
	default:
	}
	clear(w.requests)
	clear(w.deltas) // they hold keys
	clear(w.facts)
}

// answer fills answers for the requests. Those of one namespace that follow each
// other go to the DB in one call.
func (w *writeStream) answer() {
	ctx, cancel := context.WithTimeout(w.ctx, w.door.timeout)
	defer cancel()
	if w.door.tracer != nil {
		var end func()
		ctx, end = w.trace(ctx)
		defer end()
	}
	w.answers = make([]pb.WriteReply, len(w.requests)) // gRPC may still be sending the last ones
	w.deltas = w.deltas[:0]
	for start := 0; start < len(w.requests); {
		namespace := w.requests[start].Namespace
		db := w.door.in(namespace)
		w.batches, w.places, w.facts = w.batches[:0], w.places[:0], w.facts[:0]
		end := start
		for ; end < len(w.requests) && w.requests[end].Namespace == namespace; end++ {
			r, a := w.requests[end], &w.answers[end]
			a.Writer, a.Partition, a.Seq = r.Writer, r.Partition, r.Seq
			if err := w.check(ctx, db, r.WriteRequest); err != nil {
				a.Error = w.door.tell(ctx, pb.Quipu_Write_FullMethodName, err)
				continue
			}
			w.batches = append(w.batches, w.batch(r.WriteRequest))
			w.places = append(w.places, end)
		}
		w.gather(db)
		w.apply(ctx, db)
		start = end
	}
}

// check returns an error if r is no batch.
func (w *writeStream) check(ctx context.Context, db *quipu.DB, r *pb.WriteRequest) error {
	if len(r.Keys) != len(r.Deltas) {
		return store.Errorf(store.KindInvalid, "batch of %d keys and %d deltas", len(r.Keys), len(r.Deltas))
	}
	if err := checkFacts(r); err != nil {
		return err
	}
	return db.Port().CheckWriter(ctx, store.Writer(r.Writer))
}

// checkFacts returns an error if the adds of r have facts that there are none of.
func checkFacts(r *pb.WriteRequest) error {
	if len(r.Of) != 0 && len(r.Of) != len(r.Keys) {
		return store.Errorf(store.KindInvalid, "batch of %d keys, and facts of %d", len(r.Keys), len(r.Of))
	}
	for _, of := range r.Of {
		if int(of) > len(r.Facts) {
			return store.Errorf(store.KindInvalid, "fact %d of %d", of, len(r.Facts))
		}
	}
	for _, f := range r.Facts {
		if err := call.CheckWho(f.Who); err != nil {
			return err
		}
		if len(f.Dims) > call.DimsMax {
			return store.Errorf(store.KindTooLarge, "an event with %d dimensions: at most %d", len(f.Dims), call.DimsMax)
		}
	}
	return nil
}

// gather fills facts for the deltas of the batches. Where nothing is defined, and no add
// says more than when it happened, there are none: totals have no time.
func (w *writeStream) gather(db *quipu.DB) {
	said := slices.ContainsFunc(w.places, func(place int) bool { return len(w.requests[place].Facts) > 0 })
	if !said && !db.Port().Books().Any() {
		return
	}
	for _, place := range w.places {
		r := w.requests[place]
		facts := make([]port.Fact, len(r.Facts)+1) // the first is of adds that have none
		facts[0].AtMS = r.AtMs
		for i, f := range r.Facts {
			facts[i+1] = port.Fact{AtMS: f.AtMs, Who: f.Who, Dims: protocol.DecodeDims(f.Dims)}
		}
		for i := range r.Keys {
			of := 0
			if len(r.Of) > 0 {
				of = int(r.Of[i])
			}
			w.facts = append(w.facts, facts[of])
		}
	}
}

// batch returns r as the store takes it. The deltas may move when the next ones
// are appended: what was sliced before stays valid.
func (w *writeStream) batch(r *pb.WriteRequest) store.Batch {
	start := len(w.deltas)
	for i, key := range r.Keys {
		w.deltas = append(w.deltas, store.Delta{Cell: store.Cell{Key: key}, Op: store.OpAdd, N: r.Deltas[i]})
	}
	return store.Batch{
		Partition: int(r.Partition), Writer: store.Writer(r.Writer), Prev: r.Prev, Seq: r.Seq,
		Deltas: w.deltas[start:len(w.deltas):len(w.deltas)],
	}
}

// apply gives the batches to the DB, and fills the answers at their places.
func (w *writeStream) apply(ctx context.Context, db *quipu.DB) {
	if len(w.batches) == 0 {
		return
	}
	for len(w.replies) < len(w.batches) {
		w.replies = append(w.replies, store.Reply{})
	}
	replies := w.replies[:len(w.batches)]
	err := db.Port().WriteBatches(ctx, w.batches, replies, w.facts...)
	facts := w.facts
	for i, place := range w.places {
		var its []port.Fact
		if len(w.facts) > 0 {
			its = facts[:len(w.batches[i].Deltas)]
			facts = facts[len(its):]
		}
		a, r := &w.answers[place], &replies[i]
		a.Mark = r.Mark
		switch {
		case err != nil:
			a.Mark = 0
			a.Error = w.door.tell(ctx, pb.Quipu_Write_FullMethodName, err)
		case r.Err != nil:
			a.Error = w.door.tell(ctx, pb.Quipu_Write_FullMethodName, r.Err)
		default:
			a.Replayed, a.Durability = r.Replayed, pb.Durability(r.Durability)
			a.Refused = w.refusals(ctx, db, w.batches[i].Deltas, its, r.Results)
		}
	}
}

// refusals returns what was refused of the deltas of a batch, of which facts may be known.
func (w *writeStream) refusals(ctx context.Context, db *quipu.DB, deltas []store.Delta, facts []port.Fact, results []store.Result) (out []*pb.WriteReply_Refusal) {
	for i := range results {
		err := results[i].Outcome.Err()
		if results[i].Outcome == store.Barred {
			var fact *port.Fact
			if len(facts) > 0 {
				fact = &facts[i]
			}
			err = db.Port().Why(ctx, &deltas[i], fact)
		}
		if err != nil {
			told := w.door.tell(ctx, pb.Quipu_Write_FullMethodName, err)
			out = append(out, &pb.WriteReply_Refusal{Index: uint32(i), Error: told})
		}
	}
	return out
}
