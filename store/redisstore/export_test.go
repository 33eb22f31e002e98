package redisstore

import (
	"context"
	"net"

	"github.com/redis/rueidis"

	"github.com/quipudb/quipu/internal/plan"
	"github.com/quipudb/quipu/store"
)

// Slots returns the slots of the partitions of a store of n.
func Slots(n int) []int {
	var all []int
	for _, tag := range tags(n) {
		all = append(all, int(slot(tag)))
	}
	return all
}

// Wrapped returns o with something around each connection.
func (o Options) Wrapped(wrap func(net.Conn) net.Conn) Options {
	o.wrap = wrap
	return o
}

// CommitSHA names the script that writes a decision.
var CommitSHA = commitScript.sha

// DecideOnce decides a batch, with something happening between its reading and
// its writing, and reports whether it was written.
func (s *Store) DecideOnce(ctx context.Context, b store.Batch, between func()) (bool, error) {
	w := &writing{batch: &b, home: &s.partitions[b.Partition], digest: b.Digest()}
	st := newState(w.home, s.share)
	st.batch(&b)
	if err := s.load(ctx, st, b.Writer, plan.Versions(&b), noWait); err != nil {
		return false, err
	}
	if err := s.decideOn(st, w, &store.Reply{}); err != nil {
		return false, err
	}
	between()
	return s.commit(ctx, st, b.Writer, noWait)
}

// CheckNow looks at the servers' settings, as the store does every so often.
func (s *Store) CheckNow(ctx context.Context) { _, _ = s.check(ctx, settingsPatience) }

// MigratePartition brings the partition whose keys begin so to this layout.
func MigratePartition(ctx context.Context, url, prefix string) error {
	option, err := parseURL(url)
	if err != nil {
		return err
	}
	client, err := rueidis.NewClient(option)
	if err != nil {
		return err
	}
	defer client.Close()
	s := &Store{client: client, partitions: []partition{{head: prefix + "head", meta: prefix + "meta"}}}
	return s.migrate(ctx)
}

// Empty removes the parts that are below floors, as the store does every so often.
func (s *Store) Empty(ctx context.Context) error {
	for i := range s.partitions {
		if err := s.empty(ctx, &s.partitions[i]); err != nil {
			return err
		}
	}
	return nil
}
