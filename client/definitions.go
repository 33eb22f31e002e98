package client

import (
	"context"

	"google.golang.org/grpc"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/protocol"
	pb "github.com/quipudb/quipu/quipupb"
	"github.com/quipudb/quipu/store"
)

// Definitions returns the definitions of the namespace: see quipu.DB.Definitions.
func (db *DB) Definitions(ctx context.Context) (call.Book, error) {
	return db.definitions(ctx, &pb.DefinitionsRequest{Namespace: db.namespace})
}

// DefinitionOf returns the definition of a key: see quipu.DB.DefinitionOf.
func (db *DB) DefinitionOf(ctx context.Context, key string) (call.Book, error) {
	if err := checkText("key", key); err != nil {
		return call.Book{}, err
	}
	return db.definitions(ctx, &pb.DefinitionsRequest{Namespace: db.namespace, Key: &key})
}

func (db *DB) definitions(ctx context.Context, r *pb.DefinitionsRequest) (call.Book, error) {
	reply, err := ask(ctx, db, r, db.rpc.Definitions)
	if err != nil {
		return call.Book{}, err
	}
	b := call.Book{ID: reply.Id, InForce: protocol.DecodeTime(reply.InForceMs)}
	for _, one := range reply.Definitions {
		d, err := protocol.DecodeDefinition(one)
		if err != nil {
			return call.Book{}, store.Errorf(store.KindOther, "the server has definitions that this client can't read: %w", err)
		}
		b.Definitions = append(b.Definitions, d)
	}
	for _, v := range reply.Views {
		keep, err := protocol.DecodeKeep(v.Keep)
		if err != nil {
			return call.Book{}, store.Errorf(store.KindOther, "the server has definitions that this client can't read: %w", err)
		}
		b.Views = append(b.Views, call.View{Pattern: v.Pattern, Name: v.Name, Since: protocol.DecodeTime(v.SinceMs), Keep: keep})
	}
	return b, nil
}

// Define replaces the definitions of the namespace: see quipu.DB.Define.
func (db *DB) Define(ctx context.Context, definitions []definition.Definition, o call.DefineOptions) (call.Change, error) {
	r := &pb.DefineRequest{Namespace: db.namespace, DryRun: o.DryRun, IfId: o.IfID, IfNone: o.IfNone}
	for i := range definitions {
		if err := definitions[i].Check(); err != nil { // what is not valid may have no words
			return call.Change{}, err
		}
		r.Definitions = append(r.Definitions, protocol.EncodeDefinition(&definitions[i]))
	}
	var reply *pb.DefineReply
	err := db.do(ctx, manner{write: true, repeatable: o.IfID == 0}, func(ctx context.Context, o ...grpc.CallOption) (err error) {
		reply, err = db.rpc.Define(ctx, r, o...)
		return err
	})
	if err != nil {
		return call.Change{}, err
	}
	return call.Change{ID: reply.Id, Changes: reply.Changes}, nil
}

// Adjust corrects a counter: see quipu.DB.Adjust.
func (db *DB) Adjust(ctx context.Context, key string, delta int64, c call.Correction, opts ...call.WriteOption) (call.Receipt, error) {
	t, err := db.terms(key, true, opts)
	if err == nil {
		err = checkText("reason", c.Reason, "actor", c.Actor)
	}
	if err == nil && (t.HasFloor || t.HasCeiling || t.Saturate || t.HasTTL) {
		err = store.Errorf(store.KindInvalid, "a correction has no bounds and no ttl")
	}
	if err != nil {
		return call.Receipt{}, err
	}
	r := &pb.AdjustRequest{
		Namespace: db.namespace, Key: key, Delta: delta, Options: encodeTerms(&t), Dims: protocol.EncodeDims(t.Dims),
		Correction: &pb.Correction{Reason: c.Reason, Actor: c.Actor},
	}
	if t.HasAt {
		r.AtMs = &t.AtMS
	}
	if t.HasWho {
		r.Who = &t.Who
	}
	return db.write(ctx, key, t.HasToken, func(ctx context.Context, o ...grpc.CallOption) (*pb.Receipt, error) {
		return db.rpc.Adjust(ctx, r, o...)
	})
}

// Undo takes back a write: see quipu.DB.Undo.
func (db *DB) Undo(ctx context.Context, key, token string, c call.Correction) (call.Receipt, error) {
	if err := checkText("key", key, "token", token, "reason", c.Reason, "actor", c.Actor); err != nil {
		return call.Receipt{}, err
	}
	r := &pb.UndoRequest{Namespace: db.namespace, Key: key, Token: token, Correction: &pb.Correction{Reason: c.Reason, Actor: c.Actor}}
	return db.write(ctx, key, true, func(ctx context.Context, o ...grpc.CallOption) (*pb.Receipt, error) { // A line is taken back once.
		return db.rpc.Undo(ctx, r, o...)
	})
}

// Recount repairs a counter whose views do not add up: see quipu.DB.Recount.
func (db *DB) Recount(ctx context.Context, key string, c call.Correction) (call.Recounted, error) {
	if err := checkText("key", key, "reason", c.Reason, "actor", c.Actor); err != nil {
		return call.Recounted{}, err
	}
	r := &pb.RecountRequest{Namespace: db.namespace, Key: key, Correction: &pb.Correction{Reason: c.Reason, Actor: c.Actor}}
	var reply *pb.RecountReply
	err := db.do(ctx, manner{write: true}, func(ctx context.Context, o ...grpc.CallOption) (err error) {
		reply, err = db.rpc.Recount(ctx, r, o...)
		return err
	})
	if err != nil {
		return call.Recounted{}, err
	}
	return call.Recounted{Key: key, Before: reply.Before, After: reply.After, Repaired: reply.Repaired, Left: reply.Left}, nil
}
