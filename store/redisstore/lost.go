package redisstore

import (
	"context"

	"github.com/quipudb/quipu/store"
)

var _ store.Witness = (*Store)(nil)

// Lost reports whether a version is above all that its partition has given out:
// then a failover or a restart took the last writes with it. It can't tell any more
// when as many have been given out again since, unless the counter itself is at
// a lower one.
func (s *Store) Lost(ctx context.Context, c store.Cell, version uint64, v store.Value) (bool, error) {
	if err := store.CheckCell(c); err != nil {
		return false, err
	}
	if err := s.enter(ctx); err != nil {
		return false, err
	}
	defer s.calls.Done()
	if lacks, known := v.Lacks(version); known {
		return lacks, nil
	}
	p := &s.parts[store.PartitionOf(c, len(s.parts))]
	m, err := s.look(ctx, call{script: sizeScript, keys: []string{p.meta}}, s.shown())
	if err != nil {
		return false, err
	}
	reply, err := texts(m)
	if err != nil {
		return false, err
	}
	d := decoder{}
	return version > d.uint(reply[0]), d.err
}
