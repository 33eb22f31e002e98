package main

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/quipudb/quipu/internal/load"
)

// The names of the sides.
const (
	bareLoop      = "bare"
	redisOff      = "redis-off"
	redisEverysec = "redis-everysec"
	redisAlways   = "redis-always"
	quipuSynced   = "quipu-synced"
	quipuWritten  = "quipu-written"
	postgreSQL    = "postgresql"
)

const (
	peersKeys = 1_000_000

	// manyKeys is how many keys there are to choose from when each is to be new.
	manyKeys = 1_000_000_000

	hotCase = "incr-hot"

	// zipfOne is as near to an exponent of 1 as the generator can come.
	zipfOne = 1.0001
)

// A peerCase is what is asked of the servers.
type peerCase struct {
	name    string
	title   string
	args    []string // of redis-benchmark; none if only our client can do it
	load    load.Config
	depths  []int // all if there are none
	side    bool  // asked of a few sides only, and has no chart
	created bool  // each measurement has a new server, on which it creates keys
}

func (s *session) peerCases() []peerCase {
	keys := pick(s, peersKeys, 1000)
	uniform := func(n int) []string { return []string{"-r", strconv.Itoa(n), "INCR", "key:__rand_int__"} }
	cases := []peerCase{
		{name: hotCase, title: "INCR, one hot key", args: []string{"INCR", load.KeyZero}, load: load.Config{Op: load.Incr, Dist: load.Hot}},
		{
			name: "incr-uniform", title: fmt.Sprintf("INCR, %s uniform keys", number(float64(keys))), args: uniform(keys),
			load: load.Config{Op: load.Incr, Dist: load.Uniform, Keys: int64(keys)},
		},
		{
			name: "incr-created", title: fmt.Sprintf("INCR, %s keys that are new", number(float64(keys))), args: uniform(manyKeys),
			load: load.Config{Op: load.Incr, Dist: load.Uniform, Keys: int64(keys)}, depths: []int{16, 64, 256}, side: true, created: true,
		},
	}
	for _, n := range []int{2, 10, 100, 1000} {
		cases = append(cases, peerCase{
			name: "incr-" + strconv.Itoa(n), title: fmt.Sprintf("INCR, %s keys", number(float64(n))), args: uniform(n),
			load: load.Config{Op: load.Incr, Dist: load.Uniform, Keys: int64(n)}, depths: []int{64, 256}, side: true,
		})
	}
	return append(cases,
		peerCase{
			name: "incr-zipf", title: fmt.Sprintf("INCR, %s keys, Zipf with exponent 1", number(float64(keys))),
			load:   load.Config{Op: load.Incr, Dist: load.Zipf, Exponent: zipfOne, Keys: int64(keys)},
			depths: []int{64, 256}, side: true,
		},
		peerCase{name: "get", title: "GET, one key", args: []string{"GET", load.KeyZero}, load: load.Config{Op: load.Get, Dist: load.Hot}},
	)
}

// depthsOf returns the depths of a case.
func (p *peers) depthsOf(c peerCase) []int {
	if c.depths == nil {
		return p.depths
	}
	return slices.DeleteFunc(slices.Clone(p.depths), func(d int) bool { return !slices.Contains(c.depths, d) })
}

// asked returns the sides of a case. How a server persists does not matter to
// reads: one of each does.
func (p *peers) asked(c peerCase) []*peer {
	seen := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(p.sides), func(to *peer) bool {
		again := seen[to.program]
		seen[to.program] = true
		return c.load.Op == load.Get && again || c.side && !samePromise(to)
	})
}

// samePromise reports whether a side promises what Quipu does.
func samePromise(to *peer) bool {
	return to.name == bareLoop || to.name == redisAlways || to.name == quipuSynced
}

// besides reports whether our client measures too. What only it can measure is
// compared with that.
func (p *peers) besides(c peerCase, depth int, to *peer) bool {
	return c.name == hotCase && depth != 16 && samePromise(to)
}
