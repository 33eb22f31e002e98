package server

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc/codes"
)

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
}

// NewMetrics returns metrics of the Go runtime, the process, the doors, and
// whatever the meter counts.
func NewMetrics(m Meter) *Metrics {
	buckets := []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	ms := &Metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quipu_http_requests_total",
			Help: "HTTP requests answered.",
		}, []string{"method", "route", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "quipu_http_request_duration_seconds",
			Help:    "Time from the head of an HTTP request to its reply.",
			Buckets: buckets,
		}, []string{"method", "route"}),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quipu_rpc_calls_total",
			Help: "RPC calls answered; of a stream, its batches.",
		}, []string{"method", "code"}),
		callSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "quipu_rpc_call_duration_seconds",
			Help:    "Time from an RPC request to its reply; of a stream, from a batch to its answer.",
			Buckets: buckets,
		}, []string{"method"}),
	}
	ms.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		ms.requests, ms.seconds, ms.calls, ms.callSeconds, collector{m},
	)
	return ms
}

// Watch adds the connections of a door's listener.
func (m *Metrics) Watch(door string, l *Listener) {
	labels := prometheus.Labels{"door": door}
	m.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "quipu_connections_open", Help: "Connections open.", ConstLabels: labels,
		}, func() float64 { return float64(l.open.Load()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "quipu_connections_refused_total", Help: "Connections refused at the limit.", ConstLabels: labels,
		}, func() float64 { return float64(l.refused.Load()) }),
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

// WatchMeter adds what a door counts by itself.
func (m *Metrics) WatchMeter(meter Meter) { m.registry.MustRegister(collector{meter}) }

// Handler serves the metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// A Route measures one route of an HTTP door.
type Route struct {
	metrics       *Metrics
	method, route string
	ok            prometheus.Counter
	seconds       prometheus.Observer
}

// Route returns the meter of a route.
func (m *Metrics) Route(method, route string) *Route {
	return &Route{
		metrics: m, method: method, route: route,
		ok:      m.requests.WithLabelValues(method, route, "200"),
		seconds: m.seconds.WithLabelValues(method, route),
	}
}

// Observe counts one request.
func (r *Route) Observe(code int, d time.Duration) {
	r.seconds.Observe(d.Seconds())
	if code == http.StatusOK { // Fast path: no look-up by labels.
		r.ok.Inc()
		return
	}
	r.metrics.requests.WithLabelValues(r.method, r.route, strconv.Itoa(code)).Inc()
}

// A Call measures one method of the RPC door.
type Call struct {
	metrics *Metrics
	method  string
	ok      prometheus.Counter
	seconds prometheus.Observer
}

// Call returns the meter of a method.
func (m *Metrics) Call(method string) *Call {
	return &Call{
		metrics: m, method: method,
		ok:      m.calls.WithLabelValues(method, codes.OK.String()),
		seconds: m.callSeconds.WithLabelValues(method),
	}
}

// Observe counts one call.
func (c *Call) Observe(code codes.Code, d time.Duration) {
	c.seconds.Observe(d.Seconds())
	if code == codes.OK { // Fast path: no look-up by labels.
		c.ok.Inc()
		return
	}
	c.metrics.calls.WithLabelValues(c.method, code.String()).Inc()
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
