package resp

import (
	"context"
	"time"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/definition"
)

func qTop(ctx context.Context, s *session, args [][]byte) error {
	now := time.Now().UTC()
	var o call.TopOptions
	given := args[2:]
	if o.Trend = len(given) > 0 && is(given[len(given)-1], "TREND"); o.Trend {
		given = given[:len(given)-1]
	}
	err := options(given, map[string]func([]byte) error{
		"KEY":  func(value []byte) error { o.Key = string(value); return nil },
		"FROM": func(value []byte) (err error) { o.From, err = moment("FROM", value, now); return err },
		"TO":   func(value []byte) (err error) { o.To, err = moment("TO", value, now); return err },
		"COUNT": func(value []byte) error {
			n, err := integer(value)
			if err != nil {
				return err
			}
			if n < 1 || n > definition.TopMax {
				return wireError("ERR COUNT is out of range")
			}
			o.K = int(n)
			return nil
		},
	})
	if err != nil {
		return err
	}
	ctx, cancel := s.d.deadline(ctx)
	defer cancel()
	t, err := s.db.Top(ctx, string(args[1]), o)
	if err != nil {
		return err
	}
	s.top(&t)
	return nil
}

// top replies a list as a map; its items are arrays of the item and its bounds, and of a trend of
// the rise in the middle of its bounds, and of these.
func (s *session) top(t *call.Top) {
	s.fields(10)
	s.text("name")
	s.text(t.Name)
	s.text("by")
	s.text(t.By)
	s.text("counts")
	s.text("added")
	s.text("items")
	s.array(len(t.Items))
	for _, x := range t.Items {
		if t.Trend {
			s.array(6)
		} else {
			s.array(3)
		}
		s.text(x.Item)
		s.integer(x.Lower)
		s.integer(x.Upper)
		if t.Trend {
			s.integer(x.Rise)
			s.integer(x.RiseLower)
			s.integer(x.RiseUpper)
		}
	}
	s.text("exact")
	s.boolean(t.Exact)
	s.text("rest")
	s.integer(t.Rest)
	s.text("total")
	s.integer(t.Total)
	s.text("complete")
	s.boolean(t.Complete)
	s.text("complete_from")
	s.known64(t.CompleteFrom.UnixMilli(), !t.CompleteFrom.IsZero())
	s.text("as_of")
	s.integer(t.AsOf.UnixMilli())
}
