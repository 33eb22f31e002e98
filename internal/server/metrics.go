package server

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc/codes"

	"github.com/quipudb/quipu/internal/port"
)

// hotMax is of how many counters there are metrics of their own. Each is a few
// series of Prometheus, which keeps them long after the counter is cold.
const hotMax = 10

// A Meter reports meters by name, such as *quipu.DB does. Names that end in
// _total are counters, the rest are gauges.
type Meter interface {
	Meters(f func(name, help string, value float64))
}

// Metrics is everything that is measured, for Prometheus to collect. It is
// safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec

	calls       *prometheus.CounterVec
	callSeconds *prometheus.HistogramVec

	commandSeconds *Weighted
}

// buckets are those of all histograms, in seconds.
var buckets = [...]float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

// NewMetrics returns metrics of the Go runtime, the process, the doors, and
// whatever the meter counts; also of the hottest counters, if it knows them.
func NewMetrics(m Meter) *Metrics {
	ms := &Metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quipu_http_requests_total",
			Help: "HTTP requests answered.",
		}, []string{"method", "route", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "quipu_http_request_duration_seconds",
			Help:    "Time from the head of an HTTP request to its reply.",
			Buckets: buckets[:],
		}, []string{"method", "route"}),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quipu_rpc_calls_total",
			Help: "RPC calls answered; of a stream, its batches.",
		}, []string{"method", "code"}),
		callSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "quipu_rpc_call_duration_seconds",
			Help:    "Time from an RPC request to its reply; of a stream, from a batch to its answer.",
			Buckets: buckets[:],
		}, []string{"method"}),
		commandSeconds: &Weighted{
			desc: prometheus.NewDesc("quipu_resp_command_duration_seconds",
				"Time from when a RESP command was read to when its reply was sent.", nil, nil),
			counts: make([]atomic.Uint64, len(buckets)+1),
		},
	}
	ms.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		ms.requests, ms.seconds, ms.calls, ms.callSeconds, ms.commandSeconds, collector{m},
	)
	if h, ok := m.(hotMeter); ok {
		ms.registry.MustRegister(hotCollector{h})
	}
	return ms
}

// Watch adds the connections of a door's listener.
func (m *Metrics) Watch(door string, l *Listener) {
	labels := prometheus.Labels{"door": door}
	gauge := func(name, help string, of func(Connections) int64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels},
			func() float64 { return float64(of(l.Connections())) })
	}
	counter := func(name, help string, of func(Connections) int64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels},
			func() float64 { return float64(of(l.Connections())) })
	}
	m.registry.MustRegister(
		gauge("quipu_connections_open", "Connections open.",
			func(c Connections) int64 { return c.Open }),
		gauge("quipu_connections_strangers", "Connections open that have shown no API key where one is required.",
			func(c Connections) int64 { return c.Strangers }),
		counter("quipu_connections_refused_total", "Connections refused at the limit.",
			func(c Connections) int64 { return c.Refused }),
		counter("quipu_strangers_dropped_total", "Connections without an API key that made room for newer ones.",
			func(c Connections) int64 { return c.Dropped }),
		counter("quipu_strangers_expired_total", "Connections that showed no API key in time.",
			func(c Connections) int64 { return c.Expired }),
	)
}

// WatchBudget adds the memory of large requests.
func (m *Metrics) WatchBudget(b *Budget) {
	m.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "quipu_request_memory_bytes", Help: "Memory that large requests take.",
		}, func() float64 { used, _, _ := b.meters(); return used }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "quipu_requests_waiting", Help: "Large requests that wait for memory.",
		}, func() float64 { _, waiting, _ := b.meters(); return waiting }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "quipu_requests_refused_total", Help: "Large requests that got no memory in time.",
		}, func() float64 { _, _, refused := b.meters(); return refused }),
	)
}

// A MemoryPart is what one part of a server may hold.
type MemoryPart struct {
	Name  string
	Bytes int64
}

// WatchMemory adds what the parts of the server may hold.
func (m *Metrics) WatchMemory(parts []MemoryPart) {
	limits := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "quipu_memory_limit_bytes", Help: "Memory that each part of the server may hold, and all of them together.",
	}, []string{"part"})
	for _, p := range parts {
		limits.WithLabelValues(p.Name).Set(float64(p.Bytes))
	}
	m.registry.MustRegister(limits)
}

// WatchMeter adds what a door counts by itself.
func (m *Metrics) WatchMeter(meter Meter) { m.registry.MustRegister(collector{meter}) }

// Handler serves the metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// A Route measures one route of an HTTP door. Its series are made when they are
// first needed: most routes have no callers, and a histogram is many series.
type Route struct {
	metrics       *Metrics
	method, route string
	ok            func() prometheus.Counter
	seconds       func() prometheus.Observer
}

// Route returns the meter of a route.
func (m *Metrics) Route(method, route string) *Route {
	return &Route{
		metrics: m, method: method, route: route,
		ok:      sync.OnceValue(func() prometheus.Counter { return m.requests.WithLabelValues(method, route, "200") }),
		seconds: sync.OnceValue(func() prometheus.Observer { return m.seconds.WithLabelValues(method, route) }),
	}
}

// Observe counts one request.
func (r *Route) Observe(code int, d time.Duration) {
	r.seconds().Observe(d.Seconds())
	if code == http.StatusOK { // Fast path: no look-up by labels.
		r.ok().Inc()
		return
	}
	r.metrics.requests.WithLabelValues(r.method, r.route, strconv.Itoa(code)).Inc()
}

// A Call measures one method of the RPC door. Its series are made when they are
// first needed.
type Call struct {
	metrics *Metrics
	method  string
	ok      func() prometheus.Counter
	seconds func() prometheus.Observer
}

