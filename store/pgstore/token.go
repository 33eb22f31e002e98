package pgstore

import (
	"github.com/quipudb/quipu/internal/decide"
)

// complete fills in what a row of a token says in its own way.
func complete(t *decide.Token, digest, version int64) {
	t.Digest, t.Result.Version = uint64(digest), uint64(version)
	if t.Settled = t.Op == 0; t.Settled {
		t.Result.Outcome = 0
	}
}
