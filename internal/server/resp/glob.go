package resp

import (
	"unicode/utf8"

	"github.com/quipudb/quipu/store"
)

// patternBytesMax bounds a pattern: matching may cost its length at every byte.
const patternBytesMax = 2 * store.KeyBytesMax

// match reports whether s matches a pattern of Redis: * ? [a-z] [^a] and \ to
// take one of them as it is.
func match(pattern, s string) bool {
	// To go back to: after the last star, and what it has taken of s.
	star, taken := -1, 0
	p, i := 0, 0
	for i < len(s) {
		if p < len(pattern) && pattern[p] == '*' {
			star, taken = p+1, i
			p++
			continue
		}
		if ok, n := matchOne(pattern[p:], s[i]); ok {
			p += n
			i++
			continue
		}
		if star < 0 {
			return false
		}
		taken++
		p, i = star, taken
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
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
