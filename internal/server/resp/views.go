package resp

import (
	"context"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/instant"
)

// moment returns the moment that an argument names.
func moment(name string, arg []byte, now time.Time) (time.Time, error) {
	t, err := instant.Parse(string(arg), now)
	if err != nil {
		return t, wireError("ERR " + name + ": " + err.Error())
	}
	return t, nil
}

// options hands the options of a command, each a name and a value, to what takes them.
// Each may be given once.
func options(args [][]byte, take map[string]func(value []byte) error) error {
	for ; len(args) > 0; args = args[2:] {
		found := false
		for name, f := range take {
			if len(args) > 1 && is(args[0], name) {
				if err := f(args[1]); err != nil {
					return err
				}
				delete(take, name)
				found = true
				break
			}
		}
		if !found {
			return errSyntax
		}
	}
	return nil
}

func qRange(ctx context.Context, s *session, args [][]byte) error {
	now := time.Now().UTC()
	var o quipu.RangeOptions
	var err error
	if o.From, err = moment("from", args[2], now); err != nil {
		return err
	}
	if o.To, err = moment("to", args[3], now); err != nil {
		return err
	}
	given := args[4:]
	rate := len(given) > 0 && is(given[len(given)-1], "RATE")
	if rate {
		given = given[:len(given)-1]
	}
	err = options(given, map[string]func([]byte) error{
		"STEP": func(value []byte) (err error) {
			if o.Step, err = definition.ParseWidth(string(value)); err != nil {
				return wireError("ERR STEP: " + err.Error())
			}
			return nil
		},
		"ZONE": func(value []byte) error { o.Zone = string(value); return nil },
	})
	if err != nil {
		return err
	}
	ctx, cancel := s.d.deadline(ctx)
	defer cancel()
	series, err := s.db.Range(ctx, string(args[1]), o)
	if err != nil {
		return err
	}
	s.series(&series, rate)
	return nil
}

// series replies a range as a map; its points are arrays of when each begins, its value,
// whether it is exact and complete, and its rate if that is wanted.
func (s *session) series(r *quipu.Series, rate bool) {
	fields, items := 8, 4
	if rate {
		fields, items = fields+1, items+1
	}
	s.fields(fields)
	s.text("key")
	s.text(r.Key)
	s.text("step")
	s.text(r.Step.String())
	s.text("points")
	s.array(len(r.Points))
	for _, p := range r.Points {
		s.array(items)
		s.integer(p.From.UnixMilli())
		s.integer(p.Value)
		s.boolean(p.Exact)
		s.boolean(p.Complete)
		if rate {
			s.double(p.Rate(r.AsOf))
		}
	}
	s.text("sum")
	s.integer(r.Sum)
	s.text("exact")
	s.boolean(r.Exact)
	s.text("complete")
	s.boolean(r.Complete)
	s.text("complete_from")
	s.known64(r.CompleteFrom.UnixMilli(), !r.CompleteFrom.IsZero())
	s.text("as_of")
	s.integer(r.AsOf.UnixMilli())
	if rate {
		s.text("rate")
		s.double(r.Rate())
	}
}

func qBy(ctx context.Context, s *session, args [][]byte) error {
	now := time.Now().UTC()
	var o quipu.ByOptions
	err := options(args[3:], map[string]func([]byte) error{
		"FROM": func(value []byte) (err error) { o.From, err = moment("FROM", value, now); return err },
		"TO":   func(value []byte) (err error) { o.To, err = moment("TO", value, now); return err },
		"TOP": func(value []byte) error {
			n, err := integer(value)
			if err != nil {
				return err
			}
			if n < 1 || n > definition.ValuesMax {
				return wireError("ERR TOP is out of range")
			}
			o.Top = int(n)
			return nil
		},
	})
	if err != nil {
		return err
	}
	ctx, cancel := s.d.deadline(ctx)
	defer cancel()
	b, err := s.db.By(ctx, string(args[1]), string(args[2]), o)
	if err != nil {
		return err
	}
	s.breakdown(&b)
	return nil
}

// breakdown replies the values of a dimension as a map; each value is an array of it and
// its count, and if the dimension has several names, of all its values and the count.
func (s *session) breakdown(b *quipu.Breakdown) {
	s.fields(9)
	s.text("key")
	s.text(b.Key)
	s.text("dimension")
	s.text(b.Dimension)
	s.text("values")
	s.array(len(b.Values))
	for _, v := range b.Values {
		values := v.Values
		if values == nil {
			values = []string{v.Value}
		}
		s.array(len(values) + 1)
		for _, value := range values {
			s.text(value)
		}
		s.integer(v.Count)
	}
	s.text("other")
	s.integer(b.Other)
	s.text("sum")
	s.integer(b.Sum)
	s.text("outside")
	s.integer(b.Outside)
	s.text("exact")
	s.boolean(b.Exact)
	s.text("complete")
	s.boolean(b.Complete)
	s.text("as_of")
	s.integer(b.AsOf.UnixMilli())
}
