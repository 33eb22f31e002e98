package pgstore

import (
	"context"

	"github.com/quipudb/quipu/store"
)

var _ store.Witness = (*Store)(nil)

// Lost reports whether a version is above all that the database knows of: then it
// is a replica that was promoted without the last commits, or a restored backup. It
// can't tell any more when as many versions have been drawn again since, unless
// the counter itself is at a lower one. A crash recovers the sequence up to 32
// numbers ahead of what it was.
func (s *Store) Lost(ctx context.Context, c store.Cell, version uint64, v store.Value) (lost bool, err error) {
	if err := store.CheckCell(c); err != nil {
		return false, err
	}
	if err := s.enter(ctx); err != nil {
		return false, err
	}
	defer s.leave()
	if lacks, known := v.Lacks(version); known {
		return lacks, nil
	}
	if version > 1<<63-1 { // no bigint
		return true, nil
	}
	s.meters.trips.Add(1)
	err = s.pool.QueryRow(ctx, inSchema(s.locks.schema, lostSQL), []byte(c.Namespace), []byte(c.Key), int64(version)).Scan(&lost)
	return lost, failure(ctx, err)
}

// A cell may be ahead of the sequence. Before it goes the sequence is raised, and
// a sequence is read as it is after the statement's snapshot was taken: so either
// the cell is seen, or the sequence that was raised.
const lostSQL = `
	select $3 > greatest(
		(select abs(version) from quipu.cells where ns = $1 and key = $2),
		(select case when is_called then last_value else 0 end from quipu.version))`
