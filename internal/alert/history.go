package alert

import "time"

// A Sample is the value of a series at one moment.
type Sample struct {
	Name   string
	Labels map[string]string
	Value  float64
}

const (
	// keep is how long readings are kept: as far as the longest range of a rule looks.
	keep = time.Hour + time.Minute
	// seriesMax is how many series are kept. Those beyond it are left out.
	seriesMax = 10_000
)

// A History is what the metrics were in the last hour. It is not safe for concurrent
// use.
type History struct {
	wanted map[string]bool // names
	series map[string]map[string]*series
	count  int
	began  time.Time
}

type point struct {
	at    time.Time
	value float64
}

// A series is one metric with its labels.
type series struct {
	labels  map[string]string
	points  []point // never empty
	present bool    // in the last reading
}

// newHistory returns a history of the metrics of some names.
func newHistory(names map[string]bool) *History {
	return &History{wanted: names, series: map[string]map[string]*series{}}
}

// Add adds a reading of all metrics.
func (h *History) Add(at time.Time, samples []Sample) {
	if h.began.IsZero() {
		h.began = at
	}
	for _, of := range h.series {
		for _, s := range of {
			s.present = false
		}
	}
	for _, one := range samples {
		if !h.wanted[one.Name] {
			continue
		}
		of := h.series[one.Name]
		if of == nil {
			of = map[string]*series{}
			h.series[one.Name] = of
		}
		k := key(one.Labels)
		s := of[k]
		if s == nil {
			if h.count >= seriesMax {
				continue
			}
			h.count++
			s = &series{labels: one.Labels}
			of[k] = s
		}
		s.present = true
		s.points = append(s.points, point{at, one.Value})
	}
	h.forget(at.Add(-keep))
}

// forget forgets what was before a moment.
func (h *History) forget(before time.Time) {
	for _, of := range h.series {
		for k, s := range of {
			old := 0
			for old < len(s.points) && s.points[old].at.Before(before) {
				old++
			}
			if s.points = s.points[old:]; len(s.points) == 0 {
				delete(of, k)
				h.count--
			}
		}
	}
}

// named returns the series of a metric.
func (h *History) named(name string) map[string]*series { return h.series[name] }
