package resp

import (
	"testing"
	"time"
)

// Turns that take long are followed by smaller ones, of which every connection that
// is ready still has a part, and by larger ones when they take little again.
func TestPace(t *testing.T) {
	l := &loop{turn: turnBytesMax, w: &worker{}}
	share := func(took time.Duration, ready, want int) {
		t.Helper()
		for range 10 {
			l.pace(took)
		}
		if l.divide(ready); l.share != want || l.w.soft < want {
			t.Errorf("after turns of %v, each of %d connections has %d bytes, and %d of replies; want %d", took, ready, l.share, l.w.soft, want)
		}
	}
	share(time.Millisecond, 1, scratchBytes)
	share(time.Millisecond, 1000, shareMin)
	share(20*time.Millisecond, 1, turnBytesMin)
	share(20*time.Millisecond, 16, turnBytesMin/16)
	share(20*time.Millisecond, 1000, shareMin/4)
	share(3*time.Millisecond, 16, turnBytesMin/16) // neither long nor short: as it was
	share(time.Millisecond, 16, scratchBytes)
}

// The disk is slow if a sync is, and not if the turn before it was; and how long the
// sync took does not make the next turn smaller.
func TestSlowSync(t *testing.T) {
	start := time.Now()
	f := func(turn, sync time.Duration, slow bool) {
		t.Helper()
		l := &loop{now: start}
		l.synced(start.Add(turn), start.Add(turn+sync))
		if got := start.Add(turn + sync).Before(l.slowUntil); got != slow {
			t.Errorf("after a turn of %v and a sync of %v the disk is slow: %v, want %v", turn, sync, got, slow)
		}
		if l.spent != turn {
			t.Errorf("a turn of %v and a sync of %v has spent %v", turn, sync, l.spent)
		}
	}
	f(time.Millisecond, time.Millisecond, false)
	f(time.Second, time.Millisecond, false)
	f(time.Millisecond, slowSync+1, true)
	f(time.Second, slowSync, false)
}
