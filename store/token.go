package store

import (
	"strings"
	"time"
)

// TokenTime returns the time a token carries. Tokens that are UUIDs of version
// 7 carry the time they were made, so that one older than the window can be
// refused as expired however long ago it was forgotten. For any other token ok
// is false: a store refuses it as expired for one more window after the window
// in which it returns the first result, and then forgets it.
func TokenTime(token string) (ms int64, ok bool) {
	// xxxxxxxx-xxxx-7xxx-[89ab]xxx-xxxxxxxxxxxx: 48 bits of Unix milliseconds.
	if len(token) != 36 || token[8] != '-' || token[13] != '-' || token[14] != '7' ||
		token[18] != '-' || token[23] != '-' || !strings.ContainsRune("89abAB", rune(token[19])) {
		return 0, false
	}
	for i := range len(token) {
		if i == 8 || i == 13 || i == 18 || i == 23 {
			continue
		}
		d := hexDigit(token[i])
		if d < 0 {
			return 0, false
		}
		if i < 13 {
			ms = ms<<4 | int64(d)
		}
	}
	return ms, true
}

func hexDigit(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// TokenStale reports whether a token that the store does not know must be
// refused as expired. That is so if the time it carries is before the window,
// or so far ahead that it would still look new when it has been forgotten.
func TokenStale(token string, nowMS int64, window time.Duration) bool {
	ms, ok := TokenTime(token)
	return ok && (ms < nowMS-window.Milliseconds() || ms >= nowMS+window.Milliseconds())
}

// TokenKeptMS returns how long a store remembers a decided token: one window in
// which a repeat returns the first result, and one in which it is refused as
// expired.
func TokenKeptMS(window time.Duration) int64 { return 2 * window.Milliseconds() }
