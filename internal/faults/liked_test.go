package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/store"
)

// choices are what users of a history may choose.
var choices = []string{"like", "dislike", "wow"}

// readers is how many users react to a counter.
const readers = 5

// A wish is what a caller asks of a counter of reactions.
type wish struct {
	verb   string // react, choice, counts, read, reset
	user   int
	choice int // from 1 on; 0 is none
}

// A fact is what a caller was told.
type fact struct {
	before  int  // of react; of choice, what the user has
	changed bool // of react
	unknown bool // nobody knows whether it was done
	undone  bool // it was not
	counts  [4]int64
	users   int64
}

// likes is a counter of reactions in the model: what each user has chosen.
type likes [readers]uint8

// likesModel is what one counter of reactions must look like to all callers together.
var likesModel = porcupine.Model{
	Init: func() any { return likes{} },
	Step: func(state, input, output any) (bool, any) {
		l, w, f := state.(likes), input.(wish), output.(fact)
		ok := l.step(w, f)
		return ok, l
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v: %+v", input, output) },
}

// step reports whether a wish can have been told so, and does it.
func (l *likes) step(w wish, f fact) bool {
	before := int(l[w.user])
	switch w.verb {
	case "react":
		if f.undone {
			return true
		}
		l[w.user] = uint8(w.choice)
		return f.unknown || f.before == before && f.changed == (before != w.choice)
	case "choice":
		return f.before == before
	case "reset":
		*l = likes{}
		return true
	}
	var counts [4]int64
	users := int64(0)
	for _, choice := range l {
		if counts[choice]++; choice != 0 {
			users++
		}
	}
	counts[0] = 0
	return f.users == users && (w.verb == "read" || f.counts == counts)
}

// A liked is a counter whose callers react.
type liked struct{ told }

func newLiked(key string) *liked { return &liked{told{key: key, start: time.Now()}} }

func user(i int) string { return fmt.Sprint("user-", i) }

// act does one thing.
func (h *liked) act(ctx context.Context, db decider, caller int, rng *rand.Rand) error {
	w := wish{user: rng.IntN(readers)}
	switch n := rng.IntN(20); {
	case n < 12:
		w.verb, w.choice = "react", rng.IntN(len(choices)+1)
		if rng.IntN(4) == 0 {
			return h.unnamed(ctx, db, caller, w)
		}
		return h.react(ctx, db, caller, w)
	case n < 15:
		w.verb = "choice"
	case n < 18:
		w = wish{verb: "counts"}
	case n < 19:
		w = wish{verb: "read"}
	default:
		return h.reset(ctx, db, caller)
	}
	return h.look(ctx, db, caller, w)
}

// once has a user react, or take it back.
func (h *liked) once(ctx context.Context, db decider, w wish, opts ...quipu.WriteOption) (f fact, err error) {
	var r quipu.Reaction
	if w.choice == 0 {
		r, err = db.Unreact(ctx, h.key, user(w.user), opts...)
	} else {
		r, err = db.React(ctx, h.key, user(w.user), choices[w.choice-1], opts...)
	}
	return fact{before: slices.Index(choices, r.Before) + 1, changed: r.Changed}, err
}

// react makes a reaction, under a token until it is known what has become of it.
func (h *liked) react(ctx context.Context, db decider, caller int, w wish) error {
	call, token := h.now(), h.token()
	var f fact
	_, err := insist(ctx, func(ctx context.Context) (err error) {
		f, err = h.once(ctx, db, w, token)
		return err
	})
	if errors.Is(err, store.ErrUnmet) { // The counter was reset meanwhile.
		f, err = fact{undone: true}, nil
	}
	h.record(caller, w, f, call, h.now())
	return err
}

// unnamed makes a reaction without a token: each attempt is one of its own.
func (h *liked) unnamed(ctx context.Context, db decider, caller int, w wish) error {
	_, err := insist(ctx, func(ctx context.Context) error {
		call := h.now()
		f, err := h.once(ctx, db, w)
		switch {
		case doubted(err):
			h.record(caller, w, fact{unknown: true}, call, unending)
		case err == nil:
			h.record(caller, w, f, call, h.now())
		}
		return err
	})
	return err
}

// reset takes all reactions away.
func (h *liked) reset(ctx context.Context, db decider, caller int) error {
	call, token := h.now(), h.token()
	_, err := insist(ctx, func(ctx context.Context) error {
		_, err := db.Reset(ctx, h.key, token)
		return err
	})
	h.record(caller, wish{verb: "reset"}, fact{}, call, h.now())
	return err
}

// look reads what there is.
func (h *liked) look(ctx context.Context, db decider, caller int, w wish) error {
	var f fact
	call := h.now()
	_, err := insist(ctx, func(ctx context.Context) error {
		call = h.now() // Only what was answered counts.
		f = fact{}
		switch w.verb {
		case "choice":
			got, err := db.Choice(ctx, user(w.user), h.key)
			if err == nil {
				f.before = slices.Index(choices, got[0]) + 1
			}
			return err
		case "counts":
			got, err := db.Reactions(ctx, h.key)
			for i, c := range got.Counts {
				f.counts[i+1] = c.Users
			}
			f.users = got.Users
			return err
		default:
			got, err := db.Read(ctx, h.key, quipu.Exact())
			f.users = got.Value
			return err
		}
	})
	h.record(caller, w, f, call, h.now())
	return err
}

// end looks at all that there is.
func (h *liked) end(ctx context.Context, db decider) error {
	looks := []wish{{verb: "counts"}, {verb: "read"}}
	for i := range readers {
		looks = append(looks, wish{verb: "choice", user: i})
	}
	for _, w := range looks {
		if err := h.look(ctx, db, 0, w); err != nil {
			return err
		}
	}
	return nil
}

func (h *liked) judge(t *testing.T) {
	t.Helper()
	h.judged(t, likesModel, porcupine.Ok)
}
