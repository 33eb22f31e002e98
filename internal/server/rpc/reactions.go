package rpc

import (
	"context"

	"github.com/quipudb/quipu"
	pb "github.com/quipudb/quipu/quipupb"
)

// reactions serves what users have chosen.
type reactions struct {
	pb.UnimplementedReactionsServer
	door *Door
}

// React makes a choice the user's.
func (s *reactions) React(ctx context.Context, r *pb.ReactRequest) (*pb.Reaction, error) {
	return reactionOf(s.door.in(r.Namespace).React(ctx, r.Key, r.User, r.Choice, reactOptions(r.Token, r.WantCounts)...))
}

// Unreact takes back what the user has chosen.
func (s *reactions) Unreact(ctx context.Context, r *pb.UnreactRequest) (*pb.Reaction, error) {
	return reactionOf(s.door.in(r.Namespace).Unreact(ctx, r.Key, r.User, reactOptions(r.Token, r.WantCounts)...))
}

func reactOptions(token *string, counts bool) (opts []quipu.WriteOption) {
	if token != nil {
		opts = append(opts, quipu.Token(*token))
	}
	if counts {
		opts = append(opts, quipu.WantValue())
	}
	return opts
}

func reactionOf(r quipu.Reaction, err error) (*pb.Reaction, error) {
	if err != nil {
		return nil, err
	}
	return &pb.Reaction{
		Choice: r.Choice, Before: r.Before, Changed: r.Changed, Counts: choiceCounts(r.Counts),
		Replayed: r.Replayed, Version: r.Version, Durability: pb.Durability(r.Durability), Session: r.Session(),
	}, nil
}

func choiceCounts(counts []quipu.ChoiceCount) (out []*pb.ChoiceCount) {
	for _, c := range counts {
		out = append(out, &pb.ChoiceCount{Choice: c.Choice, Users: c.Users})
	}
	return out
}

// Choice returns what one user has chosen of many counters.
func (s *reactions) Choice(ctx context.Context, r *pb.ChoiceRequest) (*pb.ChoiceReply, error) {
	taken, err := s.door.budget.Take(ctx, int64(len(r.Keys))*entryBytes)
	if err != nil {
		return nil, err
	}
	defer s.door.budget.Give(taken)
	choices, err := s.door.in(r.Namespace).Choice(ctx, r.User, r.Keys...)
	if err != nil {
		return nil, err
	}
	return &pb.ChoiceReply{Choices: choices}, nil
}

// Counts returns how many users have each choice of a counter.
func (s *reactions) Counts(ctx context.Context, r *pb.CountsRequest) (*pb.CountsReply, error) {
	all, err := s.door.in(r.Namespace).Reactions(ctx, r.Key)
	if err != nil {
		return nil, err
	}
	return &pb.CountsReply{Counts: choiceCounts(all.Counts), Users: all.Users}, nil
}

// Members returns a page of the users of a counter.
func (s *reactions) Members(ctx context.Context, r *pb.MembersRequest) (*pb.MembersReply, error) {
	taken, err := s.door.budget.Take(ctx, int64(min(max(r.Limit, 0), quipu.MembersMax))*entryBytes)
	if err != nil {
		return nil, err
	}
	defer s.door.budget.Give(taken)
	p, err := s.door.in(r.Namespace).Members(ctx, r.Key, quipu.MembersOptions{Choice: r.Choice, Limit: int(r.Limit), Cursor: r.Cursor})
	if err != nil {
		return nil, err
	}
	reply := &pb.MembersReply{Next: p.Next, Members: make([]*pb.MembersReply_Member, len(p.Members))}
	for i, m := range p.Members {
		reply.Members[i] = &pb.MembersReply_Member{User: m.User, Choice: m.Choice}
	}
	return reply, nil
}
