package hot_test

import (
	"math"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/hot"
	"github.com/quipudb/quipu/store"
)

// A court is judges with a clock and the layouts that they know of.
type court struct {
	*hot.Judges
	now   time.Time
	words map[store.Cell]hot.Word
}

func newCourt(l hot.Limits) *court {
	limits := func(store.Cell) hot.Limits { return l }
	return &court{
		Judges: hot.NewJudges(hot.Rules{Waiting: 0.25, Least: 100}, limits, 64),
		now:    start, words: map[store.Cell]hot.Word{},
	}
}

func (c *court) word(of store.Cell) hot.Word { return c.words[of] }

// look writes 1,000 times in 100 ms, half of which was waiting, and returns how many
// shards are wanted; 0 is as many as there are.
func (c *court) look(of store.Cell) int {
	for range 100 {
		c.now = c.now.Add(time.Millisecond)
		c.Note(hot.Write{Cell: of, Count: 10, Took: 10 * time.Millisecond, Waited: 5 * time.Millisecond}, c.now)
	}
	for _, w := range c.Wants(c.word, c.now) {
		if w.Cell == of {
			return w.Shards
		}
	}
	return 0
}

// looks looks until shards are wanted, and returns how often.
func (c *court) looks(t *testing.T, of store.Cell) int {
	t.Helper()
	for n := range 2000 {
		if c.look(of) > 1 {
			return n + 1
		}
	}
	t.Fatal("it is never split")
	return 0
}

// A counter that was folded because it was asked rests, longer each time.
func TestAskedRests(t *testing.T) {
	c, of := newCourt(hot.Limits{Max: 64}), cell(1)
	if n := c.looks(t, of); n > 4 {
		t.Fatalf("split after %d looks", n)
	}
	for _, seconds := range []int{5, 10, 20, 40, 60, 60} {
		c.Asked(of, c.now)
		if n := c.looks(t, of); n < 10*seconds || n > 10*seconds+4 {
			t.Errorf("split after %d looks, want %d s", n, seconds)
		}
	}
}

// Who gives a counter other shards takes away the ones it has: for some looks that is
// no reason to judge it anew.
func TestMissing(t *testing.T) {
	c, of := newCourt(hot.Limits{Max: 64}), cell(1)
	c.looks(t, of)
	c.words[of] = hot.Home(1, 4)
	c.look(of)
	if found := c.Missing(c.word, 10); len(found) != 0 {
		t.Errorf("%v are missing", found)
	}
	delete(c.words, of)
	for n := range 3 {
		if w := c.look(of); w != 0 {
			t.Errorf("look %d: %d shards are wanted", n, w)
		}
		if found := c.Missing(c.word, 10); len(found) != 1 || found[0] != of {
			t.Errorf("look %d: %v are missing", n, found)
		}
	}
	if found := c.Missing(c.word, 10); len(found) != 0 {
		t.Errorf("%v are missing for ever", found)
	}
}

func TestCold(t *testing.T) {
	limits, word := hot.Limits{Max: 64, CoolDown: 3 * time.Second}, hot.Home(1, 4)
	f := func(what string, w hot.Word, total, perLook int64, want bool) {
		t.Helper()
		c, of := newCourt(limits), cell(1)
		cold := false
		for i := range int64(10) {
			cold = c.Cold(of, w, total+i*perLook, i*perLook, c.now)
			if i == 0 && cold && w == word && hot.IsNear(total) {
				t.Errorf("%s: cold at the first look", what)
			}
			c.now = c.now.Add(time.Second)
		}
		if cold != want {
			t.Errorf("%s: cold is %v", what, cold)
		}
		if rate := c.Changing(of); math.Abs(rate-float64(perLook)) > 100 { // far from zero it is not told finer
			t.Errorf("%s: it changes by %v a second", what, rate)
		}
	}
	f("others write", word, 0, 1000, false)
	f("nobody writes", word, 0, 0, true)
	f("a fold was left half done", word.Fold(), 0, 1000, true)
	f("far", word, hot.Near, 1000, true)
	f("not split", 0, 0, 0, false)
}

// To read a counter that this server writes to all the time would be in vain, but
// now and then it is done, and more often if the counter is far from zero.
func TestMayBeCold(t *testing.T) {
	c, of := newCourt(hot.Limits{Max: 64}), cell(1)
	f := func(want bool) {
		t.Helper()
		if got := c.MayBeCold(of, c.now); got != want {
			t.Errorf("may be cold: %v", got)
		}
	}
	f(true)
	c.look(of)
	c.Cold(of, hot.Home(1, 4), 5, 5, c.now)
	f(false)
	c.Cold(of, hot.Home(1, 4), 1<<50, 5, c.now)
	f(true)
	c.Cold(of, hot.Home(1, 4), 5, 5, c.now)
	c.now = c.now.Add(time.Second / 2)
	f(true)
	for range 50 {
		c.look(of)
	}
	f(true)
}
