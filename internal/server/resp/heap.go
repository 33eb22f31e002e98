package resp

import "runtime/metrics"

// A heap is what the process holds of memory.
type heap struct {
	allocated int64 // by what is in use, and what is garbage
	inUse     int64 // with what such things leave unused
	resident  int64 // everything that was not given back to the system
}

// readHeap returns what the process holds. Unlike runtime.ReadMemStats it stops
// nobody: INFO may be asked as often as a client likes.
func readHeap() heap {
	samples := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
	}
	metrics.Read(samples)
	bytes := func(i int) int64 { return int64(samples[i].Value.Uint64()) }
	return heap{allocated: bytes(0), inUse: bytes(0) + bytes(1), resident: bytes(2) - bytes(3)}
}
