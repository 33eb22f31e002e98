package keyspace

import (
	"bytes"
	"math"
	"math/big"
	"strings"
)

func is(arg []byte, word string) bool { return bytes.EqualFold(arg, []byte(word)) }

func isUnit(a []byte) bool { return is(a, "EX") || is(a, "PX") || is(a, "EXAT") || is(a, "PXAT") }

// An end is when a key ends: at a moment, or a lifetime from now.
type end struct{ ms, lives int64 }

// setOptions are what follows the value of a SET.
type setOptions struct {
	nx, xx, get, keep bool
	ends              end
}

func parseSet(options [][]byte) (o setOptions, wrong string) {
	var unit, value []byte
	for i := 0; i < len(options); i++ {
		switch a := options[i]; {
		case is(a, "NX") && !o.xx:
			o.nx = true
		case is(a, "XX") && !o.nx:
			o.xx = true
		case is(a, "GET"):
			o.get = true
		case is(a, "KEEPTTL") && unit == nil:
			o.keep = true
		case isUnit(a) && !o.keep && i+1 < len(options) && (unit == nil || bytes.EqualFold(unit, a)):
			unit, value = a, options[i+1]
			i++
		default:
			return o, errSyntax
		}
	}
	if unit != nil {
		o.ends, wrong = parseEnd(unit, value, "set")
	}
	return o, wrong
}

// getExOptions are those of GETEX. Its time is looked at when the key exists.
type getExOptions struct {
	unit, value []byte
	persist     bool
}

func parseGetEx(options [][]byte) (o getExOptions, wrong string) {
	for i := 0; i < len(options); i++ {
		switch a := options[i]; {
		case is(a, "PERSIST") && o.unit == nil:
			o.persist = true
		case isUnit(a) && !o.persist && i+1 < len(options) && (o.unit == nil || bytes.EqualFold(o.unit, a)):
			o.unit, o.value = a, options[i+1]
			i++
		default:
			return o, errSyntax
		}
	}
	return o, ""
}

func badExpiry(name string) string { return "ERR invalid expire time in '" + name + "' command" }

// parseEnd returns the end that a unit and a positive number mean.
func parseEnd(unit, value []byte, name string) (end, string) {
	n, whole := Integer(value)
	if !whole {
		return end{}, errInteger
	}
	seconds := is(unit, "EX") || is(unit, "EXAT")
	if n <= 0 || seconds && n > math.MaxInt64/1000 {
		return end{}, badExpiry(name)
	}
	if seconds {
		n *= 1000
	}
	if is(unit, "EXAT") || is(unit, "PXAT") {
		return end{ms: n}, ""
	}
	if n > lifeMax {
		return end{}, badExpiry(name)
	}
	return end{lives: n}, ""
}

// lifeMax is about how long anything may live: until the last millisecond there is.
const lifeMax = math.MaxInt64 - 1<<42

// expireOptions are the conditions of EXPIRE and its kin.
type expireOptions struct{ nx, xx, gt, lt bool }

func parseExpire(options [][]byte) (o expireOptions, wrong string) {
	for _, a := range options {
		switch {
		case is(a, "NX"):
			o.nx = true
		case is(a, "XX"):
			o.xx = true
		case is(a, "GT"):
			o.gt = true
		case is(a, "LT"):
			o.lt = true
		default:
			return o, "ERR Unsupported option " + string(a[:min(len(a), 128)])
		}
	}
	switch {
	case o.nx && (o.xx || o.gt || o.lt):
		return o, "ERR NX and XX, GT or LT options at the same time are not compatible"
	case o.gt && o.lt:
		return o, "ERR GT and LT options at the same time are not compatible"
	}
	return o, ""
}

// met reports whether a key that has a deadline, 0 for none, may get another one.
func (o *expireOptions) met(has, ms int64) bool {
	switch {
	case o.nx && has != 0, o.xx && has == 0, o.gt && (has == 0 || ms <= has), o.lt && has != 0 && ms >= has:
		return false
	}
	return true
}

