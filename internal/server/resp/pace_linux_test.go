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
