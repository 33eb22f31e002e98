package spread_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/quipudb/quipu/internal/hot"
	"github.com/quipudb/quipu/internal/spread"
	"github.com/quipudb/quipu/store"
)

// seater is a server whose definitions lay the users of each counter over so many shards.
func seater(t testing.TB, under store.Store, shards int) *spread.Store {
	t.Helper()
	assign := &store.Event{Riders: []store.Rider{{Part: generation, Op: store.OpAdd, N: 1}}}
	s := spread.New(under, spread.Options{
		Policy:  func(store.Cell) spread.Policy { return lazy },
		Every:   never,
		Book:    func(store.Cell) (int64, *store.Event) { return 0, &store.Event{} },
		Members: func(store.Cell) spread.Members { return spread.Members{Shards: shards, May: true, Assign: assign} },
	})
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// generation is the part that has it, and members has how many users have a choice: as
// package view has them.
var generation = store.PartFields{Kind: store.PartGeneration}.Part()

func members(gen, choice int64) store.Part {
	return store.PartFields{Kind: store.PartMembers, Position: gen<<16 | choice}.Part()
}

// refusedSame is the rider that refuses a reaction which would change nothing.
const refusedSame = 2

// likes is a reaction of a user under a generation of members; choice 0 takes it back.
func likes(c store.Cell, user string, choice, gen int64) store.Delta {
	had, same := store.Met{Kind: store.MetNot}, store.Met{Kind: store.MetEqual, N: choice}
	riders := []store.Rider{
		{Part: generation, Op: store.OpGet, Is: store.Met{Kind: store.MetEqual, N: gen}},
		{Part: generation, Op: store.OpGet, Is: store.Met{Kind: store.MetEqual, N: -1}, When: same},
		{Part: members(gen, 0), Place: store.PlaceMet, Op: store.OpAdd, N: -1, When: had},
	}
	if choice != 0 {
		riders = append(riders, store.Rider{Part: members(gen, choice), Op: store.OpAdd, N: 1}, store.Rider{Op: store.OpAdd, N: 1, When: store.Met{Kind: store.MetEqual}})
	} else {
		riders = append(riders, store.Rider{Op: store.OpAdd, N: -1, When: had})
	}
	d := store.Delta{Cell: c, Op: store.OpSet, N: choice, Want: true, Event: &store.Event{Part: store.PartFields{Kind: store.PartMember, Position: gen, Name: user}.Part(), Riders: riders}}
	if choice == 0 {
		d.Op = store.OpDelete
	}
	return d
}

// empties takes all users away.
func empties(c store.Cell, op store.Op) store.Delta {
	return store.Delta{Cell: c, Op: op, Want: true, Event: &store.Event{Riders: []store.Rider{{Part: generation, Op: store.OpAdd, N: 1}}}}
}

// react makes a reaction as a server does, and reports whether the user has the choice now.
func react(ctx context.Context, s *spread.Store, c store.Cell, user string, choice int64) error {
	for {
		gen, err := s.Generation(ctx, c, true)
		if err != nil {
			return err
		}
		r, err := do(ctx, s, likes(c, user, choice, gen))
		switch {
		case err == nil, r.Outcome == store.Unmet && r.Refused == refusedSame:
			return nil
		case r.Outcome != store.Unmet:
			return err
		}
	}
}

func mustReact(t testing.TB, s *spread.Store, c store.Cell, users ...string) {
	t.Helper()
	for _, user := range users {
		if err := react(t.Context(), s, c, user, 1); err != nil {
			t.Fatalf("%s reacts: %v", user, err)
		}
	}
}

// among returns a user of each seat, in the order of seats.
func among(shards int, prefix string) []string {
	users := make([]string, shards)
	for i, left := 0, shards; left > 0; i++ {
		user := fmt.Sprint(prefix, i)
		if at := hot.Seat(user, shards); users[at] == "" {
			users[at], left = user, left-1
		}
	}
	return users
}

func TestSeatsTakeAllUsers(t *testing.T) {
	const shards = 5
	each(t, func(t *testing.T, under *shared) {
		a, b, c := seater(t, under, shards), seater(t, under, shards), cell("post")
		users := among(shards, "u")
		mustReact(t, a, c, users...)
		holds(t, b, c, shards, shards)
		// A server that knows nothing of it is told by the home.
		old := server(t, under, lazy)
		holds(t, old, c, shards, shards)
		if r := mustDo(t, old, likes(c, users[2], 2, 0)); r.Before != 1 || r.Shard == 0 {
			t.Fatalf("switched: %+v", r)
		}
		for i := range shards {
			if v := read(t, under, store.ShardCell(c, store.SplitMax+1+i)); v.N != 1 {
				t.Fatalf("seat %d has %+v", i, v)
			}
		}
		if v := read(t, under, c); v.N != 0 {
			t.Fatalf("home has %+v", v)
		}
	})
}

func TestSeatsRefuseWhatNeedsTheWhole(t *testing.T) {
	each(t, func(t *testing.T, under *shared) {
		a, c := seater(t, under, 3), cell("post")
		mustReact(t, a, c, among(3, "u")...)
		for _, s := range []*spread.Store{a, server(t, under, lazy)} {
			for _, d := range []store.Delta{want(add(c, 1)), {Cell: c, Op: store.OpSet, N: 7}, {Cell: c, Op: store.OpDelete}, {Cell: c, Op: store.OpExpire, Expiry: store.ExpirySet, DeadlineMS: 1}} {
				if r, err := do(t.Context(), s, d); !errors.Is(err, store.ErrUnsupported) {
					t.Fatalf("%+v: %+v, %v", d, r, err)
				}
			}
			if r := mustDo(t, s, want(store.Delta{Cell: c, Op: store.OpGet})); r.After != 3 || !r.Existed {
				t.Fatalf("get: %+v", r)
			}
			at := empties(c, store.OpDelete)
			at.Guard = store.Guard{Match: true, Version: read(t, under, c).Version} // of home, and not of the sum
			if _, err := do(t.Context(), s, at); !errors.Is(err, store.ErrChanged) {
				t.Fatalf("at a version: %v", err)
			}
			home := store.PartitionOf(c, under.Traits().Partitions)
			together := store.Batch{Partition: home, Deltas: []store.Delta{empties(c, store.OpSet), empties(c, store.OpSet)}}
			replies := make([]store.Reply, 1)
			if err := s.Apply(t.Context(), []store.Batch{together}, replies); err != nil || !errors.Is(replies[0].Err, store.ErrUnsupported) {
				t.Fatalf("together: %v, %+v", err, replies)
			}
			holds(t, s, c, 3, 3)
		}
	})
}

func TestSeatsSettledByTheFirst(t *testing.T) {
	each(t, func(t *testing.T, under *shared) {
		few, many, c := seater(t, under, 3), seater(t, under, 7), cell("post")
		mustReact(t, few, c, "ana")
		mustReact(t, many, c, among(7, "u")...)
		holds(t, many, c, 8, 3)
		one := cell("one")
		mustReact(t, seater(t, under, 1), one, "ana")
		mustReact(t, many, one, "bob")
		holds(t, few, one, 2, 1)
	})
}

func TestSeatsAreCleared(t *testing.T) {
	const shards = 3
	each(t, func(t *testing.T, under *shared) {
		s, c := seater(t, under, shards), cell("post")
		open := hot.Open(7)
		mustDo(t, under, lay(store.ShardCell(c, store.SplitMax+1), 0, open)) // what a split has left, that home has long taken in
		left := add(store.ShardCell(c, store.SplitMax+1), 3)
		left.Guard = store.Guard{Laid: true, Layout: int64(open)}
		mustDo(t, under, left)
		mustReact(t, s, c, "ana", "bob")
		holds(t, s, c, 2, shards)
		for i := range shards { // a server that has rested while it split the counter
			mustDo(t, under, lay(store.ShardCell(c, store.SplitMax+1+i), 0, open))
		}
		mustReact(t, s, c, among(shards, "u")...)
		holds(t, s, c, 2+shards, shards)
	})
}

// TestSeatsRaces has another server do something just before a call is applied.
func TestSeatsRaces(t *testing.T) {
	const shards = 3
	first := func(under *shared, when func(d store.Delta) bool, do func()) {
		under.fails(func(batches []store.Batch) error {
			for _, b := range batches {
				if slices.ContainsFunc(b.Deltas, when) {
					under.fails(nil, nil)
					do()
					return nil
				}
			}
			return nil
		}, nil)
	}
	each(t, func(t *testing.T, under *shared) {
		a, b, c := seater(t, under, shards), seater(t, under, shards), cell("post")
		single := seater(t, under, 1)
		first(under, func(d store.Delta) bool { return hot.Word(d.N).Seated() > 0 && d.Op == store.OpLayout }, func() { mustReact(t, single, c, "ana") })
		mustReact(t, a, c, "bob")
		holds(t, b, c, 2, 1) // ana was there before there were seats

		c = cell("reset")
		users := among(shards, "u")
		mustReact(t, a, c, users...)
		isRaise := func(d store.Delta) bool {
			_, _, ok := store.ShardOf(d.Cell)
			return ok && d.Event != nil && d.Event.Part == ""
		}
		first(under, isRaise, func() { mustReact(t, b, c, users...) })
		mustDo(t, a, empties(c, store.OpDelete))
		agree(t, under, c, shards)
		holds(t, a, c, shards, shards) // b's users came after the reset that b has ended
		if r := mustDo(t, a, empties(c, store.OpDelete)); r.Before != shards || !r.Existed || r.After != 0 {
			t.Fatalf("%+v", r)
		}
		agree(t, under, c, shards) // and nobody has read it
	})
}

func lay(c store.Cell, now, then hot.Word) store.Delta {
	return store.Delta{Cell: c, Op: store.OpLayout, N: int64(then), Guard: store.Guard{Laid: true, Layout: int64(now)}}
}

// TestResetsAreEnded has the server that resets a counter die after each of its steps. All
// that comes later finds it done, or does it.
func TestResetsAreEnded(t *testing.T) {
	const shards = 4
	begun := map[int64]int{}
	for _, op := range []store.Op{store.OpSet, store.OpDelete} {
		for dies := range shards + 4 {
			for _, next := range []string{"read", "react", "empty"} {
				under := newShared(16)
				dead, lives, c := seater(t, under, shards), seater(t, under, shards), cell("post")
				mustReact(t, dead, c, among(shards, "u")...)
				if _, err := lives.Generation(t.Context(), c, true); err != nil {
					t.Fatal(err)
				}
				left := dies // batches that are applied yet
				under.fails(func(batches []store.Batch) error {
					if left -= len(batches); left >= 0 {
						return nil
					}
					some := batches[:max(0, left+len(batches))]
					left = 0
					if err := under.Store.Apply(t.Context(), some, make([]store.Reply, len(some))); err != nil {
						t.Error(err)
					}
					return store.ErrUnavailable
				}, nil)
				whole, err := do(t.Context(), dead, empties(c, op))
				under.fails(nil, nil)
				told := fmt.Sprintf("%v, dead after %d steps (%+v, %v), then %s", op, dies, whole, err, next)
				var gen [1]store.Content
				if err := under.ReadParts(t.Context(), []store.PartCell{{Cell: c, Part: generation}}, gen[:]); err != nil {
					t.Fatal(err)
				}
				if begun[gen[0].N]++; gen[0].N == 0 {
					holds(t, lives, c, shards, shards)
					continue
				}
				switch next {
				case "read":
					if v := read(t, lives, c); v.N != 0 || v.Exists != (op == store.OpSet) {
						t.Fatalf("%s: %+v", told, v)
					}
				case "react":
					first := among(shards, "v")
					for i, user := range first {
						mustReact(t, lives, c, user)
						if i == 0 { // What is made under the old generation is no more taken anywhere.
							for _, late := range among(shards, "late") {
								if r, err := do(t.Context(), dead, likes(c, late, 1, 0)); r.Outcome != store.Unmet {
									t.Fatalf("%s: late: %+v, %v", told, r, err)
								}
							}
						}
					}
					holds(t, lives, c, shards, shards)
				case "empty":
					mustDo(t, lives, empties(c, store.OpDelete))
					if v := read(t, lives, c); v.N != 0 || v.Exists {
						t.Fatalf("%s: %+v", told, v)
					}
				}
				agree(t, under, c, shards)
			}
		}
	}
	if begun[0] == 0 || begun[1] <= 2*3*shards {
		t.Fatalf("resets by how far they came: %v", begun)
	}
}

// agree checks that all seats are at one generation, and that each counts the users that it
// has.
func agree(t testing.TB, under store.Store, c store.Cell, shards int) {
	t.Helper()
	for i := range shards {
		seat := store.ShardCell(c, store.SplitMax+1+i)
		var is [2]store.Content
		if err := under.ReadParts(t.Context(), []store.PartCell{{Cell: c, Part: generation}, {Cell: seat, Part: generation}}, is[:]); err != nil {
			t.Fatal(err)
		}
		gen := is[0].N
		if is[1].N != gen {
			t.Fatalf("home is at generation %d, seat %d at %d", gen, i, is[1].N)
		}
		found, err := under.ScanParts(t.Context(), store.RowsOf(seat,
			store.PartFields{Kind: store.PartMember, Position: gen}, store.PartFields{Kind: store.PartMember, Position: gen + 1}), store.ScanMax)
		if err != nil {
			t.Fatal(err)
		}
		counts := [3]int64{}
		for _, p := range found {
			counts[p.Content.N]++
		}
		sum := counts[1] + counts[2]
		for choice := int64(1); choice <= 2; choice++ {
			if err := under.ReadParts(t.Context(), []store.PartCell{{Cell: seat, Part: members(gen, choice)}}, is[:1]); err != nil || is[0].N != counts[choice] {
				t.Fatalf("seat %d counts %d users with choice %d, and has %d: %v", i, is[0].N, choice, counts[choice], err)
			}
		}
		if v := read(t, under, seat); v.N != sum {
			t.Fatalf("seat %d is %d, and has %d users", i, v.N, sum)
		}
	}
}

// TestSeatsRandom has servers react, reset, delete and read one counter, and lose calls and
// replies. What users have is what their last reaction was, or was before it if nobody
// knows; counts and users agree.
func TestSeatsRandom(t *testing.T) {
	rng := chance(t)
	for round := range 150 {
		shards, partitions := 2+rng.IntN(6), 1+rng.IntN(2)*rng.IntN(12)
		under := newShared(partitions)
		servers := []*spread.Store{seater(t, under, shards), seater(t, under, shards), seater(t, under, shards)}
		c, m := cell("post"), map[string][]int64{} // by user: what may be chosen
		for range 60 {
			s := servers[rng.IntN(len(servers))]
			loses(under, rng)
			switch rng.IntN(8) {
			case 0:
				op := []store.Op{store.OpSet, store.OpDelete}[rng.IntN(2)]
				_, err := do(t.Context(), s, empties(c, op))
				for user, may := range m {
					if err == nil {
						may = nil
					}
					if m[user] = append(may, 0); err == nil {
						delete(m, user)
					}
				}
				if err != nil { // Whoever looks next ends it, if it was begun.
					under.fails(nil, nil)
					empty := read(t, servers[rng.IntN(len(servers))], c).N == 0
					for user := range m {
						if empty {
							delete(m, user)
						} else {
							m[user] = m[user][:len(m[user])-1]
						}
					}
				}
			case 1:
				under.fails(nil, nil)
				within(t, read(t, s, c), m)
			default:
				user, choice := fmt.Sprint("u", rng.IntN(12)), int64(rng.IntN(3))
				if err := react(t.Context(), s, c, user, choice); err == nil {
					m[user] = []int64{choice}
				} else if may := m[user]; may == nil {
					m[user] = []int64{0, choice}
				} else {
					m[user] = append(slices.Clone(may), choice)
				}
			}
		}
		under.fails(nil, nil)
		within(t, read(t, servers[0], c), m)
		if hot.Word(read(t, under, c).Layout).Seated() == shards {
			agree(t, under, c, shards)
		}
		if t.Failed() {
			t.Fatalf("round %d: %d shards, %d partitions", round, shards, partitions)
		}
	}
}

// loses makes some of the calls that follow fail, before or after they are applied.
func loses(under *shared, rng *rand.Rand) {
	fails := func(err error) func([]store.Batch) error {
		return func([]store.Batch) error {
			if rng.IntN(12) == 0 {
				return err
			}
			return nil
		}
	}
	under.fails(fails(store.ErrUnavailable), fails(store.ErrUnknown))
}

// within checks that a counter may be what it is.
func within(t testing.TB, v store.Value, m map[string][]int64) {
	t.Helper()
	low, high := int64(0), int64(0)
	for _, may := range m {
		least, most := int64(1), int64(0)
		for _, choice := range may {
			least, most = min(least, choice), max(most, min(choice, 1))
		}
		low, high = low+least, high+most
	}
	if v.N < low || v.N > high {
		t.Fatalf("%+v, want between %d and %d: %v", v, low, high, m)
	}
}
