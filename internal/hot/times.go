package hot

import (
	"math/bits"
	"time"
)

const (
	// unit is the shortest time that is told from none, 16 µs: a power of two in
	// nanoseconds.
	unit = 14
	// octaves is how often times may double before they count as the longest, 17 s.
	octaves = 20
	// parts is into how many buckets each octave is divided.
	parts = 4

	// fading is how long times take to count half.
	fading = 10 * time.Second
)

// Times knows how long calls took of late, all of them in 180 bytes: it counts them
// in buckets a quarter of an octave wide, so that what it tells is right to an
// eighth. The zero value knows nothing.
type Times struct {
	counts [octaves*parts + 1]uint16
	faded  int64 // when the counts were last halved, in nanoseconds
}

// Note counts a call that took so long and ended now.
func (t *Times) Note(took time.Duration, now time.Time) {
	t.fade(now.UnixNano())
	i := bucket(took)
	if t.counts[i]++; t.counts[i] == 1<<16-1 {
		t.halve()
	}
}

// fade halves the counts for each span that has passed.
func (t *Times) fade(now int64) {
	if t.faded == 0 {
		t.faded = now
	}
	spans := (now - t.faded) / int64(fading)
	if spans < 1 {
		return
	}
	t.faded += spans * int64(fading)
	for range min(spans, 16) {
		t.halve()
	}
}

// halve rounds up what is left of a count of more than one: so a rare long call is
// forgotten last among many short ones.
func (t *Times) halve() {
	for i, n := range t.counts {
		t.counts[i] = n/2 + n&1&min(n/2, 1)
	}
}

// P99 returns how long the slowest call in a hundred took at least, 0 if none was
// noted.
func (t *Times) P99(now time.Time) time.Duration {
	t.fade(now.UnixNano())
	total := 0
	for _, n := range t.counts {
		total += int(n)
	}
	above := total / 100 // of these, none need be as slow
	for i := len(t.counts) - 1; i >= 0; i-- {
		if above -= int(t.counts[i]); above < 0 {
			return middle(i)
		}
	}
	return 0
}

// bucket returns the place of a time among the counts: first those shorter than the
// unit, then each octave by the two bits after its first.
func bucket(took time.Duration) int {
	n := uint64(max(0, took)) >> (unit - 2)
	octave := bits.Len64(n) - 3 // of a time of one unit, 0
	if octave < 0 {
		return 0
	}
	return min(1+octave*parts+int(n>>octave&(parts-1)), octaves*parts)
}

// middle returns the time in the middle of a bucket.
func middle(i int) time.Duration {
	if i == 0 {
		return 1 << (unit - 1)
	}
	octave, part := (i-1)/parts, (i-1)%parts
	return time.Duration((2*(parts+part)+1)<<octave) << (unit - 3)
}
