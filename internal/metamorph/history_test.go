package metamorph

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/store"
)

// What a step does.
type verb int

const (
	add verb = iota
	set
	reset
	remove
	settle
	look    // up a token
	batch   // of adds
	bounded // an add, by DB.Apply
	expire  // give a deadline that is far away, or take it
	outdated
	readExact
	readKept // by whatever the policy allows
	readAge  // of some age
	readMany
	list
	adjust // from here on: of histories of events alone
	undo   // what the token has added
	define // definitions, by their number
)

// A step is one call of a history. What depends on the layout is not in it.
type step struct {
	verb   verb
	key    string
	n      int64
	want   bool
	token  string
	who    string
	events []quipu.Event

	// Of an event.
	at   time.Time // zero is now
	dims []quipu.Dimension
}

// String returns the step, for who has to find out what went wrong.
func (s step) String() string {
	name := [...]string{
		"add", "set", "reset", "delete", "settle", "lookup", "batch", "bounded add", "expire", "outdated write",
		"exact read", "read", "read of some age", "read of all", "list", "adjust", "undo", "define",
	}[s.verb]
	if s.verb == batch {
		return fmt.Sprintf("%s %+v", name, s.events)
	}
	return fmt.Sprintf("%s %s %d want=%v token=%q who=%q at=%v dims=%v", name, s.key, s.n, s.want, s.token, s.who, s.at, s.dims)
}

var (
	keys = []string{"a", "b", "c"}
	whos = []string{"", "ann", "bob", "cyd", "dan"}
)

// draw makes a history.
func draw(rng *rand.Rand, steps int) []step {
	weights := map[verb]int{
		add: 40, set: 4, reset: 2, remove: 2, settle: 2, look: 2, batch: 10, bounded: 6, expire: 2, outdated: 3,
		readExact: 10, readKept: 8, readAge: 4, readMany: 3, list: 2,
	}
	var verbs []verb
	for v := add; v <= list; v++ {
		for range weights[v] {
			verbs = append(verbs, v)
		}
	}
	history := make([]step, steps)
	for i := range history {
		s := step{verb: verbs[rng.IntN(len(verbs))], key: keys[rng.IntN(len(keys))], n: rng.Int64N(40) - 10, want: rng.IntN(4) == 0}
		switch s.verb {
		case add:
			s.who = whos[rng.IntN(len(whos))]
			if rng.IntN(4) == 0 {
				e := drawEvent(rng, s.key)
				s.token, s.n, s.who = e.Token, e.Delta, e.Who
			}
		case settle, look:
			s.token = drawEvent(rng, s.key).Token
		case batch:
			for range 1 + rng.IntN(6) {
				e := drawEvent(rng, keys[rng.IntN(len(keys))])
				if rng.IntN(3) > 0 {
					e.Token, e.Delta, e.Who = "", rng.Int64N(20)-5, whos[rng.IntN(len(whos))]
				}
				s.events = append(s.events, e)
			}
		default: // The key, the amount and whether the value is wanted will do.
		}
		history[i] = s
	}
	return history
}

// drawEvent makes an add with a token. Mostly a token names one payload, so that
// another draw of it is a repeat.
func drawEvent(rng *rand.Rand, key string) quipu.Event {
	n := rng.IntN(8)
	e := quipu.Event{
		Key: key, Token: fmt.Sprint("t", n), Delta: int64(n - 2), Who: whos[n%len(whos)], WantValue: rng.IntN(4) == 0,
	}
	if rng.IntN(8) == 0 {
		e.Delta++
	}
	return e
}

// verdict is what is compared of an error.
func verdict(err error) string {
	if err == nil {
		return "ok"
	}
	return fmt.Sprint("error of kind ", store.KindOf(err))
}

func told(r quipu.Receipt, err error) string {
	if err != nil {
		return verdict(err)
	}
	return fmt.Sprintf("applied %d value %d before %d has %v replayed %v", r.Applied, r.Value, r.Before, r.HasValue, r.Replayed)
}

// options are those of a write.
func (s step) options() (o []quipu.WriteOption) {
	if s.token != "" {
		o = append(o, quipu.Token(s.token))
	}
	if s.who != "" {
		o = append(o, quipu.Who(s.who))
	}
	if s.want {
		o = append(o, quipu.WantValue())
	}
	if !s.at.IsZero() {
		o = append(o, quipu.At(s.at))
	}
	for _, d := range s.dims {
		o = append(o, quipu.Dim(d.Name, d.Value))
	}
	return o
}

