package port

import (
	"context"
	"sync"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/internal/books"
	"github.com/quipudb/quipu/internal/view"
	"github.com/quipudb/quipu/store"
)

// A Reacting is what makes a delta a reaction: the delta sets the choice of the Fact's user,
// or deletes it.
type Reacting struct {
	Kind       ReactKind
	Only       int64 // of Leaves: nothing happens if another choice is met; 0 is any
	Generation int64 // of the counter's members, as the server knows it
	Nameless   bool  // the ledger does not name the user
}

// ReactKind is what a reaction does.
type ReactKind uint8

// The kinds. The zero kind is no reaction. They are in digests: append only.
const (
	Chooses ReactKind = iota + 1 // the delta is an OpSet of the number of the choice
	Leaves                       // the delta is an OpDelete
)

// ErrReactions is why a definition bars an add to a counter that has choices, and a value for
// it that is not 0.
var ErrReactions = store.Errorf(store.KindInvalid, "the counter is changed by reactions alone, as its definition has choices: it is the number of users that have one")

// NoChoices returns the error of a reaction to a counter whose definition has no choices.
func NoChoices(key string) error {
	return store.Errorf(store.KindInvalid, "no definition gives %q choices: define some first, such as {pattern: \"%s\", choices: [like, dislike]}", key, key)
}

// ErrChoice returns the error of a choice that a counter does not have.
func ErrChoice(name string, choices []string) error {
	return store.Errorf(store.KindInvalid, "unknown choice %q: want %s", name, call.Or(choices))
}

// react returns the event of a reaction. A bound is of the counter, and not of the choice: the
// event has it, and the delta must not.
func (f *frame) react(d *store.Delta, fact *Fact, keys *books.Keys) (*store.Event, lateness, error) {
	switch {
	case keys == nil || len(keys.Choices()) == 0:
		return nil, onTime, NoChoices(d.Cell.Key)
	case d.Op == store.OpSet && d.N > int64(len(keys.Choices())):
		return nil, onTime, ErrChoice(view.ChoiceName(nil, d.N), keys.Choices())
	}
	r := &fact.React
	p := keys.Plans.React(keys.Views, f.nowMS, nil, view.Reaction{Choice: d.N, Generation: r.Generation})
	e := &store.Event{Part: view.Member(r.Generation, fact.Who), Plan: p.Event.Plan, Is: store.Met{Kind: store.MetNot, N: d.N}}
	if r.Only != 0 {
		e.Is = store.Met{Kind: store.MetEqual, N: r.Only}
	}
	if b := d.Guard.Bound; b != nil {
		e.Plan, e.Riders = nil, boundRiders(p.Event, b)
	}
	line, ok := keys.Line(f.nowMS, false)
	if !ok {
		return e, onTime, nil
	}
	named := Fact{Who: fact.Who, React: *r}
	if name := view.ChoiceName(keys.Choices(), d.N); name != "" {
		named.Dims = []call.Dimension{{Name: "choice", Value: name}}
	}
	e, err := f.withLine(e, line, true, d, &named, 0)
	return e, onTime, err
}

// boundRiders returns the riders of an event, with a bound on the counter's own value.
func boundRiders(e *store.Event, b *store.Bound) []store.Rider {
	riders := make([]store.Rider, e.Len())
	for i := range riders {
		if riders[i] = *e.Rider(i); riders[i].Part == "" {
			strict := *b
			strict.Saturate = false
			riders[i].Bound = &strict
		}
	}
	return riders
}

// A Reaction is what a user does to a counter.
type Reaction struct {
	Key, User string
	Choice    int64  // its number, from 1 on; 0 is none any more
	Only      int64  // with Choice 0: only if this is what was chosen; 0 is any
	Token     string // names it among the writes to the counter; may be empty
	Nameless  bool   // the ledger does not name the user
}

// A Reacted is what became of a reaction.
type Reacted struct {
	Before     int64 // what the user had chosen; 0 is nothing
	Changed    bool
	Replayed   bool
	Version    uint64 // of the counter, if it was changed
	Durability store.Durability
	Err        error
}

// reactTries is how often a reaction is made again because the counter's members have gone
// meanwhile.
const reactTries = 32

// React decides reactions, each by itself, those of one counter in their order, and fills
// results[i] for reactions[i]. Users were checked. An error means that nothing can be said
// of any.
func (p *Port) React(ctx context.Context, reactions []Reaction, results []Reacted) error {
	if p.err != nil {
		return p.err
	}
	if p.readOnly {
		return store.ErrReadOnly
	}
	gens := make([]int64, len(reactions))
	todo := make([]int, len(reactions))
	var named []int // that have tokens
	for i := range reactions {
		todo[i], gens[i] = i, p.gens.get(p.Cell(reactions[i].Key))
		if reactions[i].Token != "" {
			named = append(named, i)
		}
	}
	if err := p.readGenerations(ctx, reactions, named, gens); err != nil {
		return err
	}
	for try := range reactTries {
		again, err := p.reactOnce(ctx, reactions, results, todo, gens)
		if err != nil && try == 0 {
			return err
		}
		if err != nil {
			for _, i := range todo {
				results[i] = Reacted{Err: err}
			}
			return nil
		}
		if todo = again; len(todo) == 0 {
			return nil
		}
	}
	for _, i := range todo {
		results[i] = Reacted{Err: store.Errorf(store.KindUnavailable, "%q was reset each time that the reaction was made: try again", reactions[i].Key)}
	}
	return nil
}

