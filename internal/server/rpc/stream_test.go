package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/internal/server/rpc"
	pb "github.com/quipudb/quipu/quipupb"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

// A stream is one stream of batches.
type stream struct {
	*kit
	grpc.BidiStreamingClient[pb.WriteRequest, pb.WriteReply]
}

func (k *kit) write() *stream {
	k.Helper()
	s, err := k.Write(k.ctx)
	if err != nil {
		k.Fatal(err)
	}
	return &stream{k, s}
}

func (k *kit) enlist() uint64 {
	k.Helper()
	r, err := k.Enlist(k.ctx, &pb.EnlistRequest{})
	if err != nil {
		k.Fatal(err)
	}
	return r.Writer
}

// send sends a batch that adds one to each key.
func (s *stream) send(writer, prev, seq uint64, keys ...string) {
	s.Helper()
	r := &pb.WriteRequest{Writer: writer, Prev: prev, Seq: seq, Keys: keys}
	for range keys {
		r.Deltas = append(r.Deltas, 1)
	}
	s.sendRaw(r)
}

func (s *stream) sendRaw(r *pb.WriteRequest) {
	s.Helper()
	if err := s.Send(r); err != nil {
		s.Fatal(err)
	}
}

func (s *stream) recv() *pb.WriteReply {
	s.Helper()
	r, err := s.Recv()
	if err != nil {
		s.Fatal(err)
	}
	return r
}

// applied checks that the next answer is a success.
func (s *stream) applied(seq uint64, replayed bool) *pb.WriteReply {
	s.Helper()
	r := s.recv()
	if r.Error != nil || r.Seq != seq || r.Mark != seq || r.Replayed != replayed {
		s.Fatalf("answer %v, want %d applied", r, seq)
	}
	return r
}

// refused checks that the next answer refuses the whole batch.
func (s *stream) refused(kind pb.Kind, mark uint64) {
	s.Helper()
	if r := s.recv(); r.Error == nil || r.Error.Kind != kind || r.Mark != mark {
		s.Fatalf("answer %v, want %v at mark %d", r, kind, mark)
	}
}

func (k *kit) holds(key string, want int64) {
	k.Helper()
	if c, err := k.Get(k.ctx, &pb.GetRequest{Key: key}); err != nil || c.Value != want {
		k.Fatalf("%s is %v, %v; want %d", key, c, err, want)
	}
}

// A batch that is sent again counts once; one that overlaps, or leaves a gap, is
// refused with the mark.
func TestStreamRepeatsOverlapsAndGaps(t *testing.T) {
	k := open(t, nil, rpc.Options{})
	if _, err := k.Set(k.ctx, &pb.SetRequest{Key: "top", Value: math.MaxInt64}); err != nil {
		t.Fatal(err)
	}
	w := k.enlist()
	s := k.write()
	s.send(w, 0, 3, "a", "top", "b")
	first := s.applied(3, false)
	if len(first.Refused) != 1 || first.Refused[0].Index != 1 || first.Refused[0].Error.Kind != pb.Kind_KIND_OVERFLOW {
		t.Errorf("refused %v", first.Refused)
	}
	for _, s := range []*stream{s, k.write()} { // here, and on another stream
		s.send(w, 0, 3, "a", "top", "b")
		if again := s.applied(3, true); len(again.Refused) != 1 || !proto.Equal(again.Refused[0], first.Refused[0]) {
			t.Errorf("first %v, again %v", first, again)
		}
		s.send(w, 0, 3, "a", "b") // another batch under the same numbers
		s.refused(pb.Kind_KIND_MARK, 3)
		s.send(w, 0, 2, "a")
		s.refused(pb.Kind_KIND_MARK, 3)
		s.send(w, 2, 4, "a")
		s.refused(pb.Kind_KIND_MARK, 3)
		s.send(w, 4, 5, "a")
		s.refused(pb.Kind_KIND_MARK, 3)
		s.send(w, 0, math.MaxUint64, "a")
		s.refused(pb.Kind_KIND_MARK, 3)
	}
	s.send(w, 3, 4, "a")
	s.applied(4, false)
	k.holds("a", 2)
	k.holds("b", 1)
	k.holds("top", math.MaxInt64)
}