// decide makes the call of a step that has one right answer, and returns what is
// the same in all worlds.
func (s step) decide(ctx context.Context, db *quipu.DB) (string, error) {
	switch s.verb {
	case add:
		r, err := db.Add(ctx, s.key, s.n, s.options()...)
		return told(r, err), err
	case set:
		r, err := db.Set(ctx, s.key, s.n, s.options()...)
		return told(r, err), err
	case reset:
		r, err := db.Reset(ctx, s.key, s.options()...)
		return told(r, err), err
	case remove:
		r, err := db.Delete(ctx, s.key, s.options()...)
		return told(r, err), err
	case settle:
		f, err := db.Settle(ctx, s.key, s.token)
		return fmt.Sprint(f.State, " ", told(f.Receipt, err)), err
	case look:
		f, err := db.Lookup(ctx, s.key, s.token)
		return fmt.Sprint(f.State, " ", told(f.Receipt, err)), err
	case batch:
		return s.batch(ctx, db)
	case bounded, expire:
		return s.apply(ctx, db)
	case outdated:
		return s.outdated(ctx, db)
	case list:
		return s.list(ctx, db)
	case adjust:
		r, err := db.Adjust(ctx, s.key, s.n, s.why(), s.options()...)
		return told(r, err), err
	case undo:
		r, err := db.Undo(ctx, s.key, s.token, s.why())
		return told(r, err), err
	case define:
		_, err := db.Define(ctx, definitions[s.n], quipu.DefineOptions{})
		if err != nil {
			return err.Error(), err
		}
		return "defined", nil
	default:
		return s.readAll(ctx, db)
	}
}

func (s step) batch(ctx context.Context, db *quipu.DB) (string, error) {
	rs, err := db.AddBatch(ctx, s.events)
	if err != nil {
		return verdict(err), err
	}
	var out []string
	for _, r := range rs {
		out = append(out, told(r, r.Err))
	}
	return strings.Join(out, "; "), nil
}

// apply speaks the words of the store, as the Redis door does.
func (s step) apply(ctx context.Context, db *quipu.DB) (string, error) {
	d := store.Delta{Cell: store.Cell{Key: s.key}, Op: store.OpAdd, N: s.n, Want: s.want}
	if s.verb == bounded {
		d.Guard.Bound = &store.Bound{Low: -20, High: 60, Saturate: s.n%2 == 0}
	} else {
		d.Op, d.N, d.Expiry = store.OpExpire, 0, store.ExpiryClear
		if s.n%2 == 0 {
			d.Expiry, d.DeadlineMS = store.ExpirySet, 1<<50
		}
	}
	var rs [1]store.Result
	if err := db.Port().Apply(ctx, []store.Delta{d}, rs[:]); err != nil {
		return verdict(err), err
	}
	r := &rs[0]
	return fmt.Sprintf("outcome %d from %d to %d existed %v deadline %d", r.Outcome, r.Before, r.After, r.Existed, r.DeadlineMS), nil
}

// outdated writes at a version that the counter has left.
func (s step) outdated(ctx context.Context, db *quipu.DB) (string, error) {
	r, err := db.Add(ctx, s.key, 1, quipu.WantValue())
	if err != nil {
		return verdict(err), err
	}
	if _, err := db.Add(ctx, s.key, 1); err != nil {
		return verdict(err), err
	}
	second, err := db.Add(ctx, s.key, 1, quipu.IfVersion(r.Version))
	return told(r, nil) + "; " + told(second, err), err
}

func (s step) list(ctx context.Context, db *quipu.DB) (string, error) {
	var out []string
	for o := (quipu.ListOptions{Limit: 2}); ; {
		p, err := db.List(ctx, "", o)
		if err != nil {
			return verdict(err), err
		}
		for _, c := range p.Counts {
			out = append(out, fmt.Sprint(c.Key, "=", c.Value))
		}
		if o.Cursor = p.Next; o.Cursor == "" {
			return strings.Join(out, " "), nil
		}
	}
}

func (s step) readAll(ctx context.Context, db *quipu.DB) (string, error) {
	of := keys
	if s.verb == readExact {
		of = []string{s.key}
	}
	cs, err := db.ReadBatch(ctx, of, quipu.Exact())
	if err != nil {
		return verdict(err), err
	}
	var out []string
	for _, c := range cs {
		out = append(out, fmt.Sprintf("%s=%d exists %v exact %v from %d to %d bounded %v complete %v",
			c.Key, c.Value, c.Exists, c.Exact, c.Lower, c.Upper, c.Bounded, c.Complete))
	}
	return strings.Join(out, "; "), nil
}

// stale reports whether a step is a read that need not be exact.
func (s step) stale() bool { return s.verb == readKept || s.verb == readAge }

// touched returns the counters that a step may change.
func (s step) touched() (keys []string) {
	switch s.verb {
	case add, set, reset, remove, bounded, expire, outdated, adjust, undo:
		return []string{s.key}
	case batch:
		for _, e := range s.events {
			keys = append(keys, e.Key)
		}
	default:
	}
	return keys
}

// adds reports whether all that a step may change is by adding.
func (s step) adds() bool { return s.verb == add || s.verb == batch || s.verb == outdated }
