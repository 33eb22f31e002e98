package keyspace

import (
	"strconv"

	"github.com/quipudb/quipu/internal/sketch"
)

// The commands on top lists, as RedisBloom has them.

const (
	errNoTop     = "TopK: key does not exist"
	errTopExists = "TopK: key already exists"
	// The spaces are RedisBloom's.
	errIncrement = "TopK: increment must be an integer greater or equal to 0                            and smaller or equal to 100,000"

	incrementMax = 100_000
)

func topReserve(s *Space, args [][]byte) Reply {
	if len(args) != 3 && len(args) != 6 {
		return wrongArity(string(args[0]))
	}
	e := s.at(args[1])
	if e.is.Exists {
		return failed(errTopExists)
	}
	k, is := Integer(args[2])
	switch {
	case !is || k < 1:
		return failed("TopK: invalid k")
	case k > sketch.TopMax:
		return failed("TopK: invalid k: at most " + strconv.Itoa(sketch.TopMax))
	}
	if len(args) == 6 { // They have no meaning here.
		width, ok1 := Integer(args[3])
		depth, ok2 := Integer(args[4])
		decay, ok3 := rate(args[5])
		switch {
		case !ok1 || width < 1:
			return failed("TopK: invalid width")
		case !ok2 || depth < 1:
			return failed("TopK: invalid depth")
		case !ok3 || !(decay > 0 && decay <= 1):
			return failed("TopK: invalid decay value. must be '<= 1' & '> 0'")
		}
	}
	if err := e.makeTop(int(k)); err != nil {
		return failed("TopK: invalid k")
	}
	return ok()
}

// makeTop makes a key an empty top list.
func (e *entry) makeTop(k int) error {
	t, err := sketch.NewTop(k)
	if err != nil {
		return err
	}
	asks, err := sketch.AppendTopRequest(nil, k, nil)
	if err == nil {
		e.become(asks, string(t.Append(nil)))
	}
	return err
}

// top returns the list that a key holds.
func (s *Space) top(key []byte) (e *entry, t *sketch.Top, wrong string) {
	b, wrong := s.body(key, sketch.KindTop, errNoTop)
	if wrong != "" {
		return b.e, nil, wrong
	}
	t, err := sketch.ParseTop(b.e.is.Held)
	if err != nil {
		return b.e, nil, errWrongType
	}
	return b.e, t, ""
}

func topAdd(s *Space, args [][]byte) Reply {
	items := make([]sketch.Amount, 0, len(args)-2)
	for _, item := range args[2:] {
		items = append(items, sketch.Amount{Item: string(item), N: 1})
	}
	return s.raise(args[1], items, "")
}

func topIncrBy(s *Space, args [][]byte) Reply {
	if len(args)%2 != 0 {
		return wrongArity(string(args[0]))
	}
	var items []sketch.Amount
	for i := 2; i < len(args); i += 2 {
		n, is := Integer(args[i+1])
		if !is || n < 0 || n > incrementMax {
			return s.raise(args[1], items, errIncrement)
		}
		items = append(items, sketch.Amount{Item: string(args[i]), N: n})
	}
	return s.raise(args[1], items, "")
}

// raise counts items one after the other, and replies which item each has driven out of the list. If
// something is wrong behind them, that comes last, and nothing is counted.
func (s *Space) raise(key []byte, items []sketch.Amount, bad string) Reply {
	e, t, wrong := s.top(key)
	switch {
	case wrong != "":
		return failed(wrong)
	case bad != "":
		return failed(bad)
	}
	for _, a := range items {
		if len(a.Item) > sketch.TopItemBytesMax {
			return failed("TopK: an item has at most " + strconv.Itoa(sketch.TopItemBytesMax) + " bytes")
		}
	}
	r := Reply{Kind: Array}
	e.raise(t, items, func(_ int, expelled string, out bool) {
		if out {
			r.All = append(r.All, bulk(expelled))
		} else {
			r.All = append(r.All, Reply{})
		}
	})
	return r
}

// raise counts items one after the other in the list that a key holds. Of each it tells which item has left
// the list for it, if one has.
func (e *entry) raise(t *sketch.Top, items []sketch.Amount, tell func(i int, expelled string, out bool)) {
	var adds []sketch.Amount
	for i, a := range items {
		expelled, out := "", false
		if a.N > 0 {
			expelled, out = t.AddExpelling(a.Item, a.N)
			adds = append(adds, a)
		}
		tell(i, expelled, out)
	}
	if len(adds) == 0 {
		return
	}
	next := string(t.Append(nil))
	asks, err := sketch.AppendTopRequest(nil, t.K(), adds)
	if err == nil { // A request counts its items in another order.
		if joined, _, _, ok := sketch.Decide(nil, e.is.Held, asks); !ok || string(joined) != next {
			asks = nil
		}
	}
	e.become(asks, next)
}

func topQuery(s *Space, args [][]byte) Reply {
	_, t, wrong := s.top(args[1])
	if wrong != "" {
		return failed(wrong)
	}
	r := Reply{Kind: Array}
	for _, item := range args[2:] {
		r.All = append(r.All, truth(t.Has(string(item))))
	}
	return r
}

func topCount(s *Space, args [][]byte) Reply {
	_, t, wrong := s.top(args[1])
	if wrong != "" {
		return failed(wrong)
	}
	r := Reply{Kind: Array}
	for _, item := range args[2:] {
		_, upper := t.Bounds(string(item))
		r.All = append(r.All, number(upper))
	}
	return r
}

func topList(s *Space, args [][]byte) Reply {
	counts := false
	switch {
	case len(args) > 3:
		return wrongArity(string(args[0]))
	case len(args) == 3 && !is(args[2], "WITHCOUNT"):
		return failed("WITHCOUNT keyword expected")
	case len(args) == 3:
		counts = true
	}
	_, t, wrong := s.top(args[1])
	if wrong != "" {
		return failed(wrong)
	}
	r := Reply{Kind: Array, All: []Reply{}}
	for _, ranked := range t.List(t.K()) {
		if r.All = append(r.All, bulk(ranked.Item)); counts {
			r.All = append(r.All, number(ranked.Upper))
		}
	}
	return r
}

func topInfo(s *Space, args [][]byte) Reply {
	_, t, wrong := s.top(args[1])
	if wrong != "" {
		return failed(wrong)
	}
	return Reply{Kind: Map, All: []Reply{
		{Kind: Status, Text: "k"},
		number(int64(t.K())),
		{Kind: Status, Text: "width"},
		number(int64(sketch.TopEntries(t.K()))),
		{Kind: Status, Text: "depth"},
		number(1),
		{Kind: Status, Text: "decay"},
		{Kind: Double, F: 1},
	}}
}
