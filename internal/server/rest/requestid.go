package rest

import (
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"sync/atomic"
)

const requestIDBytesMax = 128

// requestIDs makes names for requests that came without one: a random prefix
// for this run of the server, and a number.
type requestIDs struct {
	prefix string
	last   atomic.Uint64
}

func (ids *requestIDs) start() {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	ids.prefix = hex.EncodeToString(b[:]) + "-"
}

func (ids *requestIDs) next() string {
	var b [40]byte
	return string(strconv.AppendUint(append(b[:0], ids.prefix...), ids.last.Add(1), 36))
}

// saneRequestID reports whether a caller's id may go into headers and logs.
func saneRequestID(id string) bool {
	if id == "" || len(id) > requestIDBytesMax {
		return false
	}
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' || id[i] == '"' || id[i] == '\\' {
			return false
		}
	}
	return true
}