// What can't be a batch is refused alone, and the stream goes on.
func TestStreamRefusesWhatIsNoBatch(t *testing.T) {
	k := open(t, memstore.New(memstore.Options{Partitions: 2}), rpc.Options{})
	w := k.enlist()
	s := k.write()
	f := func(r *pb.WriteRequest, kind pb.Kind) {
		t.Helper()
		s.sendRaw(r)
		s.refused(kind, 0)
	}
	const invalid, mark = pb.Kind_KIND_INVALID, pb.Kind_KIND_MARK
	f(&pb.WriteRequest{}, mark)
	f(&pb.WriteRequest{Writer: w + 1, Seq: 1}, mark)
	f(&pb.WriteRequest{Writer: math.MaxUint64, Seq: 1}, mark)
	f(&pb.WriteRequest{Writer: w}, invalid)
	f(&pb.WriteRequest{Writer: w, Prev: 2, Seq: 1}, invalid)
	f(&pb.WriteRequest{Writer: w, Seq: 1, Keys: []string{"a"}}, invalid)
	f(&pb.WriteRequest{Writer: w, Seq: 1, Deltas: []int64{1}}, invalid)
	f(&pb.WriteRequest{Writer: w, Seq: 1, Keys: []string{""}, Deltas: []int64{1}}, invalid)
	f(&pb.WriteRequest{Writer: w, Seq: 1, Partition: 2}, invalid)
	f(&pb.WriteRequest{Writer: w, Seq: 1, Partition: math.MaxUint32}, invalid)
	f(&pb.WriteRequest{Writer: w, Seq: 1, Namespace: "a/b"}, invalid)
	facts := func(of []uint32, facts ...*pb.WriteRequest_Fact) *pb.WriteRequest {
		return &pb.WriteRequest{Writer: w, Seq: 1, Keys: []string{"a", "b"}, Deltas: []int64{1, 1}, Of: of, Facts: facts}
	}
	f(facts([]uint32{1}, &pb.WriteRequest_Fact{}), invalid)
	f(facts([]uint32{0, 2}, &pb.WriteRequest_Fact{}), invalid)
	f(facts([]uint32{0, 1}), invalid)
	f(facts([]uint32{0, 1}, &pb.WriteRequest_Fact{Who: strings.Repeat("w", 256)}), pb.Kind_KIND_TOO_LARGE)
	f(facts([]uint32{0, 1}, &pb.WriteRequest_Fact{Dims: dims(call.DimsMax + 1)}), pb.Kind_KIND_TOO_LARGE)
	home := store.PartitionOf(store.Cell{Namespace: "default", Key: "a"}, 2)
	r := &pb.WriteRequest{Writer: w, Seq: 1, Partition: uint32(1 - home), Keys: []string{"a"}, Deltas: []int64{1}}
	f(r, invalid)
	r.Partition = uint32(home)
	s.sendRaw(r)
	s.applied(1, false)
	s.sendRaw(&pb.WriteRequest{Writer: w, Prev: 1, Seq: 2, Partition: uint32(home)}) // of nothing
	s.applied(2, false)
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the end is %v", err)
	}
	k.holds("a", 1)
}

// dims returns values of so many dimensions.
func dims(n int) map[string]string {
	m := map[string]string{}
	for i := range n {
		m[fmt.Sprint("d", i)] = "v"
	}
	return m
}

// Dimensions are counted before they are decoded: a few bytes on the wire are many in
// memory.
func TestTooManyDimensions(t *testing.T) {
	k := open(t, nil, rpc.Options{})
	r := &pb.AddBatchRequest{Events: []*pb.Event{{Key: "a", Delta: 1, Dims: dims(1000)}}}
	if _, err := k.AddBatch(k.ctx, r); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "dims: at most 32 are allowed") {
		t.Errorf("1,000 dimensions: %v", err)
	}
}

