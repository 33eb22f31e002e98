package keyspace

import (
	"errors"
	"math"
	"slices"

	"github.com/quipudb/quipu/internal/sketch"
)

// The commands on sketches of frequencies, as RedisBloom has them for Count-Min.

const (
	errNoCounts     = "CMS: key does not exist"
	errCountsExist  = "CMS: key already exists"
	errCountsTooBig = "CMS: invalid init arguments: the sketch is too large"
)

func cmsInit(byRate bool) func(*Space, [][]byte) Reply {
	return func(s *Space, args [][]byte) Reply {
		b := body{s: s, e: s.at(args[1])}
		if b.e.is.Exists {
			return failed(errCountsExist)
		}
		shape, wrong := countsShape(args, byRate)
		if wrong != "" {
			return failed(wrong)
		}
		if wrong := b.makeCounts(shape); wrong != "" {
			return failed(wrong)
		}
		return ok()
	}
}

// countsShape returns the shape that arguments ask for.
func countsShape(args [][]byte, byRate bool) (shape sketch.FrequencyShape, wrong string) {
	if !byRate {
		width, ok1 := Integer(args[2])
		depth, ok2 := Integer(args[3])
		switch {
		case !ok1 || width < 1:
			return shape, "CMS: invalid width"
		case !ok2 || depth < 1:
			return shape, "CMS: invalid depth"
		case width > math.MaxInt32 || depth > sketch.FrequencyDepthMax:
			return shape, errCountsTooBig
		}
		return sketch.FrequencyShape{Width: int(width), Depth: int(depth)}, ""
	}
	epsilon, ok1 := rate(args[2])
	delta, ok2 := rate(args[3])
	switch {
	case !ok1 || !(epsilon > 0 && epsilon < 1):
		return shape, "CMS: invalid overestimation value"
	case !ok2 || !(delta > 0 && delta < 1):
		return shape, "CMS: invalid prob value"
	}
	shape, err := sketch.FrequencyShapeFor(epsilon, delta)
	if err != nil {
		return shape, errCountsTooBig
	}
	return shape, ""
}

// makeCounts makes a key a sketch of frequencies that has counted nothing.
func (b *body) makeCounts(shape sketch.FrequencyShape) (wrong string) {
	h := head{kind: sketch.KindFrequency, counts: shape}
	var err error
	if h.pieces, h.part, err = shape.Chunks(); err != nil {
		return errCountsTooBig
	}
	if b.make(h); h.pieces > 1 {
		return ""
	}
	asks, err := sketch.AppendFrequencyRequest(nil, h.part, nil)
	f, bad := sketch.NewFrequency(h.part)
	if err != nil || bad != nil {
		return errCountsTooBig
	}
	b.become(0, becoming{asks: asks, next: string(f.Append(nil))})
	return ""
}

// countsAt returns a piece as a sketch.
func (b *body) countsAt(i int) (*sketch.Frequency, error) {
	if state := b.state(i); state != "" {
		return sketch.ParseFrequency(state)
	}
	return sketch.NewFrequency(b.part)
}

func cmsIncrBy(s *Space, args [][]byte) Reply {
	if len(args)%2 != 0 {
		return wrongArity(string(args[0]))
	}
	b, wrong := s.body(args[1], sketch.KindFrequency, errNoCounts)
	if wrong != "" {
		return failed(wrong)
	}
	var items []sketch.HashAmount
	for i := 2; i < len(args); i += 2 {
		n, ok := Integer(args[i+1])
		switch {
		case !ok:
			return failed("CMS: Cannot parse number")
		case n < 0:
			return failed("CMS: Number cannot be negative")
		}
		items = append(items, sketch.HashAmount{Hash: sketch.Hash(string(args[i])), N: n})
	}
	counts, err := b.count(items)
	if err != nil {
		return failed("CMS: " + err.Error())
	}
	r := Reply{Kind: Array}
	for _, c := range counts {
		r.All = append(r.All, number(c.Upper))
	}
	return r
}

// A refusedTakeError is why an amount can't be taken away from an item.
type refusedTakeError struct {
	at    int // which item of the call
	count int64
}

func (e *refusedTakeError) Error() string { return "more is taken away than was counted" }

// count counts amounts, of which those below 0 are taken away, and returns what each item came to. It
// counts all or none.
func (b *body) count(items []sketch.HashAmount) (counts []sketch.Count, err error) {
	at := make(map[int][]int) // which items each piece has
	var indexes []int
	for n, a := range items {
		i := b.pieceOf(a.Hash)
		if at[i] == nil {
			indexes = append(indexes, i)
		}
		at[i] = append(at[i], n)
	}
	counts = make([]sketch.Count, len(items))
	is := make(map[int]becoming)
	err = b.visit(indexes, func(i int) error {
		f, err := b.countsAt(i)
		if err != nil {
			return err
		}
		var adds []sketch.HashAmount
		takes := false
		for _, n := range at[i] {
			a := items[n]
			if a.N != 0 && !f.Add(a.Hash, a.N) {
				return &refusedTakeError{n, f.Count(a.Hash).Upper}
			}
			if takes = takes || a.N < 0; a.N > 0 {
				adds = append(adds, a)
			}
			counts[n] = f.Count(a.Hash)
		}
		asks, err := sketch.AppendFrequencyRequest(nil, b.part, adds)
		if err != nil || takes || b.counts.Conservative && len(adds) > 1 { // It is too long, or would be counted in another order.
			asks = nil
		}
		is[i], err = b.next(i, asks, f.Append(nil))
		return err
	})
	if err != nil {
		return counts, err
	}
	for _, i := range indexes {
		b.become(i, is[i])
	}
	return counts, nil
}

