package client

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc"

	pb "github.com/quipudb/quipu/quipupb"
	"github.com/quipudb/quipu/store"
)

// A shipper sends the batches of one Writer. There is at most one frame on its
// way in each partition, because a store remembers the results of the last one
// only: so an answer that was lost can always be had again.
type shipper struct {
	w       *Writer
	rows    []row // by partition
	stream  grpc.BidiStreamingClient[pb.WriteRequest, pb.WriteReply]
	stop    context.CancelFunc // of the stream
	trouble atomic.Pointer[error]
}

// A row is the numbered row of frames in one partition.
type row struct {
	writer uint64
	mark   uint64 // the last acknowledged
}

// A frame is the part of a batch that is applied in one step. Once it is
// numbered nothing in it changes until there is a definite answer.
type frame struct {
	request *pb.WriteRequest
	entries []int // of the batch, by position in the request
	doubt   bool  // it was sent, and there was no answer that says it was not applied
}

func newShipper(ctx context.Context, w *Writer) (*shipper, error) {
	s := &shipper{w: w}
	writer, partitions, err := s.enlist(ctx)
	if err != nil {
		return nil, err
	}
	s.rows = make([]row, partitions)
	for i := range s.rows {
		s.rows[i].writer = writer
	}
	return s, nil
}

