package rpc

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/internal/access"
	"github.com/quipudb/quipu/internal/trace"
	pb "github.com/quipudb/quipu/quipupb"
	"github.com/quipudb/quipu/store"
)

const (
	// batchBytesMax is the longest message that carries a batch: what 10,000 of the
	// longest keys take, and some.
	batchBytesMax = 8 << 20
	// messageBytesMax is the longest of any other. It fits in the window.
	messageBytesMax = windowBytes
	// freeBytes is the longest message that takes nothing from the budget. Decoded,
	// it is no larger than the window, which counts for the connection.
	freeBytes = 1 << 10
	// entryBytesMin is what an entry of a batch takes on the wire at least.
	entryBytesMin = 4
)

// A visit is one call, from its headers to its end, and the context of it. It
// reads the messages in gRPC's place, because gRPC would read a message of any
// allowed size into memory before anyone could object, and wait for the rest of
// it for ever. A visit reads the length first. If the message is not small it
// then takes memory from the budget, for the message and what it decodes to, and
// gives the rest of it as long as a call may take.
//
// Until a message is read, its caller can have sent no more of it than a window.
type visit struct {
	context.Context
	door     *Door
	cancel   context.CancelFunc
	hurried  *time.Timer // cancels, unless it is stopped
	late     atomic.Bool // it did
	bytesMax int         // of a message
	taken    int64       // of the budget, for the last message

	span   *trace.Span       // nil if the call is not sampled
	who    *access.Principal // nil is nobody
	need   access.Need
	target string // the namespace of the last message, for the audit log
}

type visitKey struct{}

// Value finds the visit itself.
func (v *visit) Value(key any) any {
	if _, ok := key.(visitKey); ok {
		return v
	}
	return v.Context.Value(key)
}

// visit returns the context of a new call. It ends at the door's deadline if the
// caller named none, unless the call is one that takes as long as it takes.
func (d *Door) visit(ctx context.Context, method string) *visit {
	v := &visit{door: d, bytesMax: messageBytesMax}
	timed := true
	switch method {
	case pb.Quipu_AddBatch_FullMethodName, pb.Quipu_GetBatch_FullMethodName, pb.Quipu_AddUniques_FullMethodName,
		pb.Sketches_AddItems_FullMethodName, pb.Sketches_AskItems_FullMethodName:
		v.bytesMax = batchBytesMax
	case pb.Quipu_Write_FullMethodName:
		v.bytesMax, timed = batchBytesMax, false
	case pb.Quipu_Verify_FullMethodName, pb.Quipu_Backup_FullMethodName:
		timed = false
	}
	if _, has := ctx.Deadline(); !has && timed {
		v.Context, v.cancel = context.WithTimeout(ctx, d.timeout)
	} else {
		v.Context, v.cancel = context.WithCancel(ctx)
	}
	return v
}

// visitOf returns the visit that a call's context is of.
func visitOf(ctx context.Context) *visit {
	v, _ := ctx.Value(visitKey{}).(*visit)
	return v
}

// begin reports whether there is room for one more call.
func (v *visit) begin() bool {
	if v.door.calls.Add(1) > v.door.callsMax {
		v.door.calls.Add(-1)
		return false
	}
	return true
}

// end gives back what the call has.
func (v *visit) end() {
	v.calm()
	v.cancel()
	v.give(v.hand())
	v.door.calls.Add(-1)
}

// hand returns what the last message took from the budget, for the caller to
// give.
func (v *visit) hand() int64 {
	taken := v.taken
	v.taken = 0
	return taken
}

// give gives back what a message took.
func (v *visit) give(taken int64) {
	if taken > 0 {
		v.door.budget.Give(taken)
	}
}

// hurry ends the call unless its message comes as soon as a call may take, or it
// ends by then anyway.
func (v *visit) hurry(ctx context.Context, now time.Time) {
	if until, ok := ctx.Deadline(); ok && until.Sub(now) <= v.door.timeout {
		return
	}
	v.arm(v.door.timeout)
}

// arm ends the call after a while, unless calm is called before.
func (v *visit) arm(limit time.Duration) {
	if v.hurried == nil {
		v.hurried = time.AfterFunc(limit, func() { v.late.Store(true); v.cancel() })
		return
	}
	v.hurried.Reset(limit)
}

func (v *visit) calm() {
	if v.hurried != nil {
		v.hurried.Stop()
	}
}

// A wire is what gRPC calls a transport stream: the bytes of one call. Its
// methods are public on an internal type, which TestMessages finds out about.
type wire interface {
	ReadMessageHeader(header []byte) error
	Read(n int) (mem.BufferSlice, error)
}

