package spread_test

import (
	"testing"

	"github.com/quipudb/quipu/store"
)

// TestRefusedBeforeTheLayout has a write that wants the value of a split counter, and another of
// the same batch that is refused by its time, which is judged before what the counter is. The
// first is made again: nothing says that the key holds bytes.
func TestRefusedBeforeTheLayout(t *testing.T) {
	each(t, func(t *testing.T, under *shared) {
		c := cell("a")
		other, s := server(t, under, lazy), server(t, under, lazy)
		mustDo(t, other, add(c, 5))
		split(t, other, c, 4)
		late := want(add(c, 100))
		late.Event = &store.Event{NotAfter: 1}
		batch := store.Batch{Partition: store.PartitionOf(c, s.Traits().Partitions), Apart: true, Deltas: []store.Delta{want(add(c, 7)), late}}
		var replies [1]store.Reply
		if err := s.Apply(t.Context(), []store.Batch{batch}, replies[:]); err != nil || replies[0].Err != nil {
			t.Fatal(err, replies[0].Err)
		}
		if first, second := replies[0].Results[0], replies[0].Results[1]; first.Outcome != store.Applied || first.After != 12 || second.Outcome != store.Untimely {
			t.Errorf("%+v, and %+v", first, second)
		}
	})
}
