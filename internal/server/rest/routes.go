package rest

import (
	"net/http"
	"net/http/pprof"
	"strings"

	"github.com/quipudb/quipu/internal/access"
)

// A route is one method of one path. The OpenAPI document describes the same
// ones, and a test compares the two.
type route struct {
	method string
	path   string
	serve  func(*call) error

	known       []string // parameters after the question mark
	anyQuery    bool     // takes any parameters
	anyOrigin   bool     // served to web pages of other origins: changes nothing, tells little, costs little
	inNamespace bool     // the path names a namespace
	ofNamespace bool     // it is of a namespace, which the path may name
	page        bool     // a file of the dashboard
	keysInBody  bool     // the handler asks whether its keys are granted
	reads       bool     // changes nothing, though it is a POST
	entry       bool     // gives a login
}

// safe reports whether a call of the route changes nothing.
func (r *route) safe() bool { return r.method == "GET" || r.reads }

// readParams are the parameters of a read.
var readParams = []string{"read", "session", "max_staleness", "max_error"}

// topParams are the parameters of a top list.
var topParams = []string{"k", "from", "to", "trend"}

const (
	apiPath       = "/api/v1"
	namespacePath = apiPath + "/namespaces/{ns}"
)

// counterRoutes are the routes of one namespace. They are served twice: for
// the namespace "default", and for the one the path names.
func counterRoutes() []route {
	return []route{
		{method: "POST", path: "/counters/{key}/increment", serve: increment},
		{method: "POST", path: "/counters/{key}/decrement", serve: decrement},
		{method: "GET", path: "/counters/{key}", anyOrigin: true, serve: get, known: append(readParams[:4:4], "at")},
		{method: "GET", path: "/counters/{key}/exact", serve: getExact},
		{method: "PUT", path: "/counters/{key}", serve: set},
		{method: "POST", path: "/counters/{key}/reset", serve: reset},
		{method: "DELETE", path: "/counters/{key}", serve: remove, known: []string{"reason", "actor"}},
		{method: "POST", path: "/counters/{key}/adjust", serve: adjust},
		{method: "POST", path: "/counters/{key}/recount", serve: recount},
		{method: "POST", path: "/counters/{key}/reserve", serve: reserve},
		{method: "POST", path: "/reservations/{id}/commit", serve: commit},
		{method: "POST", path: "/reservations/{id}/release", serve: release},
		{method: "POST", path: "/reservations/{id}/extend", serve: extend},
		{method: "GET", path: "/reservations/{id}", serve: reserved},
		{method: "GET", path: "/reservations", serve: reservedOf, known: []string{"key", "who", "limit", "cursor"}},
		{method: "GET", path: "/counters/{key}/range", serve: rangeOf, known: []string{"from", "to", "step", "zone", "rate"}},
		{method: "GET", path: "/counters/{key}/by/{dimension}", serve: by, known: []string{"from", "to", "top"}},
		{method: "GET", path: "/tops/{name}", serve: top, known: topParams},
		{method: "GET", path: "/counters/{key}/top/{name}", serve: top, known: topParams},
		{method: "GET", path: "/uniques/{key}", serve: uniques, known: []string{"from", "to", "by", "top", "with"}},
		{method: "POST", path: "/uniques/{key}", serve: addUniques},
		{method: "PUT", path: "/sketches/{key}", serve: makeSketch},
		{method: "GET", path: "/sketches/{key}", serve: sketchOf, known: []string{"k"}},
		{method: "POST", path: "/sketches/{key}/items", serve: addItems},
		{method: "POST", path: "/sketches/{key}/query", serve: askItems, reads: true},
		{method: "POST", path: "/sketches/{key}/merge", serve: mergeSketches},
		{method: "GET", path: "/counters/{key}/ledger", serve: ledger, known: []string{"limit", "cursor", "actor", "token", "from", "to"}},
		{method: "GET", path: "/range", serve: rangeOfPrefix, known: []string{"prefix", "from", "to", "step", "zone", "rate"}},
		{method: "DELETE", path: "/subjects/{who}", serve: erase, known: []string{"cursor"}},
		{method: "GET", path: "/definitions", serve: definitions},
		{method: "PUT", path: "/definitions", serve: define, known: []string{"dry_run"}},
		{method: "PUT", path: "/reactions/{key}/{user}", serve: react},
		{method: "DELETE", path: "/reactions/{key}/{user}", serve: unreact},
		{method: "GET", path: "/reactions/{key}/{user}", serve: chosen},
		{method: "GET", path: "/reactions/{key}", serve: reactionsOf},
		{method: "POST", path: "/reactions/read", serve: chosenOf, keysInBody: true, reads: true},
		{method: "GET", path: "/members/{key}", serve: members, known: []string{"choice", "limit", "cursor"}},
		{method: "POST", path: "/limits/{name}/allow", serve: allow, known: []string{"status"}},
		{method: "GET", path: "/limits/{name}/clients/{who}", serve: client},
		{method: "DELETE", path: "/limits/{name}/clients/{who}", serve: resetClient},
		{method: "POST", path: "/batch", serve: batch, keysInBody: true},
		{method: "POST", path: "/events", serve: events, keysInBody: true, known: []string{"key", "amount", "who", "dims"}},
		{method: "POST", path: "/read", serve: readMany, keysInBody: true, known: readParams, reads: true},
		{method: "GET", path: "/counters", serve: list, known: []string{"prefix", "limit", "cursor"}},
		{method: "GET", path: "/openmetrics", serve: openMetrics, known: []string{"prefix", "limit", "name", "type"}},
		{method: "GET", path: "/sum", serve: sum, known: []string{"prefix", "cursor"}},
		{method: "GET", path: "/tokens/{id}", serve: lookup, known: []string{"key"}},
		{method: "POST", path: "/tokens/{id}/settle", serve: settle, known: []string{"key"}},
		{method: "POST", path: "/tokens/{id}/undo", serve: undo, known: []string{"key"}},
		{method: "GET", path: "/live", serve: live, known: []string{"key"}},
		{method: "GET", path: "/counters/{key}/live", serve: watch, known: readParams},
		{method: "GET", path: "/policies/explain", serve: explainPolicy, known: []string{"key"}},
	}
}

