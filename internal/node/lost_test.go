package node_test

import (
	"testing"

	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/storetest"
)

// The adds of a run are there, or lost, with the one change that they are in the
// store.
func TestLostRun(t *testing.T) {
	f := func(under store.Store, absent bool) {
		t.Helper()
		n := over(t, under)
		defer func() { _ = n.Close() }()
		c := store.Cell{Namespace: "n", Key: "a"}
		replies := make([]store.Reply, 1)
		if err := n.Apply(t.Context(), []store.Batch{{Deltas: []store.Delta{{Cell: c, Op: store.OpAdd, N: 1}}}}, replies); err != nil {
			t.Fatal(err)
		}
		last := replies[0].Results[0].Version
		v := make([]store.Value, 1)
		if err := n.Read(t.Context(), []store.Cell{c}, v); err != nil {
			t.Fatal(err)
		}
		if absent {
			v[0] = store.Value{}
		}
		for version, want := range map[uint64]bool{last: false, last - 1: false, last - 1023: false, last + 1: true} {
			if lost, err := n.Lost(t.Context(), c, version, v[0]); err != nil || lost != want {
				t.Errorf("version %d of one that is at %d: lost is %v, want %v; %v", version, last, lost, want, err)
			}
		}
	}
	f(memory(1, storetest.Config{}), false)
	f(memory(1, storetest.Config{}), true)
	plainly := new(storetest.Hooks) // by the value of a cell alone
	plainly.On(storetest.OnLost, func(c *storetest.Call) error {
		c.Lost, _ = c.Values[0].Lacks(c.Version)
		return nil
	})
	f(storetest.Wrap(memory(1, storetest.Config{}), plainly), false)
}
