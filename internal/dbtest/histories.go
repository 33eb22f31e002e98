package dbtest

import (
	"errors"
	"fmt"

	"pgregory.net/rapid"

	"github.com/quipudb/quipu"
)

// histories are the laws of random histories. They are long, and about answers,
// so they do not wait for a disk.
func histories(s *suite) {
	o := quipu.Options{Policies: []quipu.Policy{{Pattern: "*", Durability: quipu.Memory}}}
	s.lawOf("a batch of events is the same adds one by one", o, func(k *kit) {
		run := 0
		rapid.Check(k.t, func(t *rapid.T) {
			run++
			many, single := k.with(t, fmt.Sprint("many", run)), k.with(t, fmt.Sprint("single", run))
			events := rapid.SliceOfN(rapid.Custom(k.drawEvent), 1, 60).Draw(t, "events")
			for len(events) > 0 {
				n := rapid.IntRange(1, len(events)).Draw(t, "n")
				for i, r := range many.addBatch(events[:n]...) {
					if want := single.one(events[i]); !sameReceipt(r, want) {
						t.Fatalf("in a batch %+v, by itself %+v", r, want)
					}
				}
				events = events[n:]
			}
			single.same(many)
		})
	})

	s.lawOf("a history is what a plain model makes of it", o, func(k *kit) {
		run := 0
		rapid.Check(k.t, func(t *rapid.T) {
			run++
			m := model{counters: map[string]*int64{}, tokens: map[[2]string]first{}}
			v := k.with(t, fmt.Sprint("history", run))
			for range rapid.IntRange(10, 150).Draw(t, "steps") {
				m.step(t, v)
			}
			for _, key := range keysOfHistories {
				m.check(v, key)
			}
		})
	})
}

var (
	keysOfHistories   = []string{"a", "b", "c"}
	tokensOfHistories = []string{"", "", "t", "u", "v"}
	amounts           = rapid.OneOf(rapid.Int64Range(-3, 3), rapid.Int64())
)

func (k *kit) drawEvent(t *rapid.T) quipu.Event {
	e := quipu.Event{
		Key:       rapid.SampledFrom(append(keysOfHistories, "")).Draw(t, "key"),
		Delta:     amounts.Draw(t, "delta"),
		Token:     rapid.SampledFrom(tokensOfHistories).Draw(t, "token"),
		Who:       rapid.SampledFrom([]string{"", "me"}).Draw(t, "who"),
		WantValue: rapid.Bool().Draw(t, "want"),
	}
	if !k.door.Unbounded {
		e.Floor, e.Ceiling = drawLimit(t, "floor", -3), drawLimit(t, "ceiling", 3)
		e.Saturate = rapid.IntRange(0, 5).Draw(t, "saturate") == 0
	}
	return e
}

// drawLimit returns a limit near one, mostly none.
func drawLimit(t *rapid.T, name string, near int64) *int64 {
	if rapid.IntRange(0, 3).Draw(t, name) > 0 {
		return nil
	}
	return new(near + rapid.Int64Range(-2, 2).Draw(t, name))
}

// same checks that two namespaces hold the same.
func (k *kit) same(other *kit) {
	k.Helper()
	mine, theirs := k.walk("", 2), other.walk("", 0)
	if len(mine) != len(theirs) {
		k.Fatalf("one namespace has %d counters, the other %d", len(mine), len(theirs))
	}
	for i, c := range mine {
		if o := theirs[i]; c.Key != o.Key || c.Value != o.Value {
			k.Fatalf("one namespace has %+v, the other %+v", c, o)
		}
	}
}

// A model is what the counters of a namespace should be.
type model struct {
	counters map[string]*int64 // nil or missing: absent
	tokens   map[[2]string]first
}

// A first is what is remembered of a write with a token.
type first struct {
	settled bool
	write   write
	receipt quipu.Receipt
}

// A write is everything that a caller can vary in one.
type write struct {
	verb string
	n    int64
	want bool
}

