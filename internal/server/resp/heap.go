package resp

import (
	"runtime/metrics"
	"sync/atomic"
	"time"
)

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

// A ceiling is how much memory the process may use before commands that may add keys are refused:
// CONFIG SET maxmemory. Nothing is evicted.
type ceiling struct {
	max   atomic.Int64 // 0 if there is none
	at    atomic.Int64 // when the process was looked at last, in nanoseconds since the door began
	inUse atomic.Int64 // what it used then
}

// memoryEvery is how long what the process uses is believed.
const memoryEvery = 20 * time.Millisecond

// over reports whether the process uses more, for a door that began then.
func (c *ceiling) over(began time.Time) bool {
	most := c.max.Load()
	if most == 0 { // Fast path.
		return false
	}
	since := time.Since(began)
	if at := c.at.Load(); at == 0 || since-time.Duration(at) > memoryEvery {
		c.inUse.Store(readHeap().inUse)
		c.at.Store(int64(since))
	}
	return c.inUse.Load() > most
}