func cmsQuery(s *Space, args [][]byte) Reply {
	b, wrong := s.body(args[1], sketch.KindFrequency, errNoCounts)
	if wrong != "" {
		return failed(wrong)
	}
	r := Reply{Kind: Array}
	for _, c := range b.counted(hashed(args[2:])) {
		r.All = append(r.All, number(c.Upper))
	}
	return r
}

// counted returns how often items came.
func (b *body) counted(hashes []uint64) []sketch.Count {
	has := make(map[uint64]sketch.Count, len(hashes))
	indexes, at := b.byPiece(hashes)
	_ = b.visit(indexes, func(i int) error { // The Space keeps why a piece could not be loaded.
		state := b.state(i)
		for _, h := range at[i] {
			if c, ok := sketch.FrequencyCount(state, h); ok {
				has[h] = c
			}
		}
		return nil
	})
	counts := make([]sketch.Count, len(hashes))
	for i, h := range hashes {
		c, ok := has[h]
		if !ok { // Nothing has come to its piece yet.
			c.Confidence = 1
		}
		counts[i] = c
	}
	return counts
}

func cmsMerge(s *Space, args [][]byte) Reply {
	to, wrong := s.body(args[1], sketch.KindFrequency, errNoCounts)
	if wrong != "" {
		return failed(wrong)
	}
	n, is := Integer(args[2])
	rest := args[3:]
	switch {
	case !is:
		return failed("CMS: invalid numkeys")
	case n <= 0:
		return failed("CMS: Number of keys must be positive")
	case n > int64(len(rest)):
		return failed("CMS: wrong number of keys")
	}
	weights, wrong := mergeWeights(rest, int(n))
	if wrong != "" {
		return failed(wrong)
	}
	from := make([]body, n)
	for i := range from {
		if from[i], wrong = s.body(rest[i], sketch.KindFrequency, errNoCounts); wrong != "" {
			return failed(wrong)
		}
		if from[i].counts != to.counts {
			return failed("CMS: width/depth is not equal")
		}
	}
	if err := to.mergeCounts(from, weights); errors.Is(err, errStep) {
		return failed("CMS: the sketch is too large to be merged")
	} else if err != nil {
		return failed("CMS: MERGE overflow")
	}
	return ok()
}

// mergeCounts makes a sketch what others are together, each so many times.
func (b *body) mergeCounts(from []body, weights []int64) error {
	return b.merge(from, func(i int) (string, error) {
		sum, err := b.sumOf(i, from, weights)
		if err != nil || b.s.fault != nil || b.state(i) == "" && sum.Total() == 0 {
			return "", err
		}
		return string(sum.Append(nil)), nil
	})
}

// merge makes each piece of a sketch what of returns, if that is not empty. The same pieces of others are loaded for it, a few
// at a time.
func (b *body) merge(from []body, of func(i int) (next string, err error)) error {
	all := make([]int, b.pieces)
	for i := range all {
		all[i] = i
	}
	next := make(map[int]becoming)
	for some := range slices.Chunk(all, max(atOnce/(len(from)+1), 1)) {
		if err := holding(append(slices.Clip(from), *b), some, func() error {
			for _, i := range some {
				state, err := of(i)
				if err == nil && state != "" {
					next[i], err = b.next(i, nil, []byte(state))
				}
				if err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	for i, is := range next {
		b.become(i, is)
	}
	return nil
}

// holding calls f while pieces of several sketches are loaded.
func holding(all []body, some []int, f func() error) error {
	if len(all) == 0 {
		return f()
	}
	return all[0].holding(some, func() error { return holding(all[1:], some, f) })
}

// sumOf returns the sum of the same piece of some sketches, each so many times.
func (b *body) sumOf(i int, from []body, weights []int64) (*sketch.Frequency, error) {
	sum, err := sketch.NewFrequency(b.part)
	for n := range from {
		if err != nil || from[n].state(i) == "" {
			continue
		}
		var one *sketch.Frequency
		if one, err = sketch.ParseFrequency(from[n].state(i)); err == nil {
			err = sum.Merge(one, weights[n])
		}
	}
	return sum, err
}

// mergeWeights returns the weights of n keys, 1 if none are given.
func mergeWeights(rest [][]byte, n int) (weights []int64, wrong string) {
	weights = make([]int64, n)
	switch {
	case len(rest) == n:
		for i := range weights {
			weights[i] = 1
		}
		return weights, ""
	case !is(rest[n], "WEIGHTS"):
		return nil, "CMS: wrong number of keys"
	case len(rest) != 2*n+1:
		return nil, "CMS: wrong number of keys/weights"
	}
	for i := range weights {
		w, ok := Integer(rest[n+1+i])
		if !ok || w < 0 {
			return nil, "CMS: invalid weight value"
		}
		weights[i] = w
	}
	return weights, ""
}

func cmsInfo(s *Space, args [][]byte) Reply {
	b, wrong := s.body(args[1], sketch.KindFrequency, errNoCounts)
	if wrong != "" {
		return failed(wrong)
	}
	total, _ := b.total()
	return Reply{Kind: Map, All: []Reply{
		{Kind: Status, Text: "width"},
		number(int64(b.counts.Width)),
		{Kind: Status, Text: "depth"},
		number(int64(b.counts.Depth)),
		{Kind: Status, Text: "count"},
		number(total),
	}}
}

// total returns the sum of all that was counted, and how long the counters are.
func (b *body) total() (sum, bytes int64) {
	b.each(func(state string) {
		if f, err := sketch.ParseFrequency(state); err == nil {
			if sum += f.Total(); sum < 0 {
				sum = math.MaxInt64
			}
			bytes += int64(len(state))
		}
	})
	return sum, bytes
}
