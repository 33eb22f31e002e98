package script

import (
	"math"

	lua "github.com/yuin/gopher-lua"
)

// math makes the table by that name. Its functions are C's.
func (r *run) math() *lua.LTable {
	one := func(f func(float64) float64) function {
		return func(p params) int { return p.giveNumber(f(p.number(1))) }
	}
	two := func(f func(a, b float64) float64) function {
		return func(p params) int { return p.giveNumber(f(p.number(1), p.number(2))) }
	}
	best := func(better func(a, b float64) bool) function {
		return func(p params) int {
			n := p.number(1)
			for i := 2; i <= p.GetTop(); i++ {
				if f := p.number(i); better(f, n) {
					n = f
				}
			}
			return p.giveNumber(n)
		}
	}
	t := r.library(map[string]function{
		"abs": one(math.Abs), "acos": one(math.Acos), "asin": one(math.Asin), "atan": one(math.Atan), "ceil": one(math.Ceil),
		"cos": one(math.Cos), "cosh": one(math.Cosh), "exp": one(math.Exp), "floor": one(math.Floor), "log": one(math.Log),
		"log10": one(math.Log10), "sin": one(math.Sin), "sinh": one(math.Sinh), "sqrt": one(math.Sqrt), "tan": one(math.Tan), "tanh": one(math.Tanh),
		"deg":   one(func(f float64) float64 { return f / (math.Pi / 180) }),
		"rad":   one(func(f float64) float64 { return f * (math.Pi / 180) }),
		"atan2": two(math.Atan2), "pow": two(math.Pow), "fmod": two(math.Mod), "mod": two(math.Mod),
		"ldexp": func(p params) int { return p.giveNumber(math.Ldexp(p.number(1), p.int(2))) },
		"frexp": func(p params) int {
			f, e := math.Frexp(p.number(1))
			return p.give(lua.LNumber(f), lua.LNumber(e))
		},
		"modf": func(p params) int {
			f := p.number(1)
			if math.IsInf(f, 0) {
				return p.give(lua.LNumber(f), lua.LNumber(0))
			}
			whole, part := math.Modf(f)
			return p.give(lua.LNumber(whole), lua.LNumber(part))
		},
		"max":        best(func(a, b float64) bool { return a > b }),
		"min":        best(func(a, b float64) bool { return a < b }),
		"random":     mathRandom,
		"randomseed": func(p params) int { p.r.random.seed(int32(p.int(1))); return 0 }, //nolint:gosec // it is within
	})
	t.RawSetString("pi", lua.LNumber(math.Pi))
	t.RawSetString("huge", lua.LNumber(math.Inf(1)))
	return t
}

// random is lrand48 of Redis's, so that scripts draw the same numbers.
type random struct{ x uint64 }

func (r *random) seed(n int32) { r.x = uint64(uint32(n))<<16 | 0x330e } //nolint:gosec // its bits

func (r *random) next() int64 {
	r.x = (r.x*0x5deece66d + 0xb) & (1<<48 - 1)
	return int64(r.x >> 17) //nolint:gosec // 31 bits
}

func mathRandom(p params) int {
	f := float64(p.r.random.next()%math.MaxInt32) / math.MaxInt32
	low, high := 1, 1
	switch p.GetTop() {
	case 0:
		return p.giveNumber(f)
	case 1:
		if high = p.int(1); high < 1 {
			p.wrong(1, "interval is empty")
		}
	case 2:
		if low, high = p.int(1), p.int(2); low > high {
			p.wrong(2, "interval is empty")
		}
	default:
		p.RaiseError("wrong number of arguments")
	}
	return p.giveNumber(math.Floor(f*float64(high-low+1)) + float64(low))
}