// reactOnce makes some reactions once, and returns those that have to be made again, because
// their generation was another one.
func (p *Port) reactOnce(ctx context.Context, reactions []Reaction, results []Reacted, todo []int, gens []int64) (again []int, err error) {
	c := p.NewCall(len(todo))
	defer p.Free(c)
	c.Facts = resized(c.Facts, len(todo))
	for n, i := range todo {
		c.Deltas[n], c.Facts[n] = p.reaction(&reactions[i], gens[i])
	}
	if err := p.Send(ctx, c, store.DurabilityDefault); err != nil {
		return nil, err
	}
	var unmet []int
	c.Each(func(n int, d *store.Delta, reply *store.Reply, nth int) {
		i, out := todo[n], &results[todo[n]]
		if *out = (Reacted{Err: reply.Err, Durability: reply.Durability}); reply.Err != nil {
			return
		}
		res := &reply.Results[nth]
		out.Before, out.Replayed = res.Before, res.Replayed
		switch res.Outcome {
		case store.Applied:
			out.Changed, out.Version = true, res.Version
		case store.Unmet:
			out.Err = errGone
			if d.Guard.Token != "" && res.Refused == view.RefusedGeneration {
				out.Err = errReset
			}
			if !res.Replayed {
				unmet = append(unmet, i)
			} else if res.Refused == 0 {
				out.Err = nil
			}
		case store.Bounded:
			out.Err = errCrowded
		case store.Barred:
			out.Err = p.Why(ctx, d, c.Fact(n))
		default:
			out.Err = res.Outcome.Err()
		}
	})
	return p.unmet(ctx, reactions, results, unmet, gens)
}

// The errors of reactions.
var (
	errReset   = store.Errorf(store.KindUnmet, "the counter was reset while the reaction was made, and its token remembers that it was refused: make it again with another token")
	errGone    = store.Errorf(store.KindUnmet, "the counter has a deadline from before its definition, and one that has choices has none: remove the deadline first")
	errCrowded = store.Errorf(store.KindBound, "the number of users that have a choice would leave the floor or the ceiling of the counter")
)

// unmet finds out why reactions were not applied: their user has what they ask for, or the
// counter's members have gone. These are returned, but those that have tokens remember it.
func (p *Port) unmet(ctx context.Context, reactions []Reaction, results []Reacted, unmet []int, gens []int64) (again []int, err error) {
	if len(unmet) == 0 {
		return nil, nil
	}
	now := make([]int64, len(gens))
	copy(now, gens)
	if err := p.readGenerations(ctx, reactions, unmet, now); err != nil {
		return nil, err
	}
	for _, i := range unmet {
		r, out := &reactions[i], &results[i]
		switch {
		case now[i] != gens[i] && r.Token != "":
			out.Err = errReset
		case now[i] != gens[i]:
			gens[i] = now[i]
			again = append(again, i)
		case r.Choice == out.Before, r.Only != 0 && r.Only != out.Before:
			out.Err = nil
		default:
		}
	}
	return again, nil
}

// reaction returns the delta and the fact of a reaction.
func (p *Port) reaction(r *Reaction, gen int64) (store.Delta, Fact) {
	d := store.Delta{Cell: p.Cell(r.Key), Op: store.OpSet, N: r.Choice, Want: true}
	fact := Fact{Who: r.User, React: Reacting{Kind: Chooses, Generation: gen, Nameless: r.Nameless}}
	if r.Choice == 0 {
		d.Op = store.OpDelete
		fact.React.Kind, fact.React.Only = Leaves, r.Only
	}
	if r.Token != "" {
		d.Guard.Token = r.Token
		d.Guard.Digest = Digest(&d, &fact)
	}
	return d, fact
}

// readGenerations fills in the generations of some reactions as the store has them.
func (p *Port) readGenerations(ctx context.Context, reactions []Reaction, some []int, gens []int64) error {
	if len(some) == 0 {
		return nil
	}
	parts, contents := make([]store.PartCell, len(some)), make([]store.Content, len(some))
	for n, i := range some {
		parts[n] = store.PartCell{Cell: p.Cell(reactions[i].Key), Part: view.Generation()}
	}
	if err := p.readParts(ctx, parts, contents); err != nil {
		return err
	}
	for n, i := range some {
		gens[i] = contents[n].N
		p.gens.put(parts[n].Cell, contents[n].N)
	}
	return nil
}

// readParts reads parts, as many at a time as a store takes.
func (s *shared) readParts(ctx context.Context, parts []store.PartCell, contents []store.Content) error {
	for len(parts) > 0 {
		n := min(len(parts), store.ReadCellsMax)
		if err := s.store.ReadParts(ctx, parts[:n], contents[:n]); err != nil {
			return err
		}
		parts, contents = parts[n:], contents[n:]
	}
	return nil
}

// generations remembers those that are not 0, of as many counters as there is room for. They
// may be old: a reaction that is made by an old one is refused. It is safe for concurrent
// use.
type generations struct {
	mu    sync.RWMutex // guards known
	known map[store.Cell]int64
}

// generationsMax is how many are remembered.
const generationsMax = 1 << 16

func (g *generations) get(c store.Cell) int64 {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.known[c]
}

func (g *generations) put(c store.Cell, gen int64) {
	if gen == g.get(c) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.known) >= generationsMax || g.known == nil {
		g.known = make(map[store.Cell]int64)
	}
	g.known[c] = gen
}
