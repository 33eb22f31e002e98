// Package rest serves the HTTP API: it reads JSON, calls the DB, and replies
// JSON.
//
// Every reply is either 200 as the OpenAPI document says, or problem details
// (RFC 9457) that name the kind of the error and its place. Every write can be
// repeated with an Idempotency-Key and counts once. No call outlives its
// deadline. No panic, file name or stack reaches a client.
//
// The most common calls, increment and read, use hand-written decoding and
// encoding and share their deadlines (see deadlines), so that they cost little
// more than net/http and the DB.
package rest

import (
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/access"
	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/internal/server/pulse"
	"github.com/quipudb/quipu/internal/server/roster"
	"github.com/quipudb/quipu/internal/trace"
)

// TimeoutDefault is the deadline of a call if the options name none.
const TimeoutDefault = 5 * time.Second

// Options are what the door is told. The zero value is an open door.
type Options struct {
	Gate    *server.Gate    // who may come in, and do what; nil means everyone, and everything
	Metrics *server.Metrics // where requests are measured; nil for a set of its own
	Logger  *slog.Logger    // requests at debug level, faults at error; nil for slog.Default()
	Timeout time.Duration   // the deadline of a call; 0 for TimeoutDefault
	Budget  *server.Budget  // memory of large requests; nil for one of RequestMemoryDefault
	Pprof   bool            // serve /debug/pprof/, for administrators
	Tracer  *trace.Tracer   // where calls have spans; nil if none have

	// Policies keeps the policies that callers make; nil if they can't make any.
	Policies Policies

	// Pulse is how the server fares, and Roster how all servers of its store do. Both are
	// closed by whoever made them; if one is nil, the door makes its own.
	Pulse  *pulse.Pulse
	Roster *roster.Roster

	// Hosts are the names by which callers may know this server, besides IP
	// addresses; nil is any. A web page can have its own name point here, and
	// then is of the same origin: only the name gives it away.
	Hosts []string
}

// A Handler serves the REST API of a DB. It is safe for concurrent use.
type Handler struct {
	db         *quipu.DB
	cli        *quipu.DB // the same, as the command line uses it
	gate       *server.Gate
	needs      access.Needs
	metrics    *server.Metrics
	tracer     *trace.Tracer
	logger     *slog.Logger
	policies   Policies
	deadlines  deadlines
	budget     *server.Budget
	hosts      []string
	ids        requestIDs
	calls      sync.Pool     // of *call
	long       chan struct{} // holds one place: backup and verify go one at a time
	pulse      *pulse.Pulse
	roster     *roster.Roster
	closePulse func()
	streams    streams
	endStreams func()
	root       node
	missing    *endpoint // answers for paths that name nothing
}

// New returns the door of a DB. Close it after the last request; the DB stays
// open.
func New(db *quipu.DB, o Options) *Handler {
	if o.Metrics == nil {
		o.Metrics = server.NewMetrics(db.Port())
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Timeout == 0 {
		o.Timeout = TimeoutDefault
	}
	if o.Budget == nil {
		o.Budget = server.NewBudget(server.RequestMemoryDefault)
	}
	if o.Policies == nil {
		o.Policies = fixed{db}
	}
	if o.Gate == nil {
		o.Gate = server.NewGate(server.GateOptions{Logger: o.Logger})
	}
	h := &Handler{
		db:       db.Via("rest"),
		cli:      db.Via("cli"),
		gate:     o.Gate,
		needs:    access.REST(),
		metrics:  o.Metrics,
		tracer:   o.Tracer,
		logger:   o.Logger,
		policies: o.Policies,
		long:     make(chan struct{}, 1),
		budget:   o.Budget,
		hosts:    o.Hosts,
	}
	h.streams.places.max, h.streams.watches.max, h.streams.ending = liveMax, watchMax, make(chan struct{})
	h.endStreams = sync.OnceFunc(func() { close(h.streams.ending) })
	if h.pulse, h.closePulse = o.Pulse, func() {}; h.pulse == nil {
		h.pulse = pulse.New(o.Metrics, db.Port(), pulse.About{}, o.Logger)
		h.closePulse = h.pulse.Close
	}
	if h.roster = o.Roster; h.roster == nil {
		h.roster = roster.New(db.Port().Store(), h.pulse, roster.Options{})
	}
	h.deadlines.start(o.Timeout)
	h.ids.start()
	h.calls.New = func() any { return new(call) }
	h.mount(o.Pprof)
	return h
}

// Close ends the calls still under way. Until then, the door reports that it
// is ready; after it, that it is not.
func (h *Handler) Close() {
	h.deadlines.stop()
	h.endStreams()
	h.closePulse()
}

// An endpoint is one route, ready to serve.
type endpoint struct {
	route
	need   access.Need
	placed bool // the table says so
	meter  *server.Route
	spans  string // what its spans are called; "" if it has none
}

// ServeHTTP answers one request: the chain of every call, in one place.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := h.calls.Get().(*call)
	c.begin(h, w, r)
	defer c.end()
	err := c.admit()
	if err == nil {
		err = c.serve(c)
	}
	if err != nil {
		c.fail(err)
	}
}

// admit checks what must hold before a call is served.
func (c *call) admit() error {
	if c.h.hosts != nil && !c.h.knownAs(c.r.Host) {
		return &problem{
			status: http.StatusMisdirectedRequest, kind: "misdirected", title: "Unknown host",
			detail: "this server is not known as " + strconv.Quote(c.r.Host) +
				": without API keys it answers to IP addresses, localhost and the names of --allow-host",
		}
	}
	if err := c.identify(); err != nil {
		return err
	}
	if !c.anyOrigin && crossOrigin(c.r) {
		return foreign()
	}
	if err := c.forged(); err != nil {
		return err
	}
	if err := c.parseQuery(); err != nil {
		return err
	}
	return c.permit()
}

// crossOrigin reports whether a request comes from a page of another origin, open
// in the browser of someone who can reach this server. Such a page can't read the
// reply, but it could count, or have the server make backups all day. Browsers
// that are not old send Sec-Fetch-Site to a server on the same machine or behind
// TLS; other clients send neither header.
func crossOrigin(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin", "none":
		return false
	case "":
		origin := r.Header.Get("Origin")
		if origin == "" {
			return false
		}
		from, err := url.Parse(origin)
		return err != nil || from.Host != r.Host
	default:
		return true
	}
}

// knownAs reports whether a Host header is an IP address or a known name, with
// any port.
func (h *Handler) knownAs(host string) bool {
	if _, err := netip.ParseAddrPort(host); err == nil { // Fast path.
		return true
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return true
	}
	return slices.ContainsFunc(h.hosts, func(known string) bool { return strings.EqualFold(host, known) })
}
