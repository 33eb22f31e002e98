package client

import (
	"context"

	"google.golang.org/grpc"

	"github.com/quipudb/quipu/call"
	pb "github.com/quipudb/quipu/quipupb"
	"github.com/quipudb/quipu/store"
)

// React records the choice of a user for a counter: see quipu.DB.React.
func (db *DB) React(ctx context.Context, key, user, choice string, opts ...call.WriteOption) (call.Reaction, error) {
	t, err := db.reactTerms(key, user, choice, opts)
	if err != nil {
		return call.Reaction{}, err
	}
	r := &pb.ReactRequest{Namespace: db.namespace, Key: key, User: user, Choice: choice, WantCounts: t.WantValue}
	if t.HasToken {
		r.Token = &t.Token
	}
	return db.reacted(ctx, key, user, t.HasToken, func(ctx context.Context, o ...grpc.CallOption) (*pb.Reaction, error) {
		return db.react.React(ctx, r, o...)
	})
}

// Unreact removes the choice of a user: see quipu.DB.Unreact.
func (db *DB) Unreact(ctx context.Context, key, user string, opts ...call.WriteOption) (call.Reaction, error) {
	t, err := db.reactTerms(key, user, "", opts)
	if err != nil {
		return call.Reaction{}, err
	}
	r := &pb.UnreactRequest{Namespace: db.namespace, Key: key, User: user, WantCounts: t.WantValue}
	if t.HasToken {
		r.Token = &t.Token
	}
	return db.reacted(ctx, key, user, t.HasToken, func(ctx context.Context, o ...grpc.CallOption) (*pb.Reaction, error) {
		return db.react.Unreact(ctx, r, o...)
	})
}

// reactTerms returns what the options of a reaction say, or why it can't be sent.
func (db *DB) reactTerms(key, user, choice string, opts []call.WriteOption) (call.WriteTerms, error) {
	t, err := db.terms(key, false, opts)
	if err == nil && (t.HasVersion || t.HasBecause) {
		err = store.Errorf(store.KindInvalid, "a reaction has the options Token and WantValue, and no others")
	}
	if err == nil {
		err = checkText("user", user, "choice", choice)
	}
	return t, err
}

// reacted sends one reaction.
func (db *DB) reacted(ctx context.Context, key, user string, repeatable bool,
	send func(context.Context, ...grpc.CallOption) (*pb.Reaction, error),
) (call.Reaction, error) {
	var reply *pb.Reaction
	err := db.do(ctx, manner{write: true, repeatable: repeatable}, func(ctx context.Context, o ...grpc.CallOption) (err error) {
		reply, err = send(ctx, o...)
		return err
	})
	if err != nil {
		return call.Reaction{}, err
	}
	return call.Reaction{
		Namespace: db.namespace, Key: key, User: user, Choice: reply.Choice, Before: reply.Before, Changed: reply.Changed,
		Counts: decodeCounts(reply.Counts), Replayed: reply.Replayed, Version: reply.Version, Durability: store.Durability(reply.Durability),
	}, nil
}

func decodeCounts(counts []*pb.ChoiceCount) (out []call.ChoiceCount) {
	for _, c := range counts {
		out = append(out, call.ChoiceCount{Choice: c.Choice, Users: c.Users})
	}
	return out
}

// Choice returns the choices that a user made for some keys: see
// quipu.DB.Choice.
func (db *DB) Choice(ctx context.Context, user string, keys ...string) ([]string, error) {
	if err := checkText("user", user); err != nil {
		return nil, err
	}
	if len(keys) > call.KeysMax {
		return nil, store.Errorf(store.KindTooLarge, "read of %d keys: at most %d", len(keys), call.KeysMax)
	}
	for _, key := range keys {
		if err := checkText("key", key); err != nil {
			return nil, err
		}
	}
	reply, err := ask(ctx, db, &pb.ChoiceRequest{Namespace: db.namespace, User: user, Keys: keys}, db.react.Choice)
	if err != nil {
		return nil, err
	}
	if len(reply.Choices) != len(keys) {
		return nil, store.Errorf(store.KindOther, "read of %d keys: %d choices", len(keys), len(reply.Choices))
	}
	return reply.Choices, nil
}

// Reactions returns the number of users with each choice of a counter: see
// quipu.DB.Reactions.
func (db *DB) Reactions(ctx context.Context, key string) (call.Reactions, error) {
	if err := checkText("key", key); err != nil {
		return call.Reactions{}, err
	}
	reply, err := ask(ctx, db, &pb.CountsRequest{Namespace: db.namespace, Key: key}, db.react.Counts)
	if err != nil {
		return call.Reactions{}, err
	}
	return call.Reactions{Key: key, Counts: decodeCounts(reply.Counts), Users: reply.Users}, nil
}

// Members returns the users of a counter, a page at a time: see quipu.DB.Members.
func (db *DB) Members(ctx context.Context, key string, o call.MembersOptions) (call.MembersPage, error) {
	if err := checkText("key", key, "choice", o.Choice, "cursor", o.Cursor); err != nil {
		return call.MembersPage{}, err
	}
	r := &pb.MembersRequest{Namespace: db.namespace, Key: key, Choice: o.Choice, Limit: int32of(o.Limit), Cursor: o.Cursor}
	reply, err := ask(ctx, db, r, db.react.Members)
	if err != nil {
		return call.MembersPage{}, err
	}
	p := call.MembersPage{Next: reply.Next, Members: make([]call.Member, len(reply.Members))}
	for i, m := range reply.Members {
		p.Members[i] = call.Member{User: m.User, Choice: m.Choice}
	}
	return p, nil
}
