package resp

import (
	"math"
	"math/bits"
	"unicode/utf8"

	"github.com/quipudb/quipu/store"
)

// patternBytesMax bounds a pattern.
const patternBytesMax = 2 * store.KeyBytesMax

const (
	// channelStepsMax is how many steps PUBSUB CHANNELS may take, while nobody else has a turn, beside
	// channelStepsEach for each name, which plain patterns do not need.
	channelStepsMax  = 20_000_000
	channelStepsEach = 64
	// sweepStepsMax is how many hard steps KEYS or SCAN may take, and sweepStepsTurn after how many
	// steps others have a turn.
	sweepStepsMax  = 200_000_000
	sweepStepsTurn = 5_000_000
)

const errPatternSteps = wireError("ERR the pattern takes too long to match with so many names: use one with fewer * ? [ or a smaller COUNT of SCAN")

// match reports whether s matches a pattern of Redis: * ? [a-z] [^a] and \ to
// take one of them as it is.
func match(pattern, s string) bool {
	var n subject
	n.set(s)
	return n.matches(pattern)
}

// walk is match for as long as it takes few steps: done reports whether it came to an end. A step reads a
// byte of the pattern. All steps together may be as many as the pattern's bytes times those of s.
func walk(pattern, s string, stepsMax int) (ok, done bool, steps int) {
	// To go back to: after the last star, and what it has taken of s.
	star, taken := -1, 0
	p, i := 0, 0
	for i < len(s) {
		if steps >= stepsMax {
			return false, false, steps
		}
		if p < len(pattern) && pattern[p] == '*' {
			star, taken = p+1, i
			p++
			steps++
			continue
		}
		ok, n := matchOne(pattern[p:], s[i])
		steps += max(n, 1)
		if ok {
			p += n
			i++
			continue
		}
		if star < 0 {
			return false, true, steps
		}
		taken++
		p, i = star, taken
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern), true, steps
}

// A subject is a string that patterns are matched with, one after the other. Almost all patterns are
// matched by walking. One that goes back too often is matched with all places of the string at once: a bit
// of a word each.
type subject struct {
	s     string
	words int      // of a set of places: those before each byte, and the end
	at    []uint64 // for each byte, the set of places where it is; nil until it is needed
	ready bool     // at is that of s
	now   []uint64 // the places that the pattern so far leads to
	steps int      // taken with all strings so far; each takes a nanosecond or two
	hard  int      // those of them that walking would not do
}

// set has a subject be another string.
func (n *subject) set(s string) {
	if n.ready {
		for i := range len(n.s) {
			clear(n.places(n.s[i]))
		}
	}
	n.s, n.words, n.ready = s, len(s)/64+1, false
}

// places returns the set of places of a byte.
func (n *subject) places(c byte) []uint64 { return n.at[int(c)*n.words:][:n.words] }

// matches reports whether the subject matches a pattern.
func (n *subject) matches(pattern string) bool {
	ok, done, steps := walk(pattern, n.s, 64+2*(len(pattern)+len(n.s)))
	n.steps += steps
	if !done {
		before := n.steps
		ok = n.simulate(pattern)
		n.hard += n.steps - before
	}
	return ok
}

// index finds the places of all bytes.
func (n *subject) index() {
	if n.ready {
		return
	}
	if len(n.at) < 256*n.words {
		n.at, n.now = make([]uint64, 256*n.words), make([]uint64, n.words)
	}
	for i := range len(n.s) {
		n.places(n.s[i])[i/64] |= 1 << (i % 64)
	}
	n.steps += 2 * len(n.s)
	n.ready = true
}

// simulate is matches in time that grows with the pattern's length and the string's divided by 64, and
// with the string's only at a class.
func (n *subject) simulate(pattern string) bool {
	n.index()
	now := n.now[:n.words]
	clear(now)
	now[0] = 1
	end, endBit := len(n.s)/64, uint64(1)<<(len(n.s)%64)
	for p := 0; p < len(pattern); {
		n.steps += n.words
		if pattern[p] == '*' {
			for p < len(pattern) && pattern[p] == '*' {
				p++
			}
			fill(now)
			now[end] &= endBit<<1 - 1
			continue
		}
		switch pattern[p] {
		case '?':
			now[end] &^= endBit
			p++
		case '[':
			class, length := classOf(pattern[p:])
			n.keep(&class)
			p += length
		default:
			if pattern[p] == '\\' && p+1 < len(pattern) {
				p++
			}
			for i, places := range n.places(pattern[p]) {
				now[i] &= places
			}
			p++
		}
		if !advance(now) {
			return false
		}
	}
	return now[end]&endBit != 0
}

