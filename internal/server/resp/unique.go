package resp

import (
	"context"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
)

func qUnique(ctx context.Context, s *session, args [][]byte) error {
	now := time.Now().UTC()
	var o quipu.UniqueOptions
	err := options(args[2:], map[string]func([]byte) error{
		"FROM": func(value []byte) (err error) { o.From, err = moment("FROM", value, now); return err },
		"TO":   func(value []byte) (err error) { o.To, err = moment("TO", value, now); return err },
		"BY":   func(value []byte) error { o.By = string(value); return nil },
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
	u, err := s.db.Uniques(ctx, string(args[1]), o)
	if err != nil {
		return err
	}
	s.uniques(&u)
	return nil
}

// uniques replies users as a map; with BY it has values, each an array of the value, or of all
// its values, and of how many users it had, their bounds and standard error, and whether that is exact.
func (s *session) uniques(u *quipu.Uniques) {
	fields := 9
	if u.By != "" {
		fields += 3
	}
	s.fields(fields)
	s.text("key")
	s.text(u.Key)
	s.text("count")
	s.integer(u.Count)
	s.text("lower")
	s.integer(u.Lower)
	s.text("upper")
	s.integer(u.Upper)
	s.text("standard_error")
	s.double(u.StandardError)
	s.text("exact")
	s.boolean(u.Exact)
	if u.By != "" {
		s.text("dimension")
		s.text(u.By)
		s.text("values")
		s.array(len(u.Values))
		for _, v := range u.Values {
			values := v.Values
			if values == nil {
				values = []string{v.Value}
			}
			s.array(len(values) + estimateItems)
			for _, value := range values {
				s.text(value)
			}
			s.estimate(v.UniqueEstimate)
		}
		s.text("other")
		s.array(estimateItems)
		s.estimate(u.Other)
	}
	s.text("complete")
	s.boolean(u.Complete)
	s.text("complete_from")
	s.known64(u.CompleteFrom.UnixMilli(), !u.CompleteFrom.IsZero())
	s.text("as_of")
	s.integer(u.AsOf.UnixMilli())
}

// estimateItems is how many items estimate replies.
const estimateItems = 5

func (s *session) estimate(e quipu.UniqueEstimate) {
	s.integer(e.Count)
	s.integer(e.Lower)
	s.integer(e.Upper)
	s.double(e.StandardError)
	s.boolean(e.Exact)
}