// receive reads the next message into m.
func (v *visit) receive(s grpc.ServerStream, m any) error {
	message, ok := m.(proto.Message)
	from, known := grpc.ServerTransportStreamFromContext(s.Context()).(wire)
	if !ok || !known {
		return status.Errorf(codes.Internal, "a %T can't be received", m)
	}
	var header [5]byte
	if err := from.ReadMessageHeader(header[:]); err != nil {
		return v.broken(err)
	}
	if header[0] != 0 {
		return status.Error(codes.Unimplemented, "compressed messages are not supported")
	}
	size := int64(binary.BigEndian.Uint32(header[1:]))
	if size > int64(v.bytesMax) {
		return status.Errorf(codes.ResourceExhausted, "message of %d bytes: at most %d are allowed here", size, v.bytesMax)
	}
	if size > freeBytes {
		if err := v.reserve(size); err != nil {
			return err
		}
		v.arm(v.door.timeout)
	}
	data, err := from.Read(int(size))
	v.calm()
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return v.broken(err)
	}
	defer data.Free()
	if err := decode(data, message, size); err != nil {
		return err
	}
	return v.permit(message, size)
}

// reserve takes memory for a message of so many bytes: twice those, because it
// comes in pieces that are put together, and what it decodes to. A batch decodes
// to its entries and their dimensions, anything else to strings of no less than two
// bytes on the wire.
func (v *visit) reserve(size int64) (err error) {
	decoded := 8 * size
	if v.bytesMax == batchBytesMax {
		decoded = entryBytes*min(size/entryBytesMin, store.BatchDeltasMax) + 4*size
	}
	ctx, cancel := context.WithTimeout(v, v.door.timeout)
	defer cancel()
	v.taken, err = v.door.budget.Take(ctx, 2*size+decoded)
	return err
}

// broken returns why a message could not be read.
func (v *visit) broken(err error) error {
	switch {
	case v.late.Load():
		return status.Error(codes.DeadlineExceeded, "the message did not arrive in time")
	case errors.Is(err, io.EOF):
		return err // a stream ends so
	case errors.Is(err, io.ErrUnexpectedEOF):
		return status.Error(codes.InvalidArgument, "the message ended too early")
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.FromContextError(context.Cause(v)).Err()
}

// decode decodes a message.
func decode(data mem.BufferSlice, m proto.Message, size int64) error {
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	raw := whole.ReadOnlyData()
	if size > freeBytes {
		if err := checkLists(m.ProtoReflect().Descriptor(), raw); err != nil {
			return err
		}
	}
	if err := proto.Unmarshal(raw, m); err != nil {
		return status.Errorf(codes.InvalidArgument, "the message can't be decoded: %v", err)
	}
	return nil
}

// checkLists refuses a message with a list that is longer than any batch, before
// it is decoded: two bytes on the wire can be a hundred in memory. What is no
// message is left to the decoder.
func checkLists(d protoreflect.MessageDescriptor, raw []byte) error {
	if !nests(d) {
		return nil
	}
	counts := map[protowire.Number]int{}
	for len(raw) > 0 {
		num, kind, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return nil
		}
		raw = raw[n:]
		if n = protowire.ConsumeFieldValue(num, kind, raw); n < 0 {
			return nil
		}
		value := raw[:n]
		raw = raw[n:]
		field := d.Fields().ByNumber(num)
		if field == nil {
			continue
		}
		if most := elementsMax(field); most > 0 {
			counts[num] += elements(field, kind, value)
			if counts[num] > most {
				return store.Errorf(store.KindTooLarge, "%s: at most %d are allowed", field.Name(), most)
			}
		}
		if inner := field.Message(); inner != nil && kind == protowire.BytesType {
			inside, _ := protowire.ConsumeBytes(value)
			if err := checkLists(inner, inside); err != nil {
				return err
			}
		}
	}
	return nil
}

// elementsMax returns how many elements a list may have, or a map: maps are of
// dimensions. It is 0 for what is neither.
func elementsMax(field protoreflect.FieldDescriptor) int {
	switch {
	case field.IsMap():
		return call.DimsMax
	case field.IsList():
		return store.BatchDeltasMax
	default:
		return 0
	}
}

// nests reports whether a message may hold lists or other messages.
func nests(d protoreflect.MessageDescriptor) bool {
	fields := d.Fields()
	for i := range fields.Len() {
		if f := fields.Get(i); f.IsList() || f.Message() != nil {
			return true
		}
	}
	return false
}

// elements returns how many elements of a list a field has: one, or those that
// are packed in it, each of which ends with a byte below 128.
func elements(field protoreflect.FieldDescriptor, kind protowire.Type, value []byte) int {
	if kind != protowire.BytesType || field.Kind() == protoreflect.StringKind || field.Kind() == protoreflect.BytesKind || field.Message() != nil {
		return 1
	}
	packed, _ := protowire.ConsumeBytes(value)
	n := 0
	for _, b := range packed {
		if b < 0x80 {
			n++
		}
	}
	return n
}

// An intake is a stream whose messages a visit reads.
type intake struct {
	grpc.ServerStream
	visit *visit
}

// RecvMsg reads the next message.
func (in *intake) RecvMsg(m any) error {
	in.visit.give(in.visit.hand()) // of the message before, unless someone has it
	return in.visit.receive(in.ServerStream, m)
}
