package keyspace

import (
	"math"
	"slices"

	"github.com/quipudb/quipu/internal/collection"
)

// The commands on sorted sets. They are there for scripts of libraries: see docs/redis.md.

const (
	errRange     = "ERR value is out of range, must be positive"
	errNaNScore  = "ERR resulting score is not a number (NaN)"
	errAddNXXX   = "ERR XX and NX options at the same time are not compatible"
	errAddGTLT   = "ERR GT, LT, and/or NX options at the same time are not compatible"
	errAddSingle = "ERR INCR option supports a single increment-element pair"
)

// sorted returns the sorted set that a key holds, an empty one if it is absent.
func (s *Space) sorted(key []byte) (e *entry, z *collection.Sorted, wrong string) {
	e = s.at(key)
	if !e.is.Exists {
		return e, &collection.Sorted{}, ""
	}
	z, err := collection.ParseSorted(e.is.Held)
	if err != nil {
		return e, nil, errWrongType
	}
	return e, z, ""
}

// ofSorted makes a command of what it does with a sorted set that it does not change.
func ofSorted(do func(z *collection.Sorted, args [][]byte) Reply) func(*Space, [][]byte) Reply {
	return func(s *Space, args [][]byte) Reply {
		_, z, wrong := s.sorted(args[1])
		if wrong != "" {
			return failed(wrong)
		}
		return do(z, args)
	}
}

// scored is a score as a reply.
func scored(f float64) Reply { return Reply{Kind: Double, F: f, Text: scoreText(f)} }

func scoreOf(z *collection.Sorted, name []byte) Reply {
	if score, has := z.Score(string(name)); has {
		return scored(score)
	}
	return Reply{}
}

func zscore(z *collection.Sorted, args [][]byte) Reply { return scoreOf(z, args[2]) }

func zmscore(z *collection.Sorted, args [][]byte) Reply {
	r := Reply{Kind: Array}
	for _, name := range args[2:] {
		r.All = append(r.All, scoreOf(z, name))
	}
	return r
}

func zcard(z *collection.Sorted, _ [][]byte) Reply { return number(int64(z.Len())) }

func zrank(reverse bool) func(z *collection.Sorted, args [][]byte) Reply {
	return func(z *collection.Sorted, args [][]byte) Reply {
		at, has := z.Rank(string(args[2]))
		switch {
		case !has:
			return Reply{}
		case reverse:
			at = z.Len() - 1 - at
		}
		return number(int64(at))
	}
}

// addOptions are those of ZADD.
type addOptions struct{ nx, xx, gt, lt, ch, incr bool }

// parseAdd returns them, and what follows: scores and members in turn.
func parseAdd(args [][]byte) (o addOptions, rest [][]byte, wrong string) {
	for len(args) > 0 && o.take(args[0]) {
		args = args[1:]
	}
	switch {
	case len(args) == 0 || len(args)%2 != 0:
		return o, nil, errSyntax
	case o.nx && o.xx:
		return o, nil, errAddNXXX
	case o.gt && o.nx, o.lt && o.nx, o.gt && o.lt:
		return o, nil, errAddGTLT
	case o.incr && len(args) > 2:
		return o, nil, errAddSingle
	}
	return o, args, ""
}

// take takes an option, and reports whether it is one.
func (o *addOptions) take(arg []byte) bool {
	for word, option := range map[string]*bool{"NX": &o.nx, "XX": &o.xx, "GT": &o.gt, "LT": &o.lt, "CH": &o.ch, "INCR": &o.incr} {
		if is(arg, word) {
			*option = true
			return true
		}
	}
	return false
}

func zadd(s *Space, args [][]byte) Reply {
	o, pairs, wrong := parseAdd(args[2:])
	if wrong != "" {
		return failed(wrong)
	}
	return s.zadd(args[1], o, pairs)
}

func zincrBy(s *Space, args [][]byte) Reply {
	return s.zadd(args[1], addOptions{incr: true}, args[2:])
}

func (s *Space) zadd(key []byte, o addOptions, pairs [][]byte) Reply {
	scores := make([]float64, len(pairs)/2)
	for i := range scores {
		var is bool
		if scores[i], is = score(pairs[2*i]); !is {
			return failed(errFloat)
		}
	}
	e, z, wrong := s.sorted(key)
	if wrong != "" {
		return failed(wrong)
	}
	added, updated, last := int64(0), int64(0), Reply{}
	for i, to := range scores {
		name := string(pairs[2*i+1])
		was, has := z.Score(name)
		if o.incr && has {
			to += was
		}
		switch {
		case has && o.nx, !has && o.xx:
			continue
		case math.IsNaN(to):
			return failed(errNaNScore)
		case has && (o.gt && to <= was || o.lt && to >= was):
			continue
		}
		last = scored(to)
		switch {
		case !has:
			added++
		case to != was:
			updated++
		default:
			continue
		}
		z.Set(name, to)
	}
	if added+updated > 0 {
		if wrong := e.collect(z); wrong != "" {
			return failed(wrong)
		}
	}
	switch {
	case o.incr:
		return last
	case o.ch:
		return number(added + updated)
	}
	return number(added)
}

func zrem(s *Space, args [][]byte) Reply {
	e, z, wrong := s.sorted(args[1])
	if wrong != "" {
		return failed(wrong)
	}
	gone := int64(0)
	for _, name := range args[2:] {
		gone += int64(b2i(z.Delete(string(name))))
	}
	if gone > 0 {
		e.collect(z) // It has become smaller.
	}
	return number(gone)
}

// zpop takes those of the lowest scores, or of the highest.
func zpop(highest bool) func(*Space, [][]byte) Reply {
	return func(s *Space, args [][]byte) Reply {
		n, kind := int64(1), Array
		if len(args) > 3 {
			return failed(errSyntax)
		}
		if len(args) == 3 {
			var is bool
			if n, is = Integer(args[2]); !is || n < 0 {
				return failed(errRange)
			}
			kind = Pairs
		}
		e, z, wrong := s.sorted(args[1])
		if wrong != "" {
			return failed(wrong)
		}
		some := int(min(n, int64(z.Len())))
		from := 0
		if highest {
			from = z.Len() - some
		}
		r := members(kind, z.All()[from:from+some], highest, true)
		if some > 0 {
			z.Cut(from, from+some)
			e.collect(z) // It has become smaller.
		}
		return r
	}
}

// members replies members in their order or the reverse, with their scores or without.
func members(kind Kind, some []collection.Member, reverse, scores bool) Reply {
	if some = slices.Clone(some); reverse {
		slices.Reverse(some)
	}
	r := Reply{Kind: kind, All: []Reply{}}
	for _, m := range some {
		if r.All = append(r.All, bulk(m.Name)); scores {
			r.All = append(r.All, scored(m.Score))
		}
	}
	return r
}
