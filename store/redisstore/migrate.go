package redisstore

import (
	"context"
	"errors"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/quipudb/quipu/store"
)

// A value that stands where servers of layout 1 look for a hash. They fail there, in each of
// their scripts, before anything is written.
const tooOld = "this partition has layout 2, in head: a server that looks for it here is too old for it"

// raise makes the layout of the store this one, if it is the one before. That comes
// first: from then on no server of layout 1 starts. Those that run are refused by each
// partition as soon as it is migrated.
func (s *Store) raise(ctx context.Context, key, is string) error {
	switch {
	case is == strconv.Itoa(layoutVersion):
		return nil
	case is != "1":
		return store.Errorf(store.KindUnsupported, "%s has layout %q, this is for %d", key, is, layoutVersion)
	case s.options.Existing:
		return store.Errorf(store.KindUnsupported,
			"%s has layout 1, of an older Quipu: start a server that writes, which brings it to layout %d; one that only reads changes nothing", key, layoutVersion)
	}
	s.options.Logger.Info("upgrading the layout of the Redis store: servers of older releases can't use it any more",
		"was", 1, "is", layoutVersion)
	set := s.client.B().Hset().Key(key).FieldValue().FieldValue("layout", strconv.Itoa(layoutVersion)).Build()
	if err := s.client.Do(ctx, set).Error(); err != nil {
		return failed(ctx, err)
	}
	return nil
}

// migrate makes every partition one of this layout, empty ones too: one that an old
// server finds empty, it would fill. It may be repeated, and is: whoever opens a store
// does it, since another may have ended half way.
func (s *Store) migrate(ctx context.Context) error {
	all := make([]rueidis.Completed, len(s.partitions))
	for i := range s.partitions {
		p := &s.partitions[i]
		all[i] = call{foundScript, []string{p.head, p.meta}, []string{tooOld}}.build(s.client.B(), true)
	}
	for _, r := range s.client.DoMulti(ctx, all...) {
		if err := r.Error(); err != nil {
			return failed(ctx, err)
		}
	}
	return nil
}

// headless is the error of a partition that has no head. A failover to a replica that
// was behind may bring back layout 1, and a server that lost everything has nothing.
type headless struct{ error }

func (h headless) Unwrap() error { return h.error }

// mend migrates the store again if an error says that a partition is not of its layout.
// The caller that met it tries again, and meets whatever else is wrong.
func (s *Store) mend(ctx context.Context, err error) {
	if _, ok := errors.AsType[headless](err); ok {
		_ = s.migrate(ctx)
	}
}