func expire(unitMS int64, absolute bool, name string) func(*Space, [][]byte) Reply {
	return func(s *Space, args [][]byte) Reply {
		o, wrong := parseExpire(args[3:])
		if wrong != "" {
			return failed(wrong)
		}
		at, whole := Integer(args[2])
		if !whole {
			return failed(errInteger)
		}
		if at > math.MaxInt64/unitMS || at < math.MinInt64/unitMS || !absolute && at*unitMS > lifeMax {
			return failed(badExpiry(name))
		}
		to := end{ms: at * unitMS}
		ms := to.ms
		if !absolute {
			ms = s.deadline(to.ms)
			if to = (end{lives: to.ms}); at <= 0 {
				to = end{ms: 1}
			}
		}
		e := s.at(args[1])
		if !e.is.Exists || !o.met(e.is.DeadlineMS, ms) {
			return number(0)
		}
		s.until(e, to)
		return number(1)
	}
}

func persist(s *Space, args [][]byte) Reply {
	e := s.at(args[1])
	if e.is.DeadlineMS == 0 {
		return number(0)
	}
	e.age(0, 0)
	return number(1)
}

func ttl(unitMS int64, absolute bool) func(*Space, [][]byte) Reply {
	return func(s *Space, args [][]byte) Reply {
		e := s.at(args[1])
		switch ms := e.is.DeadlineMS; {
		case !e.is.Exists:
			return number(-2)
		case ms == 0:
			return number(-1)
		default:
			if !absolute {
				ms = max(ms-s.now, 0)
			}
			if unitMS > 1 {
				ms = ms/unitMS + (ms%unitMS+unitMS/2)/unitMS
			}
			return number(ms)
		}
	}
}

// floatBits is the precision of the numbers that Redis adds, on the machines that it is
// mostly built for: those of an x87.
const floatBits = 64

// floatCharsMax is how long a number may not be: longer ones are none.
const floatCharsMax = 5 << 10

// float returns the number that text is. Infinite numbers are some.
func float(text string) (*big.Float, bool) {
	if text == "" || len(text) >= floatCharsMax || strings.ContainsAny(text, "_xXpPbBoO") {
		return nil, false
	}
	switch strings.ToLower(strings.TrimLeft(text, "+-")) {
	case "inf", "infinity":
		if len(text)-len(strings.TrimLeft(text, "+-")) > 1 {
			return nil, false
		}
		return new(big.Float).SetInf(text[0] == '-'), true
	}
	n, _, err := big.ParseFloat(text, 10, floatBits, big.ToNearestEven)
	// A long double has 15 bits for its exponent.
	if err != nil || n.MantExp(nil) > 1<<14 || n.Sign() != 0 && n.MantExp(nil) < -(1<<14) {
		return nil, false
	}
	return n, true
}

func plusFloat(e *entry, args [][]byte) Reply {
	was := new(big.Float).SetPrec(floatBits)
	if e.is.Exists {
		n, is := float(e.is.String())
		if !is {
			return failed(errFloat)
		}
		was = n
	}
	by, is := float(string(args[2]))
	if !is {
		return failed(errFloat)
	}
	text, wrong := sumOf(was, by)
	if wrong != "" {
		return failed(wrong)
	}
	e.edit(textValue(text))
	return bulk(text)
}

// sumOf returns how Redis writes the sum of two numbers.
func sumOf(a, b *big.Float) (text, wrong string) {
	if a.IsInf() || b.IsInf() {
		return "", errNaN
	}
	sum := new(big.Float).SetPrec(floatBits).Add(a, b)
	if sum.MantExp(nil) > 1<<14 {
		return "", errNaN
	}
	text = sum.Text('f', 17)
	if text = strings.TrimRight(strings.TrimRight(text, "0"), "."); text == "-0" {
		text = "0"
	}
	return text, ""
}
