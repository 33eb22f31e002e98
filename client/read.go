package client

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/quipudb/quipu/call"
	pb "github.com/quipudb/quipu/quipupb"
	"github.com/quipudb/quipu/store"
)

// ask makes a call that changes nothing.
func ask[Request, Reply any](ctx context.Context, db *DB, r Request,
	send func(context.Context, Request, ...grpc.CallOption) (Reply, error),
) (reply Reply, err error) {
	err = db.do(ctx, manner{repeatable: true}, func(ctx context.Context, o ...grpc.CallOption) (err error) {
		reply, err = send(ctx, r, o...)
		return err
	})
	return reply, err
}

// Read returns the count of a key: see quipu.DB.Read.
func (db *DB) Read(ctx context.Context, key string, opts ...call.ReadOption) (call.Count, error) {
	o, err := readOptions(opts)
	if err == nil {
		err = checkText("key", key)
	}
	if err != nil {
		return call.Count{}, err
	}
	reply, err := ask(ctx, db, &pb.GetRequest{Namespace: db.namespace, Key: key, Options: o}, db.rpc.Get)
	if err != nil {
		return call.Count{}, err
	}
	return decodeCount(key, reply), nil
}

// ReadBatch returns the counts of many keys: see quipu.DB.ReadBatch.
func (db *DB) ReadBatch(ctx context.Context, keys []string, opts ...call.ReadOption) ([]call.Count, error) {
	o, err := readOptions(opts)
	if err != nil {
		return nil, err
	}
	if len(keys) > call.KeysMax {
		return nil, store.Errorf(store.KindTooLarge, "read of %d keys: at most %d", len(keys), call.KeysMax)
	}
	for _, key := range keys {
		if err := store.CheckKey(key); err != nil {
			return nil, err
		}
	}
	reply, err := ask(ctx, db, &pb.GetBatchRequest{Namespace: db.namespace, Keys: keys, Options: o}, db.rpc.GetBatch)
	if err != nil {
		return nil, err
	}
	if len(reply.Counts) != len(keys) {
		return nil, store.Errorf(store.KindOther, "read of %d keys: %d counts", len(keys), len(reply.Counts))
	}
	counts := make([]call.Count, len(keys))
	for i, c := range reply.Counts {
		counts[i] = decodeCount(keys[i], c)
	}
	return counts, nil
}

// List returns a page of counters: see quipu.DB.List.
func (db *DB) List(ctx context.Context, prefix string, o call.ListOptions) (call.Page, error) {
	if err := checkText("prefix", prefix, "cursor", o.Cursor); err != nil {
		return call.Page{}, err
	}
	r := &pb.ListRequest{Namespace: db.namespace, Prefix: prefix, Cursor: o.Cursor, Limit: int32of(o.Limit)}
	reply, err := ask(ctx, db, r, db.rpc.List)
	if err != nil {
		return call.Page{}, err
	}
	p := call.Page{Counts: make([]call.Count, len(reply.Counts)), Next: reply.Next}
	for i, c := range reply.Counts {
		p.Counts[i] = decodeCount(c.Key, c)
	}
	return p, nil
}

// Sum returns the sum of counters: see quipu.DB.Sum.
func (db *DB) Sum(ctx context.Context, prefix, cursor string) (call.Sum, error) {
	if err := checkText("prefix", prefix, "cursor", cursor); err != nil {
		return call.Sum{}, err
	}
	reply, err := ask(ctx, db, &pb.SumRequest{Namespace: db.namespace, Prefix: prefix, Cursor: cursor}, db.rpc.Sum)
	if err != nil {
		return call.Sum{}, err
	}
	return call.Sum{
		Value: reply.Value, Keys: reply.Keys, Complete: reply.Complete, Next: reply.Next,
		Exact: reply.Exact, AsOf: time.Unix(0, reply.AsOfNs),
	}, nil
}

// Lookup reports what is known of a token: see quipu.DB.Lookup.
func (db *DB) Lookup(ctx context.Context, key, token string) (call.Fate, error) {
	return db.fate(ctx, manner{repeatable: true}, key, token, db.rpc.Lookup)
}

// Settle makes the fate of a token final: see quipu.DB.Settle.
func (db *DB) Settle(ctx context.Context, key, token string) (call.Fate, error) {
	return db.fate(ctx, manner{write: true, repeatable: true}, key, token, db.rpc.Settle)
}

func (db *DB) fate(ctx context.Context, c manner, key, token string,
	ask func(context.Context, *pb.TokenRequest, ...grpc.CallOption) (*pb.Fate, error),
) (call.Fate, error) {
	if err := checkText("key", key, "token", token); err != nil {
		return call.Fate{}, err
	}
	r := &pb.TokenRequest{Namespace: db.namespace, Key: key, Token: token}
	var reply *pb.Fate
	err := db.do(ctx, c, func(ctx context.Context, o ...grpc.CallOption) (err error) {
		reply, err = ask(ctx, r, o...)
		return err
	})
	if err != nil {
		return call.Fate{}, err
	}
	f := call.Fate{State: store.TokenState(reply.State), Reacted: reply.Reacted, Choice: reply.Choice, Before: reply.Before}
	if reply.AtMs != 0 {
		f.At = time.UnixMilli(reply.AtMs)
	}
	if reply.Receipt != nil {
		f.Receipt = db.receipt(key, reply.Receipt)
	}
	return f, nil
}

// readOptions returns what the options of a read say.
func readOptions(opts []call.ReadOption) (*pb.ReadOptions, error) {
	if len(opts) == 0 {
		return nil, nil
	}
	t, err := call.ReadTermsOf(opts)
	if err != nil {
		return nil, err
	}
	o := &pb.ReadOptions{Exact: t.Exact, Sessions: t.Sessions}
	for _, s := range t.Sessions {
		if err := checkText("session", s); err != nil {
			return nil, err
		}
	}
	if t.HasStaleness {
		o.MaxStalenessNs = (*int64)(&t.MaxStaleness)
	}
	if t.HasError {
		o.MaxError = &t.MaxError
	}
	if t.HasAsOf {
		o.AtMs = &t.AsOfMS
	}
	return o, nil
}

func decodeCount(key string, c *pb.Count) call.Count {
	out := call.Count{
		Key: key, Value: c.Value, Exact: c.Exact, Complete: c.Complete, Exists: c.Exists,
		AsOf: time.Unix(0, c.AsOfNs), Staleness: time.Duration(c.StalenessNs),
		Source: c.Source, Shards: int(c.Shards), Version: c.Version,
	}
	if c.ExpiresAtMs != 0 {
		out.ExpiresAt = time.UnixMilli(c.ExpiresAtMs)
	}
	if c.Lower != nil && c.Upper != nil {
		out.Bounded, out.Lower, out.Upper = true, *c.Lower, *c.Upper
	}
	return out
}