// raw sends bytes as they are.
type raw struct{ encoding.CodecV2 }

// Marshal returns the bytes.
func (raw) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

// Unmarshal has nothing to tell.
func (raw) Unmarshal(mem.BufferSlice, any) error { return nil }

// Name is that of what it pretends to be.
func (raw) Name() string { return "proto" }

// Bytes that are no message, or too large a one, end their own call.
func TestHostileMessages(t *testing.T) {
	k := open(t, nil, rpc.Options{})
	f := func(method string, message []byte, want codes.Code) {
		t.Helper()
		err := k.conn.Invoke(k.ctx, method, message, new([]byte), grpc.ForceCodecV2(raw{}))
		if status.Code(err) != want {
			t.Errorf("%s: %v, want %v", method, err, want)
		}
		desc := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
		s, err := k.conn.NewStream(k.ctx, desc, pb.Quipu_Write_FullMethodName, grpc.ForceCodecV2(raw{}))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.SendMsg(message); err != nil {
			t.Fatal(err)
		}
		if err := s.RecvMsg(new([]byte)); status.Code(err) != want {
			t.Errorf("stream: %v, want %v", err, want)
		}
	}
	f(pb.Quipu_Add_FullMethodName, []byte("\xff\xff\xff\xff"), codes.InvalidArgument)
	f(pb.Quipu_Add_FullMethodName, []byte("\x12\x7f"), codes.InvalidArgument)                         // ends too early
	f(pb.Quipu_Get_FullMethodName, []byte("\x2a\x02\xff\xfe\x12\x02\xff\xfe"), codes.InvalidArgument) // no UTF-8
	f(pb.Quipu_AddBatch_FullMethodName, make([]byte, 9<<20), codes.ResourceExhausted)
	if _, err := k.Add(k.ctx, &pb.AddRequest{Key: "a", Delta: 1}); err != nil {
		t.Errorf("the next call: %v", err)
	}
}

