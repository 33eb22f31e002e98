package client

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	pb "github.com/quipudb/quipu/quipupb"
	"github.com/quipudb/quipu/store"
)

// A shipper sends the batches of one Writer. There is at most one frame on its
// way in each partition, because a store remembers the results of the last one
// only: so an answer that was lost can always be had again.
type shipper struct {
	w       *Writer
	rows    []row      // by partition
	queues  [][]*frame // by partition: of the batch that is being sent, what is not on its way
	most    int        // entries of a frame
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
	s := &shipper{w: w, most: store.BatchDeltasMax}
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
	s.freeze(b)
	for {
		var round []*frame // the next of each partition
		for p, q := range s.queues {
			if len(q) > 0 {
				s.number(q[0])
				round = append(round, q[0])
				s.queues[p] = q[1:]
			}
		}
		if len(round) == 0 {
			return
		}
		if err := s.settle(ctx, b, round); err != nil {
			b.err = store.Errorf(store.KindUnknown, "the writer gave up before the add was durable: %w", err)
			return
		}
	}
}

// freeze cuts a batch into the frames of each partition.
func (s *shipper) freeze(b *batch) {
	places := make([][]int, len(s.rows))
	for i, entry := range b.keys {
		p := store.PartitionOf(store.Cell{Namespace: s.w.db.namespace, Key: keyOf(entry)}, len(s.rows))
		places[p] = append(places[p], i)
	}
	now := time.Now().UnixMilli()
	s.queues = make([][]*frame, len(s.rows))
	for p := range places {
		s.queues[p] = s.cut(b, p, places[p], now)
	}
}

// cut makes frames of entries of a batch. Those of which nothing else is said happened at
// a time.
func (s *shipper) cut(b *batch, partition int, entries []int, atMS int64) (frames []*frame) {
	var f *frame
	bytes := 0                  // of f
	var facts map[string]uint32 // of f, from 1 on
	for _, i := range entries {
		key, code, more := strings.Cut(b.keys[i], factMark)
		size := len(s.w.db.namespace) + len(key) + len(code)
		if f == nil || len(f.entries) >= s.most || bytes+size > store.BatchBytesMax {
			f = &frame{request: &pb.WriteRequest{Namespace: s.w.db.namespace, Partition: uint32(partition), AtMs: atMS}}
			frames = append(frames, f)
			bytes, facts = 0, map[string]uint32{}
		}
		r := f.request
		if more {
			if facts[code] == 0 {
				r.Facts = append(r.Facts, decodeFact(code))
				facts[code] = uint32(len(r.Facts))
			}
			for len(r.Of) < len(r.Keys) {
				r.Of = append(r.Of, 0)
			}
		}
		r.Keys = append(r.Keys, key)
		r.Deltas = append(r.Deltas, b.deltas[i])
		if r.Facts != nil {
			r.Of = append(r.Of, facts[code])
		}
		f.entries = append(f.entries, i)
		bytes += size
	}
	return frames
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
	case store.KindTooLarge:
		s.halve(b, f, err)
		return nil
	case store.KindInvalid, store.KindUnsupported:
		s.refuse(b, f.entries, err)
		return nil
	case store.KindUnknown:
		f.doubt = true
		return err
	default:
		return err
	}
}

// halve sends a frame that was too large in smaller ones. How many cells an add changes
// is up to the definitions, which only the server knows: so frames stay that small.
func (s *shipper) halve(b *batch, f *frame, cause error) {
	switch {
	case f.doubt: // The half may have counted with the whole.
		s.refuse(b, f.entries, store.Errorf(store.KindUnknown, "sent, never answered, and then refused: %w", cause))
	case len(f.entries) == 1:
		s.refuse(b, f.entries, cause)
	default:
		s.most = (len(f.entries) + 1) / 2
		p := int(f.request.Partition)
		entries := f.entries
		for _, g := range s.queues[p] {
			entries = append(entries, g.entries...)
		}
		s.queues[p] = s.cut(b, p, entries, f.request.AtMs)
	}
}

// displaced continues under a new writer: the old one was retired, or its mark has
// changed. The store says that it did not apply f now. Only a mark that f has not
// passed tells that it did not apply f before either.
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
