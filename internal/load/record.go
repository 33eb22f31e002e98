package load

import (
	"math"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/quipudb/quipu/internal/load/proc"
)

// Latencies are kept to three digits, from a microsecond to a minute.
const (
	shortest = time.Microsecond
	longest  = time.Minute
	digits   = 3
)

// A recorder takes what the workers measure. They share it: they come once for
// a batch, and a histogram for each would take more memory than all of a run.
type recorder struct {
	mu     sync.Mutex // guards the fields below
	total  *hdrhistogram.Histogram
	second *hdrhistogram.Histogram // not yet in total
	failed int64
	first  string // of the failures
	late   int64  // due, and never sent
}

func newRecorder() *recorder {
	histogram := func() *hdrhistogram.Histogram {
		return hdrhistogram.New(int64(shortest), int64(longest), digits)
	}
	return &recorder{total: histogram(), second: histogram()}
}

// add records n replies of one latency. The caller holds the lock.
func (r *recorder) add(latency time.Duration, n int) {
	_ = r.second.RecordValues(int64(min(max(latency, 0), longest)), int64(n)) // in range, so it can't fail
}

// refused records the errors among replies. The caller holds the lock.
func (r *recorder) refused(got replies) {
	if r.failed == 0 {
		r.first = got.first
	}
	r.failed += int64(got.failed)
}

// unsent records requests that were due and never sent.
func (r *recorder) unsent(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.late += max(n, 0)
}

// A Sample is what happened in about a second.
type Sample struct {
	At     float64 `json:"at_seconds"` // its end, since the beginning
	Rate   float64 `json:"operations_per_second"`
	P99    int64   `json:"p99_ns"`
	Errors int64   `json:"errors"` // so far
}

// cut ends a second.
func (r *recorder) cut(from, to time.Duration) Sample {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Sample{
		At: to.Seconds(), Rate: float64(r.second.TotalCount()) / (to - from).Seconds(),
		P99: r.second.ValueAtPercentile(99), Errors: r.failed,
	}
	r.total.Merge(r.second)
	r.second.Reset()
	return s
}

// sample cuts each second. The returned function ends it and returns the
// samples.
func (r *recorder) sample(tick func(Sample)) (end func() []Sample) {
	began := time.Now()
	var samples []Sample
	last := time.Duration(0)
	cut := func() {
		now := time.Since(began)
		samples = append(samples, r.cut(last, now))
		last = now
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				cut()
				if tick != nil {
					tick(samples[len(samples)-1])
				}
			case <-stop:
				return
			}
		}
	}()
	return func() []Sample {
		close(stop)
		<-stopped
		// The rest of a second is no sample of a rate, unless there is no other.
		if rest := time.Since(began) - last; rest > time.Second/2 || len(samples) == 0 {
			cut()
		}
		return samples
	}
}

// A Report is what a run measured.
type Report struct {
	Config      Config    `json:"config"`
	Began       time.Time `json:"began"`
	Seconds     float64   `json:"seconds"`
	Interrupted bool      `json:"interrupted,omitempty"`

	Operations int64   `json:"operations"` // replies, errors among them
	Rate       float64 `json:"operations_per_second"`
	Errors     int64   `json:"errors"`
	FirstError string  `json:"first_error,omitempty"`
	Unsent     int64   `json:"unsent,omitempty"` // requests of an open loop that were due, and not sent before the end

	Latency Latency `json:"latency_ns"`
	Curve   []Point `json:"curve"`
	Client  *Usage  `json:"client,omitempty"` // nil if unknown
	Server  *Usage  `json:"server,omitempty"` // nil if unknown

	Series []Sample `json:"series"`
}

// Latency is in nanoseconds.
type Latency struct {
	Min  int64 `json:"min"`
	Mean int64 `json:"mean"`
	P50  int64 `json:"p50"`
	P90  int64 `json:"p90"`
	P99  int64 `json:"p99"`
	P999 int64 `json:"p999"`
	Max  int64 `json:"max"`
}

// A Point of the curve says that so many percent took no longer.
type Point struct {
	Percentile float64 `json:"percentile"`
	NS         int64   `json:"ns"`
}

// Usage is the CPU time of a process.
type Usage struct {
	PID            int     `json:"pid"`
	CPUNSPerOp     float64 `json:"cpu_ns_per_operation"`
	Cores          float64 `json:"cores"` // kept busy
	CPUSecondsUsed float64 `json:"cpu_seconds"`
}

// usage reads a meter: nil if the process is unknown, or did nothing.
func usage(m *proc.Meter, pid int, operations int64, took time.Duration) *Usage {
	cpu, err := m.Read()
	if err != nil || operations == 0 {
		return nil
	}
	return &Usage{pid, float64(cpu) / float64(operations), cpu.Seconds() / took.Seconds(), cpu.Seconds()}
}

// report returns what was recorded.
func (r *recorder) report() *Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total.Merge(r.second)
	r.second.Reset()
	h := r.total
	at := h.ValueAtPercentile
	return &Report{
		Operations: h.TotalCount(), Errors: r.failed, FirstError: r.first, Unsent: r.late,
		Latency: Latency{
			Min: h.Min(), Mean: int64(h.Mean()), P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), Max: h.Max(),
		},
		Curve: curve(h),
	}
}

// curve returns the percentiles that h has the numbers for.
func curve(h *hdrhistogram.Histogram) []Point {
	points := []Point{{0, h.Min()}}
	for rest := 1.0; ; rest /= 10 { // of the operations: those that took longer
		for _, part := range []float64{0.75, 0.5, 0.25, 0.1} {
			if part*rest*float64(h.TotalCount()) < 1 {
				return points
			}
			percentile := math.Round(1e9*(1-part*rest)) / 1e7
			points = append(points, Point{percentile, h.ValueAtPercentile(percentile)})
		}
	}
}
