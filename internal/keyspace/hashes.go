package keyspace

import (
	"math"

	"github.com/quipudb/quipu/internal/collection"
)

// The commands on hashes. They are there for scripts of libraries: see docs/redis.md.

const (
	errHashInteger = "ERR hash value is not an integer"
	errHashFloat   = "ERR hash value is not a float"
	errInfinite    = "ERR value is NaN or Infinity"
	errCollection  = "ERR a hash or a sorted set has at most 65536 bytes here: nothing has changed"
)

// collect makes a key a collection, and keeps its deadline. It returns why the collection is too large.
func (e *entry) collect(c interface {
	Len() int
	Append([]byte) []byte
},
) (wrong string) {
	if c.Len() == 0 {
		if e.is.Exists {
			e.assign(Value{}, 0)
		}
		return ""
	}
	state := c.Append(nil)
	if len(state) > collection.BytesMax {
		return errCollection
	}
	e.edit(Value{Exists: true, Held: string(state)})
	return ""
}

// hash returns the hash that a key holds, an empty one if it is absent.
func (s *Space) hash(key []byte) (e *entry, h *collection.Hash, wrong string) {
	e = s.at(key)
	if !e.is.Exists {
		return e, &collection.Hash{}, ""
	}
	h, err := collection.ParseHash(e.is.Held)
	if err != nil {
		return e, nil, errWrongType
	}
	return e, h, ""
}

// ofHash makes a command of what it does with a hash that it does not change.
func ofHash(do func(h *collection.Hash, args [][]byte) Reply) func(*Space, [][]byte) Reply {
	return func(s *Space, args [][]byte) Reply {
		_, h, wrong := s.hash(args[1])
		if wrong != "" {
			return failed(wrong)
		}
		return do(h, args)
	}
}

func hget(h *collection.Hash, args [][]byte) Reply { return fieldOf(h, args[2]) }

// fieldOf is what HGET replies.
func fieldOf(h *collection.Hash, name []byte) Reply {
	if value, has := h.Get(string(name)); has {
		return bulk(value)
	}
	return Reply{}
}

func hmget(h *collection.Hash, args [][]byte) Reply {
	r := Reply{Kind: Array}
	for _, name := range args[2:] {
		r.All = append(r.All, fieldOf(h, name))
	}
	return r
}

func hlen(h *collection.Hash, _ [][]byte) Reply { return number(int64(h.Len())) }

func hstrlen(h *collection.Hash, args [][]byte) Reply {
	value, _ := h.Get(string(args[2]))
	return number(int64(len(value)))
}

func hexists(h *collection.Hash, args [][]byte) Reply {
	_, has := h.Get(string(args[2]))
	return number(int64(b2i(has)))
}

// hall replies names, values, or both.
func hall(kind Kind, names, values bool) func(h *collection.Hash, args [][]byte) Reply {
	return func(h *collection.Hash, _ [][]byte) Reply {
		r := Reply{Kind: kind, All: []Reply{}}
		for name, value := range h.All() {
			if names {
				r.All = append(r.All, bulk(name))
			}
			if values {
				r.All = append(r.All, bulk(value))
			}
		}
		return r
	}
}

// hset is HSET, or HMSET, which does not tell how many fields are new.
func hset(tells bool) func(*Space, [][]byte) Reply {
	return func(s *Space, args [][]byte) Reply {
		if len(args)%2 != 0 {
			return wrongArity(string(args[0]))
		}
		e, h, wrong := s.hash(args[1])
		if wrong != "" {
			return failed(wrong)
		}
		fresh := int64(0)
		for i := 2; i < len(args); i += 2 {
			fresh += int64(b2i(h.Set(string(args[i]), string(args[i+1]))))
		}
		if wrong := e.collect(h); wrong != "" {
			return failed(wrong)
		}
		if !tells {
			return ok()
		}
		return number(fresh)
	}
}

func hsetNX(s *Space, args [][]byte) Reply {
	e, h, wrong := s.hash(args[1])
	if wrong != "" {
		return failed(wrong)
	}
	if _, has := h.Get(string(args[2])); has {
		return number(0)
	}
	h.Set(string(args[2]), string(args[3]))
	if wrong := e.collect(h); wrong != "" {
		return failed(wrong)
	}
	return number(1)
}

func hdel(s *Space, args [][]byte) Reply {
	e, h, wrong := s.hash(args[1])
	if wrong != "" {
		return failed(wrong)
	}
	gone := int64(0)
	for _, name := range args[2:] {
		gone += int64(b2i(h.Delete(string(name))))
	}
	if gone > 0 {
		e.collect(h) // It has become smaller.
	}
	return number(gone)
}

func hincrBy(s *Space, args [][]byte) Reply {
	by, is := Integer(args[3])
	if !is {
		return failed(errInteger)
	}
	e, h, wrong := s.hash(args[1])
	if wrong != "" {
		return failed(wrong)
	}
	n := int64(0)
	if was, has := h.Get(string(args[2])); has {
		if n, is = Integer(was); !is {
			return failed(errHashInteger)
		}
	}
	if by > 0 && n > math.MaxInt64-by || by < 0 && n < math.MinInt64-by {
		return failed(errOverflow)
	}
	h.Set(string(args[2]), Value{Exists: true, N: n + by}.String())
	if wrong := e.collect(h); wrong != "" {
		return failed(wrong)
	}
	return number(n + by)
}

func hincrByFloat(s *Space, args [][]byte) Reply {
	by, is := float(string(args[3]))
	switch {
	case !is:
		return failed(errFloat)
	case by.IsInf():
		return failed(errInfinite)
	}
	e, h, wrong := s.hash(args[1])
	if wrong != "" {
		return failed(wrong)
	}
	was, _ := float("0")
	if text, has := h.Get(string(args[2])); has {
		if was, is = float(text); !is {
			return failed(errHashFloat)
		}
	}
	text, wrong := sumOf(was, by)
	if wrong != "" {
		return failed(wrong)
	}
	h.Set(string(args[2]), text)
	if wrong := e.collect(h); wrong != "" {
		return failed(wrong)
	}
	return bulk(text)
}
