package decide_test

import (
	"testing"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/store"
)

func TestFollows(t *testing.T) {
	mark := decide.Mark{Seq: 5, Digest: 7}
	f := func(prev, seq, digest uint64, repeat, follows bool) {
		t.Helper()
		again, err := mark.Follows(&store.Batch{Writer: 1, Prev: prev, Seq: seq}, digest)
		if again != repeat || (err == nil) != follows || err != nil && store.KindOf(err) != store.KindMark {
			t.Errorf("(%d, %d] after 5: repeat %t, %v", prev, seq, again, err)
		}
	}
	f(5, 6, 1, false, true)
	f(5, 9, 7, false, true)
	f(4, 5, 7, true, true)
	f(0, 5, 7, true, true)
	f(4, 5, 8, false, false) // another batch
	f(3, 4, 7, false, false) // an old one
	f(6, 7, 7, false, false) // one is missing
	f(4, 6, 7, false, false) // it overlaps
}

func TestAdmit(t *testing.T) {
	f := func(w store.Writer, marks int, want store.Kind) {
		t.Helper()
		err := decide.Admit(w, 3, marks, 2)
		if want == 0 && err != nil || want != 0 && store.KindOf(err) != want {
			t.Errorf("writer %d beside %d: %v", w, marks, err)
		}
	}
	f(4, 1, 0)
	f(4, 2, store.KindFull)
	f(3, 1, store.KindRetired)
	f(3, 2, store.KindRetired)
}
