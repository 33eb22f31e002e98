package keyspace

import (
	"math"

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
	b.become(0, asks, string(f.Append(nil)))
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
	counts := b.count(items)
	r := Reply{Kind: Array}
	for _, c := range counts {
		r.All = append(r.All, number(c.Upper))
	}
	return r
}

// count counts amounts, of which none is below 0, and returns what each item came to.
func (b *body) count(items []sketch.HashAmount) (counts []sketch.Count) {
	at, adds := make(map[int]*sketch.Frequency), make(map[int][]sketch.HashAmount)
	var indexes []int
	for _, a := range items {
		i := b.pieceOf(a.Hash)
		if adds[i] == nil {
			indexes, adds[i] = append(indexes, i), []sketch.HashAmount{}
		}
		if a.N > 0 {
			adds[i] = append(adds[i], a)
		}
	}
	if b.load(indexes); b.s.fault != nil {
		return make([]sketch.Count, len(items))
	}
	for _, a := range items {
		i := b.pieceOf(a.Hash)
		if at[i] == nil {
			f, err := b.countsAt(i)
			if err != nil {
				b.s.fault = err
				return make([]sketch.Count, len(items))
			}
			at[i] = f
		}
		if a.N > 0 {
			at[i].Add(a.Hash, a.N)
		}
		counts = append(counts, at[i].Count(a.Hash))
	}
	for _, i := range indexes {
		asks, err := sketch.AppendFrequencyRequest(nil, b.part, adds[i])
		if err != nil || b.counts.Conservative && len(adds[i]) > 1 { // It is too long, or would be counted in another order.
			asks = nil
		}
		b.become(i, asks, string(at[i].Append(nil)))
	}
	return counts
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
func (b *body) counted(hashes []uint64) (counts []sketch.Count) {
	b.byPiece(hashes)
	for _, h := range hashes {
		c := sketch.Count{Confidence: 1}
		if b.s.fault == nil {
			if state := b.state(b.pieceOf(h)); state != "" {
				c, _ = sketch.FrequencyCount(state, h)
			}
		}
		counts = append(counts, c)
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
	if to.pieces > mergedPiecesMax {
		return failed("CMS: the sketch is too large to be merged")
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
	next := make([]string, to.pieces)
	for i := range to.pieces {
		sum, err := to.sumOf(i, from, weights)
		if err != nil {
			return failed("CMS: MERGE overflow")
		}
		if s.fault == nil && (to.state(i) != "" || sum.Total() > 0) {
			next[i] = string(sum.Append(nil))
		}
	}
	for i, state := range next {
		if state != "" {
			to.become(i, nil, state)
		}
	}
	return ok()
}

// mergedPiecesMax is how many pieces a sketch may have that is the sum of others: all of them are one
// batch.
const mergedPiecesMax = 48

// sumOf returns the sum of the same piece of some sketches, each so many times.
func (b *body) sumOf(i int, from []body, weights []int64) (*sketch.Frequency, error) {
	sum, err := sketch.NewFrequency(b.part)
	b.load([]int{i})
	for n := range from {
		from[n].load([]int{i})
		if err != nil || b.s.fault != nil || from[n].state(i) == "" {
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
	return Reply{Kind: Map, All: []Reply{
		{Kind: Status, Text: "width"},
		number(int64(b.counts.Width)),
		{Kind: Status, Text: "depth"},
		number(int64(b.counts.Depth)),
		{Kind: Status, Text: "count"},
		number(b.total()),
	}}
}

// total returns the sum of all that was counted.
func (b *body) total() (sum int64) {
	b.each(func(state string) {
		if f, err := sketch.ParseFrequency(state); err == nil {
			if sum += f.Total(); sum < 0 {
				sum = math.MaxInt64
			}
		}
	})
	return sum
}