// enlist asks the server for a new writer.
func (s *shipper) enlist(ctx context.Context) (writer uint64, partitions int, err error) {
	db := s.w.db
	var reply *pb.EnlistReply
	err = db.do(ctx, manner{repeatable: true}, func(ctx context.Context, o ...grpc.CallOption) (err error) {
		reply, err = db.rpc.Enlist(ctx, &pb.EnlistRequest{}, o...)
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	if reply.Writer == 0 || reply.Partitions == 0 {
		return 0, 0, store.Errorf(store.KindOther, "the server issued writer %d of %d partitions", reply.Writer, reply.Partitions)
	}
	return reply.Writer, int(reply.Partitions), nil
}

// send ships a batch, and fills in what became of its entries. It returns when
// everything has a definite answer, or ctx ends.
func (s *shipper) send(ctx context.Context, b *batch) {
	queues := s.freeze(b)
	for {
		var round []*frame // the next of each partition
		for p := range queues {
			if q := queues[p]; len(q) > 0 {
				s.number(q[0])
				round = append(round, q[0])
				queues[p] = q[1:]
			}
		}
		if len(round) == 0 {
			return
		}
		if err := s.settle(ctx, b, round); err != nil {
			b.err = store.Errorf(store.KindUnknown, "given up before it was durable: %w", err)
			return
		}
	}
}

// freeze cuts a batch into the frames of each partition.
func (s *shipper) freeze(b *batch) [][]*frame {
	queues := make([][]*frame, len(s.rows))
	bytes := make([]int, len(s.rows)) // of the last frame
	for i, key := range b.keys {
		p := store.PartitionOf(store.Cell{Namespace: s.w.db.namespace, Key: key}, len(s.rows))
		size := len(s.w.db.namespace) + len(key)
		q := queues[p]
		if len(q) == 0 || len(q[len(q)-1].entries) == store.BatchDeltasMax || bytes[p]+size > store.BatchBytesMax {
			r := &pb.WriteRequest{Namespace: s.w.db.namespace, Partition: uint32(p)}
			q = append(q, &frame{request: r})
			queues[p], bytes[p] = q, 0
		}
		f := q[len(q)-1]
		f.request.Keys = append(f.request.Keys, key)
		f.request.Deltas = append(f.request.Deltas, b.deltas[i])
		f.entries = append(f.entries, i)
		bytes[p] += size
	}
	return queues
}

// number makes a frame the next of its row.
func (s *shipper) number(f *frame) {
	r := &s.rows[f.request.Partition]
	f.request.Writer, f.request.Prev, f.request.Seq = r.writer, r.mark, r.mark+1
	f.doubt = false
}

// settle sends frames, one for each of some partitions, until all have a definite
// answer.
func (s *shipper) settle(ctx context.Context, b *batch, frames []*frame) error {
	for attempt := 0; len(frames) > 0; attempt++ {
		if attempt > 0 {
			s.w.count(func(st *Stats) { st.Resent += uint64(len(frames)) })
			if err := s.w.db.pause(ctx, attempt-1); err != nil {
				return err
			}
		}
		var err error
		if frames, err = s.exchange(ctx, b, frames); err != nil {
			s.trouble.Store(&err)
			s.close()
		}
	}
	s.trouble.Store(nil)
	return nil
}

// exchange sends frames and takes their answers. It returns those that have to be
// sent again, and why the stream can't be used any more, if so.
func (s *shipper) exchange(ctx context.Context, b *batch, frames []*frame) (again []*frame, err error) {
	if err := s.connect(ctx); err != nil {
		return frames, err
	}
	for i, f := range frames {
		if s.stream.Send(f.request) != nil {
			_, err := s.stream.Recv() // says why
			doubt(frames[:i+1])
			return frames, decodeError(err, true)
		}
	}
	for i, f := range frames {
		reply, err := s.stream.Recv()
		if err != nil {
			doubt(frames[i:])
			return append(again, frames[i:]...), decodeError(err, true)
		}
		r := f.request
		if reply.Writer != r.Writer || reply.Partition != r.Partition || reply.Seq != r.Seq {
			doubt(frames[i:])
			return append(again, frames[i:]...), store.Errorf(store.KindOther, "the server answered another batch: %v", reply)
		}
		if err := s.decide(ctx, b, f, reply); err != nil {
			s.trouble.Store(&err)
			again = append(again, f)
		}
	}
	return again, nil
}

// doubt marks frames that were sent and not answered.
func doubt(frames []*frame) {
	for _, f := range frames {
		f.doubt = true
	}
}

// connect opens the stream, if there is none.
func (s *shipper) connect(ctx context.Context) error {
	if s.stream != nil {
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	stream, err := s.w.db.rpc.Write(ctx, grpc.WaitForReady(true)) // for a connection
	if err != nil {
		stop()
		return decodeError(err, false)
	}
	s.stream, s.stop = stream, stop
	return nil
}

// close ends the stream.
func (s *shipper) close() {
	if s.stream != nil {
		s.stop()
		s.stream = nil
	}
}

// decide takes the answer to a frame, and returns an error if it is none that
// lasts: then the frame has to be sent again.
func (s *shipper) decide(ctx context.Context, b *batch, f *frame, reply *pb.WriteReply) error {
	if reply.Error == nil {
		s.rows[reply.Partition].mark = reply.Seq
		s.w.count(func(st *Stats) {
			st.Batches++
			st.Deltas += uint64(len(f.entries))
		})
		for _, r := range reply.Refused {
			if int(r.Index) < len(f.entries) {
				s.refuse(b, f.entries[r.Index:r.Index+1], errorOf(r.Error))
			}
		}
		return nil
	}
	err := errorOf(reply.Error)
	switch store.KindOf(err) {
	case store.KindMark, store.KindRetired, store.KindLost:
		return s.displaced(ctx, b, f, reply.Mark, err)
	case store.KindInvalid, store.KindTooLarge, store.KindUnsupported:
		s.refuse(b, f.entries, err)
		return nil
	case store.KindUnknown:
		f.doubt = true
		return err
	default:
		return err
	}
}

// displaced goes on under a new writer: the old one was retired, or its mark is
// not what it was. What the store says is that it did not apply f now; whether it
// did before it can tell only by a mark that f has not passed.
func (s *shipper) displaced(ctx context.Context, b *batch, f *frame, mark uint64, cause error) error {
	r := f.request
	retired := store.KindOf(cause) == store.KindRetired
	writer, err := s.enlistAnew(ctx)
	if err != nil {
		return err
	}
	s.rows[r.Partition] = row{writer: writer}
	if !retired && mark < r.Prev {
		s.w.count(func(st *Stats) { st.Lost++ })
		s.w.report(Failure{Err: store.Errorf(store.KindLost,
			"batches %d to %d of writer %d were acknowledged, and are gone: %w", mark+1, r.Prev, r.Writer, cause)})
	}
	if f.doubt && (retired || mark > r.Prev) {
		s.refuse(b, f.entries, store.Errorf(store.KindUnknown, "sent, never answered, and then refused: %w", cause))
		return nil
	}
	s.number(f)
	return cause
}

// enlistAnew enlists, however long it takes.
func (s *shipper) enlistAnew(ctx context.Context) (uint64, error) {
	for attempt := 0; ; attempt++ {
		writer, partitions, err := s.enlist(ctx)
		if err == nil && partitions != len(s.rows) {
			err = store.Errorf(store.KindOther, "the store has %d partitions, and had %d", partitions, len(s.rows))
		}
		if err == nil {
			return writer, nil
		}
		s.trouble.Store(&err)
		if err := s.w.db.pause(ctx, attempt); err != nil {
			return 0, err
		}
	}
}

// refuse gives entries of a batch an error.
func (s *shipper) refuse(b *batch, entries []int, err error) {
	if b.errs == nil {
		b.errs = map[int]error{}
	}
	for _, e := range entries {
		b.errs[e] = err
	}
	s.w.count(func(st *Stats) { st.Refused += uint64(len(entries)) })
}