// A stream that does not wait is answered in order, over namespaces and writers.
func TestStreamKeepsOrder(t *testing.T) {
	k := open(t, nil, rpc.Options{})
	s := k.write()
	writers := []uint64{k.enlist(), k.enlist(), k.enlist()}
	const each = 500
	sent := make(chan error, 1)
	go func() {
		for i := range uint64(each) {
			for n, w := range writers {
				r := &pb.WriteRequest{Writer: w, Prev: i, Seq: i + 1, Keys: []string{"a", "b"}, Deltas: []int64{1, 2}}
				if n == 2 {
					r.Namespace = "other"
				}
				if err := s.Send(r); err != nil {
					sent <- err
					return
				}
			}
		}
		sent <- s.CloseSend()
	}()
	for i := range uint64(each) {
		for _, w := range writers {
			if r := s.applied(i+1, false); r.Writer != w {
				t.Fatalf("answer %v, want writer %d", r, w)
			}
		}
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	k.holds("a", 2*each)
	k.holds("b", 4*each)
	if c, err := k.db.In("other").Read(k.ctx, "b"); err != nil || c.Value != 2*each {
		t.Errorf("other: %+v, %v", c, err)
	}
}

// A client that never takes its answers stops being read, and goes when it wants.
func TestStreamOfAClientThatDoesNotRead(t *testing.T) {
	k := open(t, nil, rpc.Options{})
	w := k.enlist()
	ctx, cancel := context.WithCancel(k.ctx)
	s, err := k.Write(ctx)
	if err != nil {
		t.Fatal(err)
	}
	keys := []string{strings.Repeat("k", 513)} // refused: the answers are longer than the batches
	for range 2000 {
		keys = append(keys, "a")
	}
	blocked := make(chan error, 1)
	go func() {
		for i := uint64(0); ; i++ {
			if err := s.Send(&pb.WriteRequest{Writer: w, Prev: i, Seq: i + 1, Keys: keys, Deltas: make([]int64, len(keys))}); err != nil {
				blocked <- err
				return
			}
		}
	}()
	if _, err := k.Add(k.ctx, &pb.AddRequest{Key: "b", Delta: 1}); err != nil {
		t.Errorf("another call: %v", err)
	}
	cancel()
	if err := <-blocked; !errors.Is(err, io.EOF) {
		t.Errorf("Send: %v", err)
	}
}

// When the store can't answer, every batch says so, and may be sent again.
func TestStreamTellsTrouble(t *testing.T) {
	h := new(storetest.Hooks)
	k := open(t, storetest.Wrap(memstore.New(memstore.Options{}), h), rpc.Options{})
	w := k.enlist()
	s := k.write()
	s.send(w, 0, 1, "a")
	s.applied(1, false)
	for _, kind := range []store.Kind{store.KindUnavailable, store.KindUnknown, store.KindClosed, store.KindOther} {
		h.On(storetest.OnWrite, storetest.Fail(store.Errorf(kind, "no")))
		s.send(w, 1, 2, "a")
		s.refused(pb.Kind(kind), 0) // the mark is not known
	}
	h.On(storetest.OnWrite)
	s.send(w, 1, 2, "a")
	s.applied(2, false)
	k.holds("a", 2)
}

// Batches that are applied together do not share their errors.
func TestStreamRefusesAlone(t *testing.T) {
	h := new(storetest.Hooks)
	k := open(t, storetest.Wrap(memstore.New(memstore.Options{}), h), rpc.Options{})
	w := k.enlist()
	s := k.write()
	under, on := make(chan struct{}), make(chan struct{})
	h.On(storetest.OnWrite, storetest.Hold(under, on))
	s.send(w, 0, 1, "a")
	<-under // what follows is read meanwhile
	s.send(w+1, 0, 1, "a")
	s.send(w, 1, 2, "a")
	s.send(w, 1, 2, "")
	s.send(w, 2, 3, "a")
	close(on)
	s.applied(1, false)
	s.refused(pb.Kind_KIND_MARK, 0)
	s.applied(2, false)
	s.refused(pb.Kind_KIND_INVALID, 0)
	s.applied(3, false)
	k.holds("a", 3)
}

// Each add that a definition bars is told its own reason, also if its batch comes together
// with others.
func TestStreamTellsWhy(t *testing.T) {
	k := open(t, memstore.New(memstore.Options{}), rpc.Options{})
	if _, err := k.Define(k.ctx, &pb.DefineRequest{Definitions: []*pb.Definition{{Pattern: "v", Record: "all"}}}); err != nil {
		t.Fatal(err)
	}
	s, w := k.write(), k.enlist()
	const n = 100
	for i := range uint64(n) {
		s.sendRaw(&pb.WriteRequest{
			Writer: w, Prev: i, Seq: i + 1, Keys: []string{"v", "v"}, Deltas: []int64{1, 1}, Of: []uint32{0, 1},
			Facts: []*pb.WriteRequest_Fact{{Dims: map[string]string{fmt.Sprint("d", i): ""}}},
		})
	}
	for i := range n {
		want := fmt.Sprintf("unknown dimension %q", fmt.Sprint("d", i))
		if r := s.recv(); len(r.Refused) != 1 || r.Refused[0].Index != 1 || !strings.Contains(r.Refused[0].Error.Detail, want) {
			t.Fatalf("%v, want %s", r, want)
		}
	}
	k.holds("v", n)
}

// Ids that were issued too long before are retired, so that the store never fills
// up with writers.
func TestEnlistRetires(t *testing.T) {
	const room = 8
	k := open(t, memstore.New(memstore.Options{Limits: quipu.Limits{WritersMax: room}}), rpc.Options{})
	s := k.write()
	for i := range 10 * room {
		w := k.enlist()
		s.send(w, 0, 1, fmt.Sprint("k", i%3))
		s.applied(1, false)
		if i >= room {
			s.send(w-room, 1, 2, "k0")
			s.refused(pb.Kind_KIND_RETIRED, 0)
		}
		if i > 0 {
			s.send(w-1, 1, 2, "k0") // the youngest but one is not
			s.applied(2, false)
		}
	}
}
