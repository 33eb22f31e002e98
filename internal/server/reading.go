package server

import (
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/quipudb/quipu/internal/alert"
)

// A Reading is what the metrics were at one moment, as far as an overview needs
// them.
type Reading struct {
	At     time.Time
	Values map[string]float64      // metrics without labels, by name
	Doors  map[string]*DoorReading // by the names that listeners have: http, resp, rpc
	Limits map[string]float64      // memory that each part may hold
}

// A DoorReading is what one door has done since the start.
type DoorReading struct {
	Calls, Errors float64           // errors are those that are not the callers'
	Connections   float64           // open now
	Buckets       [bucketsN]float64 // how many calls took so long; see Quantile
}

// bucketsN is how many buckets a histogram has, with that of what is above all.
const bucketsN = len(buckets) + 1

// Reading reads the metrics. It costs about as much as a scrape.
func (m *Metrics) Reading() (*Reading, error) {
	r := &Reading{At: time.Now(), Values: map[string]float64{}, Doors: map[string]*DoorReading{}, Limits: map[string]float64{}}
	families, err := m.registry.Gather()
	if err != nil {
		return nil, err
	}
	for _, f := range families {
		for _, s := range f.GetMetric() {
			r.take(f.GetName(), s)
		}
	}
	return r, nil
}

// take takes one series into the reading.
func (r *Reading) take(name string, s *dto.Metric) {
	switch name {
	case "quipu_http_requests_total":
		if ofCalls(labelOf(s, "route")) {
			r.calls("http", s, failedHTTP(labelOf(s, "code")))
		}
	case "quipu_http_request_duration_seconds":
		if ofCalls(labelOf(s, "route")) {
			r.times("http", s)
		}
	case "quipu_rpc_calls_total":
		r.calls("rpc", s, failedRPC(labelOf(s, "code")))
	case "quipu_rpc_call_duration_seconds":
		r.times("rpc", s)
	case "quipu_resp_commands_total":
		r.calls("resp", s, false)
	case "quipu_resp_failures_total":
		r.door("resp").Errors += s.GetCounter().GetValue()
	case "quipu_resp_command_duration_seconds":
		r.times("resp", s)
	case "quipu_statsd_datagrams_total":
		r.calls("statsd", s, false)
	case "quipu_connections_open":
		r.door(labelOf(s, "door")).Connections = s.GetGauge().GetValue()
	case "quipu_memory_limit_bytes":
		r.Limits[labelOf(s, "part")] = s.GetGauge().GetValue()
	}
	if len(s.GetLabel()) > 0 {
		return
	}
	switch {
	case s.GetCounter() != nil:
		r.Values[name] = s.GetCounter().GetValue()
	case s.GetGauge() != nil:
		r.Values[name] = s.GetGauge().GetValue()
	}
}

func (r *Reading) door(name string) *DoorReading {
	if r.Doors[name] == nil {
		r.Doors[name] = &DoorReading{}
	}
	return r.Doors[name]
}

func (r *Reading) calls(door string, s *dto.Metric, failed bool) {
	d, n := r.door(door), s.GetCounter().GetValue()
	d.Calls += n
	if failed {
		d.Errors += n
	}
}

// times adds the histogram of a route to that of its door.
func (r *Reading) times(door string, s *dto.Metric) {
	d, before := r.door(door), uint64(0)
	for i, b := range s.GetHistogram().GetBucket() {
		if i < len(buckets) {
			d.Buckets[i] += float64(b.GetCumulativeCount() - before)
			before = b.GetCumulativeCount()
		}
	}
	d.Buckets[len(buckets)] += float64(s.GetHistogram().GetSampleCount() - before)
}

// ofCalls reports whether a route of HTTP is one that callers use. The page, what is
// scraped, and what takes as long as its caller wants, would hide how they fare.
func ofCalls(route string) bool {
	name, ok := strings.CutPrefix(route, "/api/v1/")
	if !ok {
		return false
	}
	switch strings.TrimPrefix(name, "namespaces/{ns}/") {
	case "backup", "verify", "overview", "servers", "alerts", "live":
		return false
	default:
		return true
	}
}

// failedHTTP and failedRPC report whether a code is of an error that is not the
// caller's.
func failedHTTP(code string) bool { return code == "500" || code == "503" || code == "504" }

func failedRPC(code string) bool {
	switch code {
	case "Unknown", "Internal", "Unavailable", "DataLoss":
		return true
	default:
		return false
	}
}

func labelOf(s *dto.Metric, name string) string {
	for _, l := range s.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// Since returns what the door has done since an earlier reading, which may be nil.
func (d *DoorReading) Since(earlier *DoorReading) DoorReading {
	now := *d
	if earlier == nil {
		return now
	}
	now.Calls -= earlier.Calls
	now.Errors -= earlier.Errors
	for i := range now.Buckets {
		now.Buckets[i] -= earlier.Buckets[i]
	}
	return now
}

// Quantile returns how long all but the slowest part of the calls took, as
// Prometheus estimates it, and false if there were none.
func (d *DoorReading) Quantile(q float64) (time.Duration, bool) {
	total := 0.0
	for _, n := range d.Buckets {
		total += n
	}
	if total <= 0 {
		return 0, false
	}
	rank, below, low := q*total, 0.0, 0.0
	for i, high := range buckets {
		n := d.Buckets[i]
		if below+n >= rank && n > 0 {
			return seconds(low + (high-low)*(rank-below)/n), true
		}
		below, low = below+n, high
	}
	return seconds(buckets[len(buckets)-1]), true
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// Samples returns the series that are wanted by their names, as Prometheus would scrape
// them from an instance.
func (m *Metrics) Samples(wanted func(name string) bool, instance string) ([]alert.Sample, error) {
	families, err := m.registry.Gather()
	if err != nil {
		return nil, err
	}
	samples := []alert.Sample{{Name: "up", Labels: map[string]string{"job": "quipu", "instance": instance}, Value: 1}}
	for _, f := range families {
		name, buckets := f.GetName(), f.GetName()+"_bucket"
		for _, s := range f.GetMetric() {
			switch {
			case s.GetHistogram() != nil && wanted(buckets):
				for _, b := range s.GetHistogram().GetBucket() {
					le := strconv.FormatFloat(b.GetUpperBound(), 'g', -1, 64)
					samples = append(samples, alert.Sample{Name: buckets, Labels: labelsOf(s, instance, le), Value: float64(b.GetCumulativeCount())})
				}
				samples = append(samples, alert.Sample{Name: buckets, Labels: labelsOf(s, instance, "+Inf"), Value: float64(s.GetHistogram().GetSampleCount())})
			case !wanted(name):
			case s.GetCounter() != nil:
				samples = append(samples, alert.Sample{Name: name, Labels: labelsOf(s, instance, ""), Value: s.GetCounter().GetValue()})
			case s.GetGauge() != nil:
				samples = append(samples, alert.Sample{Name: name, Labels: labelsOf(s, instance, ""), Value: s.GetGauge().GetValue()})
			}
		}
	}
	return samples, nil
}

func labelsOf(s *dto.Metric, instance, le string) map[string]string {
	labels := map[string]string{"job": "quipu", "instance": instance}
	for _, l := range s.GetLabel() {
		labels[l.GetName()] = l.GetValue()
	}
	if le != "" {
		labels["le"] = le
	}
	return labels
}
