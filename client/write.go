package client

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/internal/protocol"
	pb "github.com/quipudb/quipu/quipupb"
	"github.com/quipudb/quipu/store"
)

// chunkBytes is how many bytes of events go into one request, about.
const chunkBytes = 2 << 20

// Add adds to a counter: see quipu.DB.Add.
func (db *DB) Add(ctx context.Context, key string, delta int64, opts ...call.WriteOption) (call.Receipt, error) {
	t, err := db.terms(key, true, opts)
	if err != nil {
		return call.Receipt{}, err
	}
	r := &pb.AddRequest{Namespace: db.namespace, Key: key, Delta: delta, Options: encodeTerms(&t), Dims: protocol.EncodeDims(t.Dims)}
	if t.HasAt {
		r.AtMs = &t.AtMS
	}
	if t.HasWho {
		r.Who = &t.Who
	}
	if t.HasFloor {
		r.Floor = &t.Floor
	}
	if t.HasCeiling {
		r.Ceiling = &t.Ceiling
	}
	if r.Saturate = t.Saturate; t.HasTTL {
		r.TtlNs = (*int64)(&t.TTL)
	}
	return db.write(ctx, key, t.HasToken, func(ctx context.Context, o ...grpc.CallOption) (*pb.Receipt, error) {
		return db.rpc.Add(ctx, r, o...)
	})
}

// Set assigns a value to a counter: see quipu.DB.Set.
func (db *DB) Set(ctx context.Context, key string, value int64, opts ...call.WriteOption) (call.Receipt, error) {
	t, err := db.terms(key, false, opts)
	if err != nil {
		return call.Receipt{}, err
	}
	r := &pb.SetRequest{Namespace: db.namespace, Key: key, Value: value, Options: encodeTerms(&t), Correction: encodeBecause(&t)}
	return db.write(ctx, key, t.HasToken, func(ctx context.Context, o ...grpc.CallOption) (*pb.Receipt, error) {
		return db.rpc.Set(ctx, r, o...)
	})
}

// Reset sets a counter to zero: see quipu.DB.Reset.
func (db *DB) Reset(ctx context.Context, key string, opts ...call.WriteOption) (call.Receipt, error) {
	t, err := db.terms(key, false, opts)
	if err != nil {
		return call.Receipt{}, err
	}
	r := &pb.ResetRequest{Namespace: db.namespace, Key: key, Options: encodeTerms(&t), Correction: encodeBecause(&t)}
	return db.write(ctx, key, t.HasToken, func(ctx context.Context, o ...grpc.CallOption) (*pb.Receipt, error) {
		return db.rpc.Reset(ctx, r, o...)
	})
}

// Delete removes a counter: see quipu.DB.Delete.
func (db *DB) Delete(ctx context.Context, key string, opts ...call.WriteOption) (call.Receipt, error) {
	t, err := db.terms(key, false, opts)
	if err != nil {
		return call.Receipt{}, err
	}
	r := &pb.DeleteRequest{Namespace: db.namespace, Key: key, Options: encodeTerms(&t), Correction: encodeBecause(&t)}
	return db.write(ctx, key, t.HasToken, func(ctx context.Context, o ...grpc.CallOption) (*pb.Receipt, error) {
		return db.rpc.Delete(ctx, r, o...)
	})
}

// write sends one write.
func (db *DB) write(ctx context.Context, key string, repeatable bool,
	send func(context.Context, ...grpc.CallOption) (*pb.Receipt, error),
) (call.Receipt, error) {
	var reply *pb.Receipt
	err := db.do(ctx, manner{write: true, repeatable: repeatable}, func(ctx context.Context, o ...grpc.CallOption) (err error) {
		reply, err = send(ctx, o...)
		return err
	})
	if err != nil {
		return call.Receipt{}, err
	}
	return db.receipt(key, reply), nil
}

// terms returns what the options of an Add, or of another write, say, or why it
// can't be sent.
func (db *DB) terms(key string, adds bool, opts []call.WriteOption) (call.WriteTerms, error) {
	t, err := call.WriteTermsOf(opts, adds)
	if err == nil {
		err = checkText("key", key, "token", t.Token, "who", t.Who, "reason", t.Because.Reason, "actor", t.Because.Actor)
	}
	if err == nil {
		err = checkDims(t.Dims)
	}
	if err == nil && !t.HasToken && db.options.Tokens {
		t.HasToken, t.Token = true, newToken()
	}
	return t, err
}

// checkText returns an error if a named text is not UTF-8, which no message can
// carry.
func checkText(namesAndTexts ...string) error {
	for i := 0; i < len(namesAndTexts); i += 2 {
		if !utf8.ValidString(namesAndTexts[i+1]) {
			return store.Errorf(store.KindInvalid, "%s is not UTF-8", namesAndTexts[i])
		}
	}
	return nil
}

