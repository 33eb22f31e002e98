package port

import (
	"context"
	"hash/maphash"
	"sync"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/internal/books"
	"github.com/quipudb/quipu/internal/spread"
	"github.com/quipudb/quipu/internal/view"
	"github.com/quipudb/quipu/store"
)

// A Reacting is what makes a delta a reaction: the delta sets the choice of the Fact's user,
// or deletes it.
type Reacting struct {
	Kind       ReactKind
	Generation int64 // of the counter's members, as the server knows it
	Nameless   bool  // the ledger does not name the user
}

// ReactKind is what a reaction does.
type ReactKind uint8

// The kinds. The zero kind is no reaction. They are in digests: append only.
const (
	Chooses ReactKind = iota + 1 // the delta is an OpSet of the number of the choice
	Leaves                       // the delta is an OpDelete; if its N is not 0, nothing happens unless that is the choice
)

// ReactEvent returns what makes a delta a reaction of a user where it can have no Fact: the
// delta is as Reacting says. The port makes the event of it.
func (p *Port) ReactEvent(key, user string) *store.Event {
	gen, _ := p.gens.get(p.Cell(key))
	return &store.Event{Part: view.Member(gen, user)}
}

// Acquainted reports whether reactions to a counter can be made without asking the store first:
// it has choices, and it is known here where its members are, and of which generation.
func (p *Port) Acquainted(key string) bool {
	c := p.Cell(key)
	_, known := p.gens.get(c)
	return known && p.seated(c) && p.KnownChoices(key) != nil
}

// reacting returns what makes a delta a reaction, and of whom; the zero Reacting if it is
// none.
func reacting(d *store.Delta, fact *Fact) (r Reacting, user string) {
	if fact != nil && fact.React.Kind != 0 {
		return fact.React, fact.Who
	}
	if d.Event == nil || d.Event.Part.Kind() != store.PartMember {
		return r, ""
	}
	f, _ := d.Event.Part.Fields()
	r = Reacting{Kind: Chooses, Generation: f.Position}
	if d.Op == store.OpDelete {
		r.Kind = Leaves
	}
	return r, f.Name
}

// ErrReactions is why a definition bars an add to a counter that has choices, and a value for
// it that is not 0.
var ErrReactions = store.Errorf(store.KindInvalid, "only reactions change this counter, because its definition has choices: it is the number of users who have a choice")

// NoChoices returns the error of a reaction to a counter whose definition has no choices.
func NoChoices(key string) error {
	return store.Errorf(store.KindInvalid, "%q has no choices: define some first, such as {pattern: \"%s\", choices: [like, dislike]}", key, key)
}

// ErrChoice returns the error of a choice that a counter does not have.
func ErrChoice(name string, choices []string) error {
	return store.Errorf(store.KindInvalid, "unknown choice %q: want %s", name, call.Or(choices))
}

// react returns the event of a reaction. A bound is of the counter, and not of the choice: the
// event has it, and the delta must not.
func (f *frame) react(d *store.Delta, r Reacting, user string, keys *books.Keys) (*store.Event, lateness, error) {
	switch {
	case keys == nil || len(keys.Choices()) == 0:
		return nil, onTime, NoChoices(d.Cell.Key)
	case d.Op == store.OpSet && f.s.keeping.Users(f.namespace) >= f.s.most.UsersMax:
		return nil, onTime, store.Errorf(store.KindFull, "users of namespace %q have about %d choices, and may have %d (--user-quota)", f.namespace, f.s.keeping.Users(f.namespace), f.s.most.UsersMax)
	case d.Op == store.OpSet && d.N > int64(len(keys.Choices())):
		return nil, onTime, ErrChoice(view.ChoiceName(nil, d.N), keys.Choices())
	}
	r.Generation += f.resets[d.Cell]
	does := view.Reaction{Choice: d.N, Generation: r.Generation}
	if r.Kind == Leaves {
		does.Choice, does.Only = 0, d.N
	}
	p := keys.Plans.React(keys.Views, f.nowMS, nil, does)
	e := &store.Event{Plan: p.Event.Plan}
	if d.Event != nil && f.resets[d.Cell] == 0 { // as ReactEvent, or an earlier attempt, has made it
		e.Part = d.Event.Part
	} else {
		e.Part = view.Member(r.Generation, user)
	}
	if b := d.Guard.Bound; b != nil {
		e.Plan, e.Riders = nil, boundRiders(p.Event, b)
	}
	line, ok := keys.Line(f.nowMS, false)
	if !ok {
		return e, onTime, nil
	}
	named := Fact{Who: user, React: r}
	if name := view.ChoiceName(keys.Choices(), does.Choice); name != "" {
		named.Dims = []call.Dimension{{Name: "choice", Value: name}}
	}
	e, err := f.withLine(e, line, true, d, &named, 0)
	return e, onTime, err
}

