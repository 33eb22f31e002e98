package sketch

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestTopOne takes items into lists one by one: without making the list, and by making it. Both come to
// the same bytes and answers.
func TestTopOne(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("replay: set the seed to %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	for range 60 {
		k := 1 + rnd.IntN(30)
		many, amount, long := 1+rnd.IntN(600), 1+rnd.Int64N(300), rnd.IntN(3) == 0
		state, fast := "", 0
		for range 1200 {
			item := fmt.Sprint(rnd.IntN(1 + rnd.IntN(many)))
			if long {
				item = strings.Repeat(item, 1+rnd.IntN(250/len(item)))
			}
			a := Amount{item, 1 + rnd.Int64N(amount)}
			asks, err := AppendTopRequest(nil, k, []Amount{a})
			if err != nil {
				t.Fatal(err)
			}
			r, ok := parseTopRequest(string(asks))
			if !ok {
				t.Fatal("no request")
			}
			want, changed, answer, ok := decideTopWhole(nil, state, &r)
			if !ok || !changed {
				t.Fatalf("%+v changes nothing", a)
			}
			if state != "" {
				if next, told, ok := decideTopOne([]byte("x"), state, k, a); ok {
					if fast++; string(next) != "x"+string(want) || told != answer {
						t.Fatalf("k=%d, %+v: %x and %v, want %x and %v", k, a, next, told, want, answer)
					}
				}
			}
			state = string(want)
		}
		if fast < 1000 {
			t.Errorf("k=%d, %d items: only %d of 1,200 are taken in without making the list", k, many, fast)
		}
	}
}

// FuzzTopOne takes an item into any bytes. What is the state of a list comes to what making the list comes to.
func FuzzTopOne(f *testing.F) {
	top, err := NewTop(2)
	if err != nil {
		f.Fatal(err)
	}
	for i := range 100 {
		top.Add(fmt.Sprint(i*i%71), int64(1+i%5))
		if i == 20 || i == 99 {
			f.Add(string(top.Append(nil)), "9", int64(3))
			f.Add(string(top.Append(nil)), "new", int64(1))
			f.Add(string(top.Append(nil)), "new", int64(1<<62))
		}
	}
	f.Fuzz(func(t *testing.T, state, item string, n int64) {
		if len(item) > TopItemBytesMax || n < 1 || state == "" {
			return
		}
		next, answer, ok := decideTopOne(nil, state, 2, Amount{item, n})
		if !ok || checkTop(state) != nil {
			return
		}
		r := topRequest{k: 2, n: 1, adds: cutter{s: string(Amount{item, n}.append(nil))}}
		want, _, told, valid := decideTopWhole(nil, state, &r)
		if !valid || string(next) != string(want) || answer != told {
			t.Errorf("%x and %v, want %x and %v", next, answer, want, told)
		}
	})
}