func encodeTerms(t *call.WriteTerms) *pb.WriteOptions {
	o := &pb.WriteOptions{WantValue: t.WantValue}
	if t.HasToken {
		o.Token = &t.Token
	}
	if t.HasVersion {
		o.IfVersion = &t.Version
	}
	return o
}

func encodeBecause(t *call.WriteTerms) *pb.Correction {
	if !t.HasBecause {
		return nil
	}
	return &pb.Correction{Reason: t.Because.Reason, Actor: t.Because.Actor}
}

// AddBatch adds many events: see quipu.DB.AddBatch. It may take several
// requests; after an error, some of them may have been applied.
func (db *DB) AddBatch(ctx context.Context, events []call.Event) ([]call.Receipt, error) {
	if len(events) > call.EventsMax {
		return nil, store.Errorf(store.KindTooLarge, "batch of %d events: at most %d", len(events), call.EventsMax)
	}
	receipts := make([]call.Receipt, len(events))
	for begin := 0; begin < len(events) || begin == 0; {
		end, err := db.addChunk(ctx, events, receipts, begin)
		if err != nil {
			if begin > 0 {
				err = store.Errorf(store.KindUnknown, "after %d events: %w", begin, err)
			}
			return nil, err
		}
		if begin = end; begin == 0 { // there was nothing to send
			break
		}
	}
	return receipts, nil
}

// addChunk sends events from begin on, as many as go into a request, and returns
// their end.
func (db *DB) addChunk(ctx context.Context, events []call.Event, receipts []call.Receipt, begin int) (end int, err error) {
	r := &pb.AddBatchRequest{Namespace: db.namespace}
	var places []int
	repeatable := true
	bytes := 0
	for end = begin; end < len(events) && bytes < chunkBytes; end++ {
		e := &events[end]
		receipts[end].Namespace, receipts[end].Key = db.namespace, e.Key
		if receipts[end].Err = cmp.Or(checkText("key", e.Key, "token", e.Token, "who", e.Who), checkDims(e.Dims)); receipts[end].Err != nil {
			continue
		}
		sent := &pb.Event{
			Key: e.Key, Delta: e.Delta, Token: e.Token, Who: e.Who, WantValue: e.WantValue,
			Floor: e.Floor, Ceiling: e.Ceiling, Saturate: e.Saturate, AtMs: protocol.EncodeTime(e.At), Dims: protocol.EncodeDims(e.Dims),
		}
		if e.TTL != 0 {
			sent.TtlNs = new(int64(e.TTL))
		}
		if sent.Token == "" && db.options.Tokens {
			sent.Token = newToken()
		}
		repeatable = repeatable && sent.Token != ""
		r.Events = append(r.Events, sent)
		places = append(places, end)
		bytes += len(e.Key) + len(sent.Token) + len(e.Who) + 32
		for _, d := range e.Dims {
			bytes += len(d.Name) + len(d.Value) + 8
		}
	}
	var reply *pb.AddBatchReply
	err = db.do(ctx, manner{write: true, repeatable: repeatable}, func(ctx context.Context, o ...grpc.CallOption) (err error) {
		reply, err = db.rpc.AddBatch(ctx, r, o...)
		return err
	})
	if err != nil {
		return begin, err
	}
	if len(reply.Receipts) != len(places) {
		return begin, store.Errorf(store.KindOther, "batch of %d events: %d receipts", len(places), len(reply.Receipts))
	}
	for i, place := range places {
		receipts[place] = db.receipt(events[place].Key, reply.Receipts[i])
	}
	return end, nil
}

func (db *DB) receipt(key string, r *pb.Receipt) call.Receipt {
	if r.Error != nil {
		return call.Receipt{Namespace: db.namespace, Key: key, Err: errorOf(r.Error)}
	}
	return call.Receipt{
		Namespace: db.namespace, Key: key, Applied: r.Applied, Value: r.Value, Before: r.Before, HasValue: r.HasValue,
		Replayed: r.Replayed, Late: r.Late, Duplicate: r.Duplicate, DuplicateError: r.DuplicateError, Version: r.Version, Durability: store.Durability(r.Durability),
	}
}

// newToken returns a UUID of version 7, which carries its age.
func newToken() string {
	ms, a, b := time.Now().UnixMilli(), rand.Uint64(), rand.Uint64()
	return fmt.Sprintf("%08x-%04x-7%03x-%04x-%012x", ms>>16, ms&0xffff, a&0xfff, 0x8000|a>>16&0x3fff, b&0xffffffffffff)
}