// reset reports whether a delta takes all reactions of its counter away, and whether it is a
// reaction that comes after such a one in the same batch: then it is of the next generation.
func (f *frame) reset(d *store.Delta, fact *Fact) (resets, follows bool) {
	if d.Op != store.OpSet && d.Op != store.OpDelete {
		return false, false
	}
	if r, _ := reacting(d, fact); r.Kind != 0 {
		return false, f.resets[d.Cell] != 0
	}
	if keys := f.known.Of(d.Cell.Key); keys == nil || len(keys.Choices()) == 0 {
		return false, false
	}
	if f.resets == nil {
		f.resets = map[store.Cell]int64{}
	}
	f.resets[d.Cell]++
	return true, false
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
	var unsure []int // those that have tokens must be right at once, since these remember refusals
	for i := range reactions {
		c := p.Cell(reactions[i].Key)
		gen, known := p.gens.get(c)
		if todo[i], gens[i] = i, gen; !known || reactions[i].Token != "" || !p.seated(c) {
			unsure = append(unsure, i)
		}
	}
	if err := p.readGenerations(ctx, reactions, unsure, gens); err != nil {
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
		results[i] = Reacted{Err: store.Errorf(store.KindUnavailable, "%q was reset during each attempt to record the reaction: try again", reactions[i].Key)}
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
	c.Each(func(n int, d *store.Delta, reply *store.Reply, nth int) {
		i, out := todo[n], &results[todo[n]]
		if *out = (Reacted{Err: reply.Err, Durability: reply.Durability}); reply.Err != nil {
			return
		}
		res := &reply.Results[nth]
		out.Before, out.Replayed = res.Before, res.Replayed
		switch res.Outcome {
		case store.Applied:
			out.Changed, out.Version = true, spread.Told(res)
		case store.Unmet:
			switch {
			case res.Refused == view.RefusedSame:
			case res.Refused != view.RefusedGeneration:
				out.Err = errGone
			case d.Guard.Token != "":
				out.Err = errReset
			default:
				again = append(again, i)
			}
		case store.Bounded:
			out.Err = errCrowded
		case store.Barred:
			out.Err = p.Why(ctx, d, c.Fact(n))
		default:
			out.Err = res.Outcome.Err()
		}
	})
	return again, p.readGenerations(ctx, reactions, again, gens)
}

// The errors of reactions.
var (
	errReset   = store.Errorf(store.KindUnmet, "the counter was reset while the reaction was made, and its token stands for that refusal: send the reaction again with another token")
	errGone    = store.Errorf(store.KindUnmet, "the counter has a deadline from before its definition, but a counter with choices can't have one: remove the deadline first")
	errCrowded = store.Errorf(store.KindBound, "the number of users with a choice would cross the floor or the ceiling of the counter")
)

// reaction returns the delta and the fact of a reaction.
func (p *Port) reaction(r *Reaction, gen int64) (store.Delta, Fact) {
	d := store.Delta{Cell: p.Cell(r.Key), Op: store.OpSet, N: r.Choice, Want: true}
	fact := Fact{Who: r.User, React: Reacting{Kind: Chooses, Generation: gen, Nameless: r.Nameless}}
	if r.Choice == 0 {
		d.Op, d.N = store.OpDelete, r.Only
		fact.React.Kind = Leaves
	}
	if r.Token != "" {
		d.Guard.Token = r.Token
		d.Guard.Digest = Digest(&d, &fact)
	}
	return d, fact
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

// generations remembers those of the counters that were used last, as far as there is room.
// They may be old: a reaction that is made by an old one is refused. It is safe for
// concurrent use.
type generations struct {
	once sync.Once
	seed maphash.Seed
	mu   sync.RWMutex // guards all
	all  []generation // by the hash of their counters; one takes the place of another
}

// A generation is that of the counter with a hash.
type generation struct {
	counter uint64
	n       int64
}

// generationsMax is how many are remembered: 4 MiB.
const generationsMax = 1 << 18

// hash returns that of a counter; 0 is none.
func (g *generations) hash(c store.Cell) uint64 {
	g.once.Do(func() { g.seed, g.all = maphash.MakeSeed(), make([]generation, generationsMax) })
	return maphash.Comparable(g.seed, c) | 1
}

// get returns the generation of a counter, and whether it is known.
func (g *generations) get(c store.Cell) (n int64, known bool) {
	h := g.hash(c)
	g.mu.RLock()
	defer g.mu.RUnlock()
	if at := g.all[h>>1%generationsMax]; at.counter == h {
		return at.n, true
	}
	return 0, false
}

func (g *generations) put(c store.Cell, n int64) {
	if is, known := g.get(c); known && is == n {
		return
	}
	h := g.hash(c)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all[h>>1%generationsMax] = generation{h, n}
}

// rise notes that the members of a counter have gone.
func (g *generations) rise(c store.Cell) {
	if n, known := g.get(c); known {
		g.put(c, n+1)
	}
}

// NotReacted returns why a reaction that was decided is an error; nil if it is none.
func NotReacted(r *store.Result) error {
	switch r.Outcome {
	case store.Applied:
		return nil
	case store.Bounded:
		return errCrowded
	case store.Unmet:
		_, err := Unchanged(r)
		return err
	default:
		return r.Outcome.Err()
	}
}

// Unchanged returns why a reaction that was decided has changed nothing: whether its server
// knew an old generation of members, so that it has to be made again, or an error; neither if
// nothing was to be changed, or something was.
func Unchanged(r *store.Result) (stale bool, err error) {
	switch {
	case r.Outcome != store.Unmet, r.Refused == view.RefusedSame:
		return false, nil
	case r.Refused == view.RefusedGeneration:
		return true, errReset
	default:
		return false, errGone
	}
}

// ReactAgain makes reactions again that were Unchanged, and fills results[i] for deltas[i],
// which have no tokens.
func (p *Port) ReactAgain(ctx context.Context, deltas []store.Delta, results []store.Result) error {
	reactions, did := make([]Reaction, len(deltas)), make([]Reacted, len(deltas))
	for i := range deltas {
		d := &deltas[i]
		r, user := reacting(d, nil)
		reactions[i] = Reaction{Key: d.Cell.Key, User: user, Choice: d.N}
		if r.Kind == Leaves {
			reactions[i].Choice, reactions[i].Only = 0, d.N
		}
	}
	if err := p.React(ctx, reactions, did); err != nil {
		return err
	}
	for i := range did {
		r := &did[i]
		results[i] = store.Result{Outcome: store.Applied, Before: r.Before, After: reactions[i].Choice, Version: r.Version}
		switch {
		case r.Err != nil:
			return store.Partly(r.Err, i > 0)
		case !r.Changed:
			results[i].Outcome, results[i].Refused = store.Unmet, view.RefusedSame
		}
	}
	return nil
}
