package keyspace

import (
	"math"
	"sort"
	"strconv"
	"strings"

	"github.com/quipudb/quipu/internal/collection"
)

// Ranges of sorted sets, by rank and by score.

const (
	errBounds       = "ERR min or max is not a float"
	errLimitByRank  = "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX"
	errByName       = "ERR BYLEX is not supported here"
	floatTextMax    = 4 << 10
	scoreDigits     = 17
	spacesBefore    = " \t\n\v\f\r"
	mantissaNonzero = "123456789"
)

// scoreText writes a score as Redis 7.0 does: as C's %.17g.
func scoreText(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case f == math.Trunc(f) && math.Abs(f) < 1e15 && (f != 0 || !math.Signbit(f)):
		return strconv.FormatInt(int64(f), 10)
	}
	return strconv.FormatFloat(f, 'g', scoreDigits, 64)
}

// toDouble returns the number that text is, as C's strtod reads it; vast says that it is beyond what a double can
// tell from infinity or from 0.
func toDouble(text string) (f float64, vast, ok bool) {
	if len(text) > floatTextMax || strings.ContainsRune(text, '_') {
		return 0, false, false
	}
	lower := strings.ToLower(text)
	hex := strings.HasPrefix(strings.TrimLeft(lower, "+-"), "0x")
	if hex && !strings.ContainsRune(lower, 'p') {
		lower += "p0"
	}
	f, err := strconv.ParseFloat(lower, 64)
	if err != nil {
		return f, math.IsInf(f, 0), math.IsInf(f, 0)
	}
	mantissa, _, _ := strings.Cut(lower, "e")
	return f, f == 0 && !hex && strings.ContainsAny(mantissa, mantissaNonzero), !math.IsNaN(f)
}

// score returns the score that an argument is.
func score(arg []byte) (float64, bool) {
	f, vast, ok := toDouble(string(arg))
	return f, ok && !vast
}

// An interval is of scores.
type interval struct {
	min, max         float64
	minOpen, maxOpen bool
}

func parseInterval(from, to []byte) (r interval, wrong string) {
	var ok1, ok2 bool
	r.min, r.minOpen, ok1 = parseBound(string(from))
	if r.max, r.maxOpen, ok2 = parseBound(string(to)); !ok1 || !ok2 {
		return r, errBounds
	}
	return r, ""
}

// parseBound returns a bound, and whether it is no part of its interval. To C no text is 0.
func parseBound(text string) (f float64, open, ok bool) {
	text, open = strings.CutPrefix(text, "(")
	if text == "" {
		return 0, open, true
	}
	f, _, ok = toDouble(strings.TrimLeft(text, spacesBefore))
	return f, open, ok
}

// of returns from which rank to which, without it, a set is in the interval.
func (r interval) of(z *collection.Sorted) (from, to int) {
	all := z.All()
	from = sort.Search(len(all), func(i int) bool { return all[i].Score > r.min || !r.minOpen && all[i].Score == r.min })
	to = sort.Search(len(all), func(i int) bool { return all[i].Score > r.max || r.maxOpen && all[i].Score == r.max })
	return from, max(from, to)
}

// ranks returns from which rank to which, without it, indexes mean of a set, of which those below 0 count from its end.
func ranks(z *collection.Sorted, from, to int64) (int, int) {
	n := int64(z.Len())
	if from < 0 {
		from = max(from+n, 0)
	}
	if to < 0 {
		to += n
	}
	to = min(to, n-1)
	if from > to {
		return 0, 0
	}
	return int(from), int(to) + 1
}

// rangeOptions are those of ZRANGE and its kin.
type rangeOptions struct {
	scores, reverse, byScore bool

	offset, limit int64 // of those in the interval
	limited       bool
}

