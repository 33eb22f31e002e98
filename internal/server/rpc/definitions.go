package rpc

import (
	"context"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/protocol"
	pb "github.com/quipudb/quipu/quipupb"
	"github.com/quipudb/quipu/store"
)

// Definitions returns the definitions of a namespace, or the one of a key.
func (d *Door) Definitions(ctx context.Context, r *pb.DefinitionsRequest) (*pb.Book, error) {
	db := d.in(r.Namespace)
	var b quipu.Book
	var err error
	if r.Key != nil {
		b, err = db.DefinitionOf(ctx, *r.Key)
	} else {
		b, err = db.Definitions(ctx)
	}
	if err != nil {
		return nil, err
	}
	reply := &pb.Book{Id: b.ID, InForceMs: protocol.EncodeTime(b.InForce)}
	for i := range b.Definitions {
		reply.Definitions = append(reply.Definitions, protocol.EncodeDefinition(&b.Definitions[i]))
	}
	for _, v := range b.Views {
		reply.Views = append(reply.Views, &pb.Book_View{Pattern: v.Pattern, Name: v.Name, SinceMs: protocol.EncodeTime(v.Since), Keep: protocol.EncodeKeep(v.Keep)})
	}
	return reply, nil
}

// Define replaces the definitions of a namespace.
func (d *Door) Define(ctx context.Context, r *pb.DefineRequest) (*pb.DefineReply, error) {
	defs := make([]definition.Definition, len(r.Definitions))
	for i, one := range r.Definitions {
		var err error
		if defs[i], err = protocol.DecodeDefinition(one); err != nil {
			return nil, store.Errorf(store.KindInvalid, "pattern %q: %w", one.GetPattern(), err)
		}
	}
	c, err := d.in(r.Namespace).Define(ctx, defs, quipu.DefineOptions{DryRun: r.DryRun, IfID: r.IfId, IfNone: r.IfNone})
	if err != nil {
		return nil, err
	}
	return &pb.DefineReply{Id: c.ID, Changes: c.Changes}, nil
}
