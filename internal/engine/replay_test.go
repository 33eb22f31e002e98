package engine

import (
	"encoding/binary"
	"testing"

	"github.com/zeebo/xxh3"

	"github.com/quipudb/quipu/internal/wal"
	"github.com/quipudb/quipu/store"
)

// TestReplayOfOneHotCell replays a frame with a million adds to one cell, at once
// and in runs that other cells interrupt. If what is looked at ahead of a record
// grew with what follows it, this would take hours.
func TestReplayOfOneHotCell(t *testing.T) {
	const adds = 1 << 20
	hot, other := appendCell(nil, store.Cell{Namespace: "n", Key: "hot"}), appendCell(nil, store.Cell{Namespace: "n", Key: "other"})
	f := func(run int) {
		t.Helper()
		var frame []byte
		for i := range adds {
			if i%run == 0 {
				frame = binary.AppendVarint(appendCellRecord(frame, recAdd, other), 5)
				frame = binary.AppendVarint(appendCellRecord(frame, recAdd, hot), 1)
				continue
			}
			frame = binary.AppendVarint(append(frame, recAgain), 1)
		}
		e := emptied(&Engine{})
		if err := e.replayer(wal.Position(0))(0, frame); err != nil {
			t.Fatal(err)
		}
		value := func(cell []byte) int64 {
			return e.cells.slot(e.cells.find(uint32(xxh3.HashSeed(cell, e.id.seed())), cell)).value
		}
		if got := value(hot); got != adds {
			t.Errorf("runs of %d: replayed %d of %d adds", run, got, adds)
		}
		if got, want := value(other), int64(adds/run*5); got != want {
			t.Errorf("runs of %d: the other cell is %d, want %d", run, got, want)
		}
	}
	f(adds)
	f(1 << 10)
	f(1 << 6)
	f(2)
}
