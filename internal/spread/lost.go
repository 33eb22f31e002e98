package spread

import (
	"context"

	"github.com/quipudb/quipu/store"
)

// A caller is told the version of the cell that took a write, and if that was a
// shard, which: partitions count on their own, so a version alone says nothing.
//
//	OfShards 1 | ofShard 1 | version 55 | shard 6
//
// Versions that do not fit, and those told before there was the second bit, have
// OfShards alone, and are judged no more.
const (
	ofShard     = 1 << 61
	shardBits   = 6
	versionBits = 55
)

// Told returns the version that a caller is told of a result.
func Told(r *store.Result) uint64 {
	version := r.Version &^ (OfShards | ofShard)
	switch {
	case r.Version&OfShards == 0:
		return r.Version
	case r.Shard == 0 || r.Shard >= 1<<shardBits || version >= 1<<versionBits:
		return OfShards | version
	}
	return OfShards | ofShard | version<<shardBits | uint64(r.Shard)
}

// Lost reports whether the change that gave a counter a version is missing. The
// version is one that Told has returned.
func (s *Store) Lost(ctx context.Context, c store.Cell, version uint64, v store.Value) (bool, error) {
	if version&OfShards != 0 {
		if version&ofShard == 0 {
			return false, nil
		}
		c = store.ShardCell(c, int(version&(1<<shardBits-1)))
		version, v = version>>shardBits&(1<<versionBits-1), store.Value{} // nobody has read it
	}
	if w, ok := s.under.(store.Witness); ok {
		return w.Lost(ctx, c, version, v)
	}
	lacks, _ := v.Lacks(version)
	return lacks, nil
}