// fill adds to a set of places all after its first.
func fill(set []uint64) {
	for i, word := range set {
		if word == 0 {
			continue
		}
		set[i] = math.MaxUint64 << bits.TrailingZeros64(word)
		for j := range set[i+1:] {
			set[i+1+j] = math.MaxUint64
		}
		return
	}
}

// advance moves a set of places to the next ones, and reports whether there are any.
func advance(set []uint64) bool {
	carry, all := uint64(0), uint64(0)
	for i, word := range set {
		set[i] = word<<1 | carry
		carry = word >> 63
		all |= set[i]
	}
	return all != 0
}

// keep takes the places away whose byte is not of a class.
func (n *subject) keep(class *[4]uint64) {
	for i, word := range n.now[:n.words] {
		part := n.s[i*64 : min(i*64+64, len(n.s))]
		n.steps += bits.OnesCount64(word)
		kept := uint64(0)
		for word != 0 {
			bit := bits.TrailingZeros64(word)
			if bit >= len(part) { // the end
				break
			}
			c := part[bit]
			kept |= class[c/64] >> (c % 64) & 1 << bit
			word &= word - 1
		}
		n.now[i] = kept
	}
}

// classOf returns the bytes of a class that a pattern begins with, and its length.
func classOf(pattern string) (class [4]uint64, length int) {
	i := 1
	not := i < len(pattern) && pattern[i] == '^'
	if not {
		i++
	}
	for i < len(pattern) && pattern[i] != ']' {
		low, high := pattern[i], pattern[i]
		switch {
		case low == '\\' && i+1 < len(pattern):
			i++
			low, high = pattern[i], pattern[i]
		case i+2 < len(pattern) && pattern[i+1] == '-':
			low, high = min(low, pattern[i+2]), max(low, pattern[i+2])
			i += 2
		}
		for w := low / 64; w <= high/64; w++ {
			from, to := max(low, w*64)-w*64, min(high, w*64+63)-w*64
			class[w] |= math.MaxUint64 << from & (math.MaxUint64 >> (63 - to))
		}
		i++
	}
	if not {
		for w := range class {
			class[w] = ^class[w]
		}
	}
	return class, min(i+1, len(pattern))
}

// matchOne reports whether c matches what pattern begins with, and how long that
// is.
func matchOne(pattern string, c byte) (ok bool, n int) {
	switch {
	case pattern == "":
		return false, 0
	case pattern[0] == '?':
		return true, 1
	case pattern[0] == '[':
		return matchClass(pattern, c)
	case pattern[0] == '\\' && len(pattern) > 1:
		return pattern[1] == c, 2
	}
	return pattern[0] == c, 1
}

// matchClass is matchOne for a pattern that begins with a bracket. One that is
// not closed ends with the pattern.
func matchClass(pattern string, c byte) (ok bool, n int) {
	i := 1
	not := i < len(pattern) && pattern[i] == '^'
	if not {
		i++
	}
	for i < len(pattern) && pattern[i] != ']' {
		switch {
		case pattern[i] == '\\' && i+1 < len(pattern):
			i++
			ok = ok || pattern[i] == c
		case i+2 < len(pattern) && pattern[i+1] == '-':
			low, high := min(pattern[i], pattern[i+2]), max(pattern[i], pattern[i+2])
			ok = ok || low <= c && c <= high
			i += 2
		default:
			ok = ok || pattern[i] == c
		}
		i++
	}
	return ok != not, min(i+1, len(pattern))
}

// literalPrefix returns what every match of a pattern begins with, cut to whole
// characters and the length of a key.
func literalPrefix(pattern string) string {
	i := 0
	for i < len(pattern) && pattern[i] != '*' && pattern[i] != '?' && pattern[i] != '[' && pattern[i] != '\\' {
		i++
	}
	prefix := pattern[:min(i, store.KeyBytesMax)]
	for !utf8.ValidString(prefix) {
		prefix = prefix[:len(prefix)-1]
	}
	return prefix
}
