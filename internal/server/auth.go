package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"strconv"
	"strings"
)

// Keys are the API keys that open the doors. The zero value has none, and
// opens them to everyone.
type Keys struct {
	digests [][sha256.Size]byte
}

// NewKeys returns the given keys. A key is printable ASCII without spaces, so
// that it fits in a header.
func NewKeys(keys []string) (Keys, error) {
	var k Keys
	for i, key := range keys {
		if key == "" {
			return Keys{}, fmt.Errorf("API key %d is empty", i+1)
		}
		for j := range len(key) {
			if key[j] <= ' ' || key[j] > '~' {
				return Keys{}, fmt.Errorf("API key %d: want printable ASCII without spaces", i+1)
			}
		}
		k.digests = append(k.digests, sha256.Sum256([]byte(key)))
	}
	return k, nil
}

// Required reports whether a caller needs a key.
func (k Keys) Required() bool { return len(k.digests) > 0 }

// Has reports whether key is one of the keys.
func (k Keys) Has(key string) bool { return k.index(key) >= 0 }

// index returns which of the keys a key is, or -1. How long it takes does not tell how much
// of a guess was right.
func (k Keys) index(key string) int {
	d := sha256.Sum256([]byte(key))
	found := -1
	for i := range k.digests {
		same := subtle.ConstantTimeCompare(d[:], k.digests[i][:])
		found = subtle.ConstantTimeSelect(same, i, found)
	}
	return found
}

// names returns names for the keys, for logs: their places in the configuration. A part of a
// digest would help to guess a key that someone thought up.
func (k Keys) names() []string {
	names := make([]string, len(k.digests))
	for i := range names {
		names[i] = "server-key:" + strconv.Itoa(i+1)
	}
	return names
}

// Bearer returns the key that an Authorization header carries, or "".
func Bearer(header string) string {
	scheme, key, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(key)
}
