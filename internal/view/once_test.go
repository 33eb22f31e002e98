package view_test

import (
	"fmt"
	"testing"

	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/sketch"
	"github.com/quipudb/quipu/store"
)

// Users are remembered by name, or in a filter that is as large as the definition asks.
func TestOnceFilter(t *testing.T) {
	once := definition.Once{Every: window("1h", "", 0).Every}
	f := func(want store.PartKind, o definition.Once) *store.Rider {
		t.Helper()
		v := viewsOf(t, definition.Definition{Once: o})
		r, has, err := v.Once(noon, noon, "ana")
		if err != nil || !has || r.Part.Kind() != want || v.OnceError() > 0 != (want != store.PartOnce) || v.OnceError() > float64(o.Approximate)/1e6 {
			t.Errorf("%s: %x, %v, an error of %v", o, r.Part, err, v.OnceError())
		}
		floors := v.Floors("n", noon)
		if len(floors) != 1 || floors[0].Kind != want {
			t.Errorf("%s: floors %+v", o, floors)
		}
		return &r
	}
	f(store.PartOnce, once)
	for _, approximate := range []definition.Percent{definition.OnceErrorMin, 1000, definition.OnceErrorMax} {
		for _, users := range []int64{0, 1, 5000, definition.OnceUsersMax} {
			o := once
			o.Approximate, o.Users = approximate, users
			r := f(store.PartWindowSketch, o)
			// The fullest chunk has some more than others.
			chunks := (o.Remembers() + 4095) / 4096
			each := int(o.Remembers()/chunks + o.Remembers()/chunks/10)
			if chunks > sketch.ChunksMax || len(r.Bytes) != 18 {
				t.Fatalf("%s: %d chunks", o, chunks)
			}
			if users == definition.OnceUsersMax || users == 1 {
				filled(t, r.Bytes, each)
			}
		}
	}
}

// filled takes n users into a chunk, by a request for one.
func filled(t *testing.T, asks []byte, n int) {
	t.Helper()
	state := ""
	for i := range n {
		hash := sketch.Hash(fmt.Sprint("user ", i))
		for j := range 8 {
			asks[10+j] = byte(hash >> (56 - 8*j))
		}
		next, _, answer, ok := sketch.Decide(nil, state, asks)
		if !ok && answer[0] == sketch.NoRoom {
			t.Fatalf("no room for user %d of %d", i, n)
		}
		if ok {
			state = string(next)
		}
	}
}