// routes returns every route that the OpenAPI document describes.
func routes() []route {
	rs := []route{
		{method: "GET", path: apiPath + "/backup", serve: backup},
		{method: "POST", path: apiPath + "/verify", serve: verify, reads: true},
		{method: "GET", path: apiPath + "/hot", serve: hot, known: []string{"limit"}},
		{method: "GET", path: apiPath + "/overview", serve: overview},
		{method: "GET", path: apiPath + "/servers", serve: servers},
		{method: "GET", path: apiPath + "/alerts", serve: alerts},
		{method: "GET", path: apiPath + "/policies", serve: listPolicies},
		{method: "PUT", path: apiPath + "/policies", serve: replacePolicies, known: []string{"dry_run"}},
		{method: "GET", path: apiPath + "/keys", serve: listKeys},
		{method: "POST", path: apiPath + "/keys", serve: createKey},
		{method: "POST", path: apiPath + "/keys/{id}/rotate", serve: rotateKey},
		{method: "DELETE", path: apiPath + "/keys/{id}", serve: revokeKey},
		{method: "GET", path: apiPath + "/audit", serve: auditTrail, known: []string{"limit"}},
		{method: "GET", path: apiPath + "/session", serve: whoAmI},
		{method: "POST", path: apiPath + "/session", serve: logIn, entry: true},
		{method: "DELETE", path: apiPath + "/session", serve: logOut},
		{method: "GET", path: "/healthz", anyOrigin: true, anyQuery: true, serve: healthz},
		{method: "GET", path: "/readyz", anyOrigin: true, anyQuery: true, serve: readyz},
		{method: "GET", path: "/metrics", anyQuery: true, serve: metrics},
		{method: "GET", path: "/openapi.json", anyOrigin: true, anyQuery: true, serve: openapi},
	}
	for _, r := range counterRoutes() {
		r.ofNamespace = true
		in := r
		in.path, in.inNamespace = namespacePath+r.path, true
		r.path = apiPath + r.path
		rs = append(rs, r, in)
	}
	return rs
}

// profiles are the routes of --pprof.
func profiles() []route {
	rs := []route{
		{method: "GET", path: "/debug/pprof/cmdline", serve: stream(pprof.Cmdline)},
		{method: "GET", path: "/debug/pprof/profile", serve: stream(pprof.Profile)},
		{method: "GET", path: "/debug/pprof/symbol", serve: stream(pprof.Symbol)},
		{method: "GET", path: "/debug/pprof/trace", serve: stream(pprof.Trace)},
		{method: "GET", path: "/debug/pprof/{profile}", serve: stream(pprof.Index)},
	}
	for i := range rs {
		rs[i].anyQuery = true
	}
	return rs
}

// mount makes the tree of routes. What matches none is answered with problem
// details too: a known path with another method by 405, anything else by 404.
func (h *Handler) mount(pprof bool) {
	rs := append(routes(), pages()...)
	if pprof {
		rs = append(rs, profiles()...)
	}
	for _, r := range rs {
		h.root.add(h.endpoint(r))
	}
	h.root.close(func(path string, methods []string) *endpoint {
		return h.endpoint(route{method: "other", path: path, anyOrigin: true, anyQuery: true, serve: notAllowed(methods)})
	})
	h.missing = h.endpoint(route{method: "other", path: "other", anyOrigin: true, anyQuery: true, serve: notFound})
}

func (h *Handler) endpoint(r route) *endpoint {
	e := &endpoint{route: r, meter: h.metrics.Route(r.method, r.path), spans: spansOf(&r)}
	if e.need, e.placed = h.needs.Of(r.operation()); r.method == "other" {
		e.need = access.Need{} // there is nothing to be granted
	}
	return e
}

func notAllowed(methods []string) func(*call) error {
	allow := strings.Join(methods, ", ")
	return func(c *call) error {
		c.w.Header().Set("Allow", allow)
		return &problem{
			status: http.StatusMethodNotAllowed, kind: "method", title: "Method not allowed",
			detail: c.r.Method + " is not allowed here: want " + allow,
		}
	}
}

func notFound(*call) error {
	return &problem{
		status: http.StatusNotFound, kind: "not_found", title: "No such path",
		detail: "nothing is served at this path; /openapi.json lists what is",
	}
}