// step does one random thing to the DB and to the model, and compares.
func (m *model) step(t *rapid.T, k *kit) {
	key := rapid.SampledFrom(keysOfHistories).Draw(t, "key")
	token := rapid.SampledFrom(tokensOfHistories).Draw(t, "token")
	w := write{
		verb: rapid.SampledFrom([]string{"add", "add", "add", "set", "reset", "delete", "settle", "read"}).Draw(t, "verb"),
		want: rapid.Bool().Draw(t, "want"),
	}
	switch {
	case w.verb == "read":
		m.check(k, key)
	case w.verb == "settle" && token != "":
		m.settle(k, key, token)
	case w.verb != "settle":
		if w.verb != "add" && k.door.AddsOnce {
			token = ""
		}
		if w.verb == "add" || w.verb == "set" {
			w.n = amounts.Draw(t, "n")
		}
		m.write(k, key, token, w)
	}
}

// write does w and checks its receipt.
func (m *model) write(k *kit, key, token string, w write) {
	k.Helper()
	got, err := w.do(k, key, token)
	if token != "" {
		if f, ok := m.tokens[[2]string{key, token}]; ok {
			switch {
			case f.settled:
				k.fails(err, quipu.ErrSettled)
			case f.write.payload() != w.payload():
				k.fails(err, quipu.ErrToken)
			default:
				k.succeeds(err)
				k.repeats(got, f.told(w))
			}
			return
		}
	}
	before := int64(0)
	if p := m.counters[key]; p != nil {
		before = *p
	}
	after := w.n
	if w.verb == "add" {
		after += before
		if (after > before) != (w.n > 0) {
			k.fails(err, quipu.ErrOverflow)
			return
		}
	}
	k.succeeds(err)
	if got.Replayed || got.HasValue != w.want || w.want && (got.Before != before || got.Value != after) {
		k.Fatalf("%+v of %q took it from %d to %d, its receipt is %+v", w, key, before, after, got)
	}
	if m.counters[key] = &after; w.verb == "delete" {
		m.counters[key] = nil
	}
	if token != "" {
		m.tokens[[2]string{key, token}] = first{write: w, receipt: got}
	}
}

// payload returns what a token stands for: a reset is a set to zero, and what
// the caller wants to be told is no part of it.
func (w write) payload() write {
	if w.verb == "reset" {
		w.verb = "set"
	}
	w.want = false
	return w
}

// told returns the receipt of a repeat: it has a value if both wanted one.
func (f first) told(repeat write) quipu.Receipt {
	r := f.receipt
	if !repeat.want && r.HasValue {
		r.HasValue, r.Value, r.Before, r.Applied = false, 0, 0, 0
		if repeat.verb == "add" {
			r.Applied = repeat.n
		}
	}
	return r
}

// do sends w.
func (w write) do(k *kit, key, token string) (quipu.Receipt, error) {
	var opts []quipu.WriteOption
	if w.want {
		opts = append(opts, quipu.WantValue())
	}
	if token != "" {
		opts = append(opts, quipu.Token(token))
	}
	switch w.verb {
	case "add":
		return k.db.Add(k.ctx, key, w.n, opts...)
	case "set":
		return k.db.Set(k.ctx, key, w.n, opts...)
	case "reset":
		return k.db.Reset(k.ctx, key, opts...)
	case "delete":
		return k.db.Delete(k.ctx, key, opts...)
	default:
		return quipu.Receipt{}, errors.ErrUnsupported
	}
}

// settle settles a token and checks its fate.
func (m *model) settle(k *kit, key, token string) {
	k.Helper()
	at := [2]string{key, token}
	f, known := m.tokens[at]
	fate := k.settle(key, token)
	if applied := known && !f.settled; applied != (fate.State == quipu.TokenApplied) || fate.Receipt.Version != f.receipt.Version {
		k.Fatalf("settle says %+v, want that of %+v", fate, f)
	}
	if !known {
		m.tokens[at] = first{settled: true}
	}
}

// check compares a counter with the model.
func (m *model) check(k *kit, key string) {
	k.Helper()
	if p := m.counters[key]; p != nil {
		k.holds(key, *p)
	} else {
		k.absent(key)
	}
}
