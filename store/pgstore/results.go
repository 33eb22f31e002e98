package pgstore

import (
	"encoding/binary"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/store"
)

// The results of a batch, as a mark keeps them: for each its outcome, a byte of
// what follows, and what follows as varints.
const (
	hasBefore = 1 << iota
	hasAfter
	hasVersion
	hasDeadline
	existed
	replayed
	hasRefused // a byte: which rider refused it
	forgotten
)

func encodeResults(rs []store.Result) []byte {
	b := make([]byte, 0, 8*len(rs))
	for i := range rs {
		r := &rs[i]
		has := byte(0)
		flag := func(set bool, bit byte) {
			if set {
				has |= bit
			}
		}
		flag(r.Before != 0, hasBefore)
		flag(r.After != 0, hasAfter)
		flag(r.Version != 0, hasVersion)
		flag(r.DeadlineMS != 0, hasDeadline)
		flag(r.Existed, existed)
		flag(r.Replayed, replayed)
		flag(r.Refused != 0, hasRefused)
		flag(r.Forgotten, forgotten)
		b = append(b, byte(r.Outcome), has)
		if r.Before != 0 {
			b = binary.AppendVarint(b, r.Before)
		}
		if r.After != 0 {
			b = binary.AppendVarint(b, r.After)
		}
		if r.Version != 0 {
			b = binary.AppendUvarint(b, r.Version)
		}
		if r.DeadlineMS != 0 {
			b = binary.AppendVarint(b, r.DeadlineMS)
		}
		if r.Refused != 0 {
			b = append(b, r.Refused)
		}
	}
	return b
}

func decodeResults(b []byte) ([]store.Result, error) {
	var rs []store.Result
	bad := false
	for len(b) > 0 && !bad {
		if len(b) < 2 {
			bad = true
			break
		}
		r, has := store.Result{Outcome: store.Outcome(b[0])}, b[1]
		b = b[2:]
		signed := func(bit byte) int64 {
			if has&bit == 0 || bad {
				return 0
			}
			v, n := binary.Varint(b)
			if bad = n <= 0; bad {
				return 0
			}
			b = b[n:]
			return v
		}
		r.Before, r.After = signed(hasBefore), signed(hasAfter)
		if has&hasVersion != 0 && !bad {
			v, n := binary.Uvarint(b)
			if bad = n <= 0; !bad {
				b = b[n:]
			}
			r.Version = v
		}
		r.DeadlineMS = signed(hasDeadline)
		r.Existed, r.Replayed, r.Forgotten = has&existed != 0, has&replayed != 0, has&forgotten != 0
		if has&hasRefused != 0 && !bad {
			if bad = len(b) == 0; !bad {
				r.Refused, b = b[0], b[1:]
			}
		}
		rs = append(rs, r)
	}
	if bad {
		return nil, store.Errorf(store.KindCorrupt, "the results of a mark can't be read")
	}
	return rs, nil
}

// A tally is a record as the database holds it.
type tally struct{ deltas, total, proof int64 }

func tallyOf(r decide.Record) tally {
	return tally{int64(r.Deltas), int64(r.Sum), int64(r.Check)}
}

func (t tally) record() decide.Record {
	return decide.Record{Deltas: uint64(t.deltas), Sum: uint64(t.total), Check: uint64(t.proof)}
}