// zrange returns a command that starts with some options, to which callers may add: all if that is ZRANGE itself.
func zrange(o rangeOptions, all bool) func(*Space, [][]byte) Reply {
	return func(s *Space, args [][]byte) Reply {
		o := o
		if wrong := o.parse(args[4:], all); wrong != "" {
			return failed(wrong)
		}
		from, to := args[2], args[3]
		if o.byScore && o.reverse {
			from, to = to, from
		}
		if o.byScore {
			in, wrong := parseInterval(from, to)
			if wrong != "" {
				return failed(wrong)
			}
			return s.rangeOf(args[1], o, func(z *collection.Sorted) (int, int) { return o.clip(in.of(z)) })
		}
		first, ok1 := Integer(from)
		last, ok2 := Integer(to)
		if !ok1 || !ok2 {
			return failed(errInteger)
		}
		return s.rangeOf(args[1], o, func(z *collection.Sorted) (int, int) {
			a, b := ranks(z, first, last)
			if o.reverse {
				a, b = z.Len()-b, z.Len()-a
			}
			return a, b
		})
	}
}

func (o *rangeOptions) parse(args [][]byte, all bool) (wrong string) {
	for i := 0; i < len(args); i++ {
		switch {
		case is(args[i], "WITHSCORES"):
			o.scores = true
		case is(args[i], "LIMIT") && i+2 < len(args):
			var ok1, ok2 bool
			o.offset, ok1 = Integer(args[i+1])
			if o.limit, ok2 = Integer(args[i+2]); !ok1 || !ok2 {
				return errInteger
			}
			o.limited = true
			i += 2
		case all && !o.reverse && is(args[i], "REV"):
			o.reverse = true
		case all && !o.byScore && is(args[i], "BYSCORE"):
			o.byScore = true
		case all && is(args[i], "BYLEX"):
			return errByName
		default:
			return errSyntax
		}
	}
	if o.limited && o.limit != -1 && !o.byScore {
		return errLimitByRank
	}
	return ""
}

// clip takes the limit into account.
func (o *rangeOptions) clip(from, to int) (int, int) {
	if !o.limited {
		return from, to
	}
	n := int64(to - from)
	skip := o.offset
	if skip < 0 || skip > n {
		skip = n
	}
	some := n - skip
	if o.limit >= 0 {
		some = min(some, o.limit)
	}
	if o.reverse {
		return to - int(skip+some), to - int(skip)
	}
	return from + int(skip), from + int(skip+some)
}

// rangeOf replies the members of a key that are in a range.
func (s *Space) rangeOf(key []byte, o rangeOptions, in func(z *collection.Sorted) (from, to int)) Reply {
	_, z, wrong := s.sorted(key)
	if wrong != "" {
		return failed(wrong)
	}
	from, to := in(z)
	kind := Array
	if o.scores {
		kind = Pairs
	}
	return members(kind, z.All()[from:to], o.reverse, o.scores)
}

func zcount(s *Space, args [][]byte) Reply {
	in, wrong := parseInterval(args[2], args[3])
	if wrong != "" {
		return failed(wrong)
	}
	_, z, wrong := s.sorted(args[1])
	if wrong != "" {
		return failed(wrong)
	}
	from, to := in.of(z)
	return number(int64(to - from))
}

func zremByScore(s *Space, args [][]byte) Reply {
	in, wrong := parseInterval(args[2], args[3])
	if wrong != "" {
		return failed(wrong)
	}
	return s.zcut(args[1], in.of)
}

func zremByRank(s *Space, args [][]byte) Reply {
	first, ok1 := Integer(args[2])
	last, ok2 := Integer(args[3])
	if !ok1 || !ok2 {
		return failed(errInteger)
	}
	return s.zcut(args[1], func(z *collection.Sorted) (int, int) { return ranks(z, first, last) })
}

// zcut takes the members of a key away that are in a range.
func (s *Space) zcut(key []byte, in func(z *collection.Sorted) (from, to int)) Reply {
	e, z, wrong := s.sorted(key)
	if wrong != "" {
		return failed(wrong)
	}
	from, to := in(z)
	if from < to {
		z.Cut(from, to)
		e.collect(z) // It has become smaller.
	}
	return number(int64(to - from))
}
