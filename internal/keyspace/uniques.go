package keyspace

import (
	"math"

	"github.com/quipudb/quipu/internal/sketch"
)

// The commands on sketches of uniques: Redis's HyperLogLog.

const errNotUniques = "WRONGTYPE Key is not a valid HyperLogLog string value."

// uniques returns the sketch of uniques that a key holds, "" if it is absent; wrong says why it holds none.
func (s *Space) uniques(key []byte) (e *entry, wrong string) {
	b, wrong := s.body(key, sketch.KindUnique, "")
	if wrong != "" && b.e.is.Held == "" { // To Redis it is a string, but no HyperLogLog.
		wrong = errNotUniques
	}
	return b.e, wrong
}

func pfAdd(s *Space, args [][]byte) Reply {
	e, wrong := s.uniques(args[1])
	if wrong != "" {
		return failed(wrong)
	}
	asks := UniquesAsk(args[2:])
	next, changed, _, ok := sketch.Decide(nil, e.is.Held, asks)
	switch {
	case !ok:
		return failed(errNotUniques)
	case !changed:
		return number(0)
	}
	e.become(asks, string(next))
	return number(1)
}

// UniquesAsk returns the request to take items into the sketch of uniques that a key holds.
func UniquesAsk[T string | []byte](items []T) []byte {
	hashes := make([]uint64, len(items))
	for i, item := range items {
		hashes[i] = sketch.Hash(string(item))
	}
	return sketch.AppendUniqueRequest(nil, sketch.PrecisionDefault, hashes)
}

// union returns the items of all keys together; nil if no key has any.
func (s *Space) union(keys [][]byte) (u *sketch.Unique, wrong string) {
	for _, key := range keys {
		e, wrong := s.uniques(key)
		if wrong != "" {
			return nil, wrong
		}
		if e.is.Held == "" {
			continue
		}
		var err error
		if u == nil {
			u, err = sketch.TrustUnique(e.is.Held)
		} else {
			err = u.MergeTrusted(e.is.Held)
		}
		if err != nil {
			return nil, errNotUniques
		}
	}
	return u, ""
}

func pfCount(s *Space, args [][]byte) Reply {
	u, wrong := s.union(args[1:])
	switch {
	case wrong != "":
		return failed(wrong)
	case u == nil:
		return number(0)
	}
	return number(int64(math.Round(u.Estimate().Value)))
}

func pfMerge(s *Space, args [][]byte) Reply {
	u, wrong := s.union(args[1:])
	if wrong != "" {
		return failed(wrong)
	}
	asks := UniquesAsk[string](nil)
	if u != nil {
		asks = u.Append(nil)
	}
	e := s.at(args[1])
	if !e.is.Exists || string(asks) != e.is.Held {
		e.become(asks, string(asks))
	}
	return ok()
}