// Call returns the meter of a method.
func (m *Metrics) Call(method string) *Call {
	return &Call{
		metrics: m, method: method,
		ok:      sync.OnceValue(func() prometheus.Counter { return m.calls.WithLabelValues(method, codes.OK.String()) }),
		seconds: sync.OnceValue(func() prometheus.Observer { return m.callSeconds.WithLabelValues(method) }),
	}
}

// Observe counts one call.
func (c *Call) Observe(code codes.Code, d time.Duration) {
	c.seconds().Observe(d.Seconds())
	if code == codes.OK { // Fast path: no look-up by labels.
		c.ok().Inc()
		return
	}
	c.metrics.calls.WithLabelValues(c.method, code.String()).Inc()
}

// Commands returns the meter of the RESP door's commands.
func (m *Metrics) Commands() *Weighted { return m.commandSeconds }

// A Weighted is a histogram that takes many observations of one value at once:
// commands that came together and were answered together. It takes no lock.
type Weighted struct {
	desc   *prometheus.Desc
	counts []atomic.Uint64 // by bucket, and one for what is above all
	micros atomic.Uint64   // the sum: nanoseconds would not last
}

// Observe counts n that each took d.
func (w *Weighted) Observe(d time.Duration, n int) {
	i, _ := slices.BinarySearch(buckets[:], d.Seconds())
	w.counts[i].Add(uint64(n))
	w.micros.Add(uint64(d) * uint64(n) / 1000)
}

// Describe implements prometheus.Collector.
func (w *Weighted) Describe(ch chan<- *prometheus.Desc) { ch <- w.desc }

// Collect implements prometheus.Collector.
func (w *Weighted) Collect(ch chan<- prometheus.Metric) {
	cumulative, count := make(map[float64]uint64, len(buckets)), uint64(0)
	for i, le := range buckets {
		count += w.counts[i].Load()
		cumulative[le] = count
	}
	count += w.counts[len(buckets)].Load()
	ch <- prometheus.MustNewConstHistogram(w.desc, count, float64(w.micros.Load())/1e6, cumulative)
}

// collector turns a Meter into metrics. It describes none beforehand, because
// which there are is the meter's affair.
type collector struct{ meter Meter }

func (c collector) Describe(chan<- *prometheus.Desc) {}

func (c collector) Collect(ch chan<- prometheus.Metric) {
	c.meter.Meters(func(name, help string, value float64) {
		kind := prometheus.GaugeValue
		if strings.HasSuffix(name, "_total") {
			kind = prometheus.CounterValue
		}
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, nil), kind, value)
	})
}

// A hotMeter knows which counters are the hottest, such as *quipu.DB does.
type hotMeter interface {
	Hottest(n int) []port.HotCounter
}

// hotCollector makes metrics of the hottest counters, as they are when it is
// asked.
type hotCollector struct{ meter hotMeter }

var (
	hotLabels = []string{"namespace", "key"}
	hotRate   = prometheus.NewDesc("quipu_hot_rate",
		"Writes a second through this server, of the ten hottest counters.", hotLabels, nil)
	hotShards = prometheus.NewDesc("quipu_hot_shards",
		"Cells that each of them is laid out over.", hotLabels, nil)
	hotGrowth = prometheus.NewDesc("quipu_hot_growth_rate",
		"By how much a second each of them that is split changes, whoever writes to it.", hotLabels, nil)
	hotRollup = prometheus.NewDesc("quipu_hot_rollup_age_ratio",
		"Age of the total that is kept of each of them, over its interval, if one is.", hotLabels, nil)
	hotWaiting = prometheus.NewDesc("quipu_hot_waiting_ratio",
		"Which part of the time of writes to each of them was waiting for others who change it.", hotLabels, nil)
	hotRetries = prometheus.NewDesc("quipu_hot_retries",
		"Writes a second to each of them that had to be made again, because others had changed it meanwhile.", hotLabels, nil)
	hotP99 = prometheus.NewDesc("quipu_hot_p99_seconds",
		"Time that the slowest write in a hundred to each of them took of late, if some were timed.", hotLabels, nil)
	hotSlowest = prometheus.NewDesc("quipu_hot_shard_seconds_max",
		"Time that the slowest write in a hundred to the slowest shard of each of them that is split took of late.", hotLabels, nil)
	hotDecided = prometheus.NewDesc("quipu_hot_decided_ratio",
		"Which part of the writes to each of them only its own cell can take, so that no shard helps.", hotLabels, nil)
	hotAsked = prometheus.NewDesc("quipu_hot_value_ratio",
		"Which part of the writes to each of them ask for its value.", hotLabels, nil)
)

func (c hotCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{hotRate, hotShards, hotGrowth, hotRollup, hotWaiting, hotRetries, hotDecided, hotAsked, hotP99, hotSlowest} {
		ch <- d
	}
}

func (c hotCollector) Collect(ch chan<- prometheus.Metric) {
	for _, h := range c.meter.Hottest(hotMax) {
		gauge := func(d *prometheus.Desc, v float64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, h.Namespace, h.Key)
		}
		gauge(hotRate, h.Rate)
		gauge(hotShards, float64(h.Shards))
		gauge(hotWaiting, h.Waiting)
		gauge(hotRetries, h.RetryRate)
		gauge(hotDecided, h.Decided)
		gauge(hotAsked, h.Asked)
		if h.P99 > 0 {
			gauge(hotP99, h.P99.Seconds())
		}
		if h.Shards > 1 {
			gauge(hotGrowth, h.GrowthRate)
			gauge(hotSlowest, h.SlowestShard.Seconds())
		}
		if h.HasRollup {
			gauge(hotRollup, float64(h.RollupAge)/float64(h.RollupEvery))
		}
	}
}
