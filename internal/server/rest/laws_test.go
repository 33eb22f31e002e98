package rest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/dbtest"
	"github.com/quipudb/quipu/internal/server/rest"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

// TestLaws runs the laws of the product through REST.
func TestLaws(t *testing.T) {
	dbtest.RunThrough(t, dbtest.Door{Lacks: map[string]string{
		"a batch may be larger than what a store takes at once": "a request has at most 10,000 operations, which a store takes at once",
		"an event that is not UTF-8 is refused alone":           "JSON is UTF-8, so the whole body is refused",
		"an event with a bad time is refused alone":             "a time is text, which is decoded before anything is done, and the whole body is refused",
	}}, func(t testing.TB, o quipu.Options) func(string) dbtest.DB {
		t.Helper()
		db := quipu.New(memstore.New(memstore.Options{Limits: o.Limits, Partitions: 3}), o)
		h := rest.New(db, rest.Options{Logger: slog.New(slog.DiscardHandler)})
		srv := httptest.NewServer(h)
		t.Cleanup(func() {
			srv.Client().CloseIdleConnections()
			h.Close()
			srv.Close()
			if err := db.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
		return func(namespace string) dbtest.DB {
			return &wire{db: db, client: srv.Client(), namespace: namespace, url: srv.URL + "/api/v1/namespaces/" + escape(namespace)}
		}
	})
}

// A wire is a namespace as REST shows it: each method is a request, or a few.
type wire struct {
	db        *quipu.DB
	client    *http.Client
	namespace string
	url       string
}

// escape escapes a segment of a path. A dot is escaped too, as some would leave out a
// segment that is one or two of them.
func escape(segment string) string { return strings.ReplaceAll(url.PathEscape(segment), ".", "%2E") }

// text is a string of JSON, and may say what is not UTF-8.
type text string

func (t text) MarshalJSON() ([]byte, error) {
	if !utf8.ValidString(string(t)) {
		return []byte(`"` + t + `"`), nil
	}
	return json.Marshal(string(t))
}

// do makes a request, and decodes what is replied. A call that is given up under way
// may have counted.
func (w *wire) do(ctx context.Context, method, path string, header http.Header, body, into any) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var in io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return err
		}
		in = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, w.url+path, in)
	if err != nil {
		return err
	}
	maps.Copy(req.Header, header)
	res, err := w.client.Do(req)
	if err != nil {
		return store.Errorf(store.KindUnknown, "%w", err)
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		return store.Errorf(store.KindUnknown, "%w", err)
	}
	if res.StatusCode == http.StatusOK {
		return json.Unmarshal(raw, into)
	}
	var p problem
	if err := json.Unmarshal(raw, &p); err != nil {
		return err
	}
	return p.err(method == http.MethodPut)
}

// Define publishes definitions.
func (w *wire) Define(ctx context.Context, definitions []definition.Definition, _ quipu.DefineOptions) (quipu.Change, error) {
	if definitions == nil {
		definitions = []definition.Definition{}
	}
	var told struct {
		ID      int64
		Changes []string
	}
	body := map[string]any{"definitions": definitions}
	err := w.do(ctx, http.MethodPut, "/definitions", http.Header{"If-Match": {"*"}}, body, &told)
	return quipu.Change{ID: told.ID, Changes: told.Changes}, err
}

// A problem is an error as REST tells it.
type problem struct {
	Kind, Detail   string
	Value, Asked   int64
	Floor, Ceiling *int64
	Forgotten      bool
}

// err returns the error that the library would. Set says that the value was assigned.
func (p *problem) err(set bool) error {
	switch e := (&quipu.BoundError{Value: p.Value, Asked: p.Asked, Set: set, Forgotten: p.Forgotten}); {
	case p.Floor != nil:
		e.Limit = *p.Floor
		return e
	case p.Ceiling != nil:
		e.Limit, e.Above = *p.Ceiling, true
		return e
	}
	for k := store.KindOther; k <= store.KindAbsent; k++ {
		if k.String() == p.Kind {
			return store.Errorf(k, "%s", p.Detail)
		}
	}
	return store.Errorf(store.KindOther, "a problem of kind %q: %s", p.Kind, p.Detail)
}

type receipt struct {
	quipu.Receipt
	Value   *int64
	Unsure  float64 `json:"duplicate_error"`
	Session string
	Error   *problem
}

// sameSession reports whether a session is the one of a write. A version that no write can be
// made at is left out of a reply, and is in its session alone.
func sameSession(version uint64, session, want string) bool {
	_, counter, _ := strings.Cut(session, ".")
	return session == want || version == 0 && strings.HasSuffix(want, "."+counter)
}

func (w *wire) receipt(r *receipt) (quipu.Receipt, error) {
	r.Namespace, r.DuplicateError = w.namespace, r.Unsure
	if r.HasValue = r.Value != nil; r.HasValue {
		r.Receipt.Value = *r.Value
	}
	if r.Error == nil && !sameSession(r.Version, r.Session, r.Receipt.Session()) {
		return r.Receipt, store.Errorf(store.KindOther, "session %q, want %q", r.Session, r.Receipt.Session())
	}
	return r.Receipt, nil
}

// write makes a request that changes a counter.
func (w *wire) write(ctx context.Context, method, path string, t *call.WriteTerms, body any) (quipu.Receipt, error) {
	header := http.Header{}
	if !t.WantValue {
		header.Set("Prefer", "return=minimal")
	}
	if t.HasToken {
		header.Set("Idempotency-Key", t.Token)
	}
	if t.HasVersion {
		header.Set("If-Match", `"`+strconv.FormatUint(t.Version, 10)+`"`)
	}
	var r receipt
	if err := w.do(ctx, method, path, header, body, &r); err != nil {
		return quipu.Receipt{}, err
	}
	return w.receipt(&r)
}

// An op is what is asked of an add, by itself or in a batch.
type op struct {
	Key      *text  `json:"key,omitempty"`
	ID       text   `json:"id,omitempty"`
	Delta    int64  `json:"delta"`
	Who      text   `json:"who,omitempty"`
	At       *int64 `json:"at,omitempty"`
	Floor    *int64 `json:"floor,omitempty"`
	Ceiling  *int64 `json:"ceiling,omitempty"`
	Saturate bool   `json:"saturate,omitempty"`
	TTL      string `json:"ttl,omitempty"`

	Dims map[string]string `json:"dims,omitempty"`
}

func opOf(delta int64, t *call.WriteTerms) op {
	o := op{Delta: delta, Saturate: t.Saturate}
	for _, d := range t.Dims {
		if o.Dims == nil {
			o.Dims = map[string]string{}
		}
		o.Dims[d.Name] = d.Value
	}
	if t.HasWho {
		o.Who = text(t.Who)
	}
	if t.HasAt && t.AtMS != (time.Time{}).UnixMilli() {
		o.At = &t.AtMS
	}
	if t.HasFloor {
		o.Floor = &t.Floor
	}
	if t.HasCeiling {
		o.Ceiling = &t.Ceiling
	}
	if t.HasTTL {
		o.TTL = t.TTL.String()
	}
	return o
}

// Allow asks a limit. A cost of 0 is asked in the other way.
func (w *wire) Allow(ctx context.Context, name, who string, cost int64, o quipu.AllowOptions) (quipu.Decision, error) {
	header := http.Header{}
	if o.Token != "" {
		header.Set("Idempotency-Key", o.Token)
	}
	body := map[string]any{"who": text(who), "cost": cost, "burn": o.Burn, "dry_run": o.DryRun}
	if o.Limits != nil {
		body["limits"] = o.Limits
	}
	if o.Away != (definition.Away{}) {
		body["away"] = o.Away
	}
	var d struct {
		Allowed          bool
		Policy           string
		Limit, Remaining int64
		Source           string
		Replayed         bool
		RetryMS          int64 `json:"retry_after_ms"`
		ResetMS          int64 `json:"reset_after_ms"`
	}
	var err error
	if cost == 0 && who != "" && o.Token == "" && len(o.Limits) == 0 {
		err = w.do(ctx, "GET", "/limits/"+escape(name)+"/clients/"+escape(who), nil, nil, &d)
	} else {
		err = w.do(ctx, "POST", "/limits/"+escape(name)+"/allow", header, body, &d)
	}
	retry := time.Duration(d.RetryMS) * time.Millisecond
	if d.RetryMS < 0 {
		retry = call.Never
	}
	return quipu.Decision{
		Allowed: d.Allowed, Policy: d.Policy, Limit: d.Limit, Remaining: d.Remaining, RetryAfter: retry,
		ResetAfter: time.Duration(d.ResetMS) * time.Millisecond, Source: d.Source, Limits: o.Limits, Replayed: d.Replayed,
	}, err
}

// ResetLimit forgets what a client has used.
func (w *wire) ResetLimit(ctx context.Context, name, who string) error {
	return w.do(ctx, "DELETE", "/limits/"+escape(name)+"/clients/"+escape(who), nil, nil, &struct{}{})
}

func (w *wire) Add(ctx context.Context, key string, delta int64, opts ...quipu.WriteOption) (quipu.Receipt, error) {
	t, err := call.WriteTermsOf(opts, true)
	if err != nil {
		return quipu.Receipt{}, err
	}
	return w.write(ctx, "POST", "/counters/"+escape(key)+"/increment", &t, opOf(delta, &t))
}

// AddBatch makes a request for each run of events that all want their values, or none
// of them: a request asks for all or none.
func (w *wire) AddBatch(ctx context.Context, events []quipu.Event) (receipts []quipu.Receipt, err error) {
	for from := 0; from < len(events) || from == 0; {
		to := from
		body := struct {
			Ops []op `json:"ops"`
		}{Ops: []op{}}
		for ; to < len(events) && events[to].WantValue == events[from].WantValue; to++ {
			t := events[to].Terms()
			o := opOf(events[to].Delta, &t)
			o.Key, o.ID = new(text(events[to].Key)), text(t.Token)
			body.Ops = append(body.Ops, o)
		}
		header := http.Header{}
		if len(events) > 0 && !events[from].WantValue {
			header.Set("Prefer", "return=minimal")
		}
		var reply struct{ Results []receipt }
		if err := w.do(ctx, "POST", "/batch", header, body, &reply); err != nil {
			return nil, err
		}
		for i := range reply.Results {
			r, err := w.receipt(&reply.Results[i])
			if err != nil {
				return nil, err
			}
			if p := reply.Results[i].Error; p != nil {
				r.Err = p.err(false)
			}
			receipts = append(receipts, r)
		}
		if from = to; from == 0 {
			break
		}
	}
	return receipts, nil
}

func (w *wire) Set(ctx context.Context, key string, value int64, opts ...quipu.WriteOption) (quipu.Receipt, error) {
	return w.assign(ctx, "PUT", key, "", map[string]int64{"value": value}, opts)
}

func (w *wire) Reset(ctx context.Context, key string, opts ...quipu.WriteOption) (quipu.Receipt, error) {
	return w.assign(ctx, "POST", key, "/reset", nil, opts)
}

func (w *wire) Delete(ctx context.Context, key string, opts ...quipu.WriteOption) (quipu.Receipt, error) {
	return w.assign(ctx, "DELETE", key, "", nil, opts)
}

func (w *wire) assign(ctx context.Context, method, key, verb string, body any, opts []quipu.WriteOption) (quipu.Receipt, error) {
	t, err := call.WriteTermsOf(opts, false)
	if err != nil {
		return quipu.Receipt{}, err
	}
	return w.write(ctx, method, "/counters/"+escape(key)+verb, &t, body)
}

type count struct {
	quipu.Count
	Lower, Upper *int64
	ExpiresAt    time.Time `json:"expires_at"`
	AsOf         time.Time `json:"as_of"`
	StalenessMS  int64     `json:"staleness_ms"`
}

func (c *count) count() quipu.Count {
	if c.Bounded = c.Lower != nil && c.Upper != nil; c.Bounded {
		c.Count.Lower, c.Count.Upper = *c.Lower, *c.Upper
	}
	c.Count.ExpiresAt, c.Count.AsOf, c.Staleness = c.ExpiresAt, c.AsOf, time.Duration(c.StalenessMS)*time.Millisecond
	return c.Count
}

// read makes a request for each session that must be met: a request takes one.
func (w *wire) read(ctx context.Context, method, path string, opts []quipu.ReadOption, body, into any) error {
	t, err := call.ReadTermsOf(opts)
	if err != nil {
		return err
	}
	q := url.Values{}
	if t.Exact {
		q.Set("read", "exact")
	}
	if t.HasStaleness {
		q.Set("max_staleness", t.MaxStaleness.String())
	}
	if t.HasError {
		q.Set("max_error", strconv.FormatInt(t.MaxError, 10))
	}
	for i := 0; i < max(len(t.Sessions), 1); i++ {
		if len(t.Sessions) > 0 {
			q.Set("session", t.Sessions[i])
		}
		if err := w.do(ctx, method, path+"?"+q.Encode(), nil, body, into); err != nil {
			return err
		}
	}
	return nil
}

func (w *wire) Read(ctx context.Context, key string, opts ...quipu.ReadOption) (quipu.Count, error) {
	var c count
	err := w.read(ctx, "GET", "/counters/"+escape(key), opts, nil, &c)
	return c.count(), err
}

// counts are counters as a list has them.
type counts struct {
	Counters []count
	Next     string
}

func (cs *counts) counts() (all []quipu.Count) {
	for i := range cs.Counters {
		all = append(all, cs.Counters[i].count())
	}
	return all
}

func (w *wire) ReadBatch(ctx context.Context, keys []string, opts ...quipu.ReadOption) ([]quipu.Count, error) {
	body := map[string][]text{"keys": {}}
	for _, key := range keys {
		body["keys"] = append(body["keys"], text(key))
	}
	var cs counts
	err := w.read(ctx, "POST", "/read", opts, body, &cs)
	return cs.counts(), err
}

func (w *wire) List(ctx context.Context, prefix string, o quipu.ListOptions) (quipu.Page, error) {
	q := url.Values{"prefix": {prefix}}
	if o.Limit != 0 {
		q.Set("limit", strconv.Itoa(o.Limit))
	}
	if o.Cursor != "" {
		q.Set("cursor", o.Cursor)
	}
	var cs counts
	err := w.do(ctx, "GET", "/counters?"+q.Encode(), nil, nil, &cs)
	return quipu.Page{Counts: cs.counts(), Next: cs.Next}, err
}

// An estimated is how many users there were, as REST has it.
type estimated struct {
	Count, Lower, Upper int64
	StandardError       float64 `json:"standard_error"`
	Exact               bool
}

func (e estimated) told() quipu.UniqueEstimate {
	return quipu.UniqueEstimate{Count: e.Count, Lower: e.Lower, Upper: e.Upper, StandardError: e.StandardError, Exact: e.Exact}
}

func (w *wire) Uniques(ctx context.Context, key string, o quipu.UniqueOptions) (quipu.Uniques, error) {
	q := url.Values{}
	for name, at := range map[string]time.Time{"from": o.From, "to": o.To} {
		if !at.IsZero() {
			q.Set(name, at.Format(time.RFC3339Nano))
		}
	}
	for name, text := range map[string]string{"by": o.By, "with": o.With} {
		if text != "" {
			q.Set(name, text)
		}
	}
	if o.Top != 0 {
		q.Set("top", strconv.Itoa(o.Top))
	}
	var r struct {
		Key, Dimension string
		estimated
		Values []struct {
			Value  *string
			Values []string
			estimated
		}
		Other   estimated
		Overlap *struct {
			With               string
			Only, Others, Both estimated
		}
		Aligned, Complete bool
		CompleteFrom      time.Time `json:"complete_from"`
		From, To          time.Time
		AsOf              time.Time `json:"as_of"`
	}
	err := w.do(ctx, "GET", "/uniques/"+escape(key)+"?"+q.Encode(), nil, nil, &r)
	u := quipu.Uniques{
		Key: r.Key, By: r.Dimension, UniqueEstimate: r.told(), Other: r.Other.told(), Aligned: r.Aligned, Complete: r.Complete,
		CompleteFrom: r.CompleteFrom, From: r.From, To: r.To, AsOf: r.AsOf,
	}
	for _, v := range r.Values {
		one := call.UniqueValue{Values: v.Values, UniqueEstimate: v.told()}
		if v.Value != nil {
			one.Value = *v.Value
		}
		u.Values = append(u.Values, one)
	}
	if v := r.Overlap; v != nil {
		u.Overlap = &call.UniqueOverlap{With: v.With, Only: v.Only.told(), Others: v.Others.told(), Both: v.Both.told()}
	}
	return u, err
}

func (w *wire) Top(ctx context.Context, name string, o call.TopOptions) (call.Top, error) {
	q := url.Values{}
	for name, at := range map[string]time.Time{"from": o.From, "to": o.To} {
		if !at.IsZero() {
			q.Set(name, at.Format(time.RFC3339Nano))
		}
	}
	if o.K != 0 {
		q.Set("k", strconv.Itoa(o.K))
	}
	if o.Trend {
		q.Set("trend", "true")
	}
	var r struct {
		Name, Key, By string
		Items         []struct {
			Item                string
			Count, Lower, Upper int64
			Rise                struct{ Count, Lower, Upper int64 }
		}
		Exact, Trend, Aligned, Complete bool
		Rest, Total                     int64
		CompleteFrom                    time.Time `json:"complete_from"`
		From, To, Before                time.Time
		AsOf                            time.Time `json:"as_of"`
	}
	path := "/tops/" + escape(name)
	if o.Key != "" {
		path = "/counters/" + escape(o.Key) + "/top/" + escape(name)
	}
	err := w.do(ctx, "GET", path+"?"+q.Encode(), nil, nil, &r)
	t := call.Top{
		Name: r.Name, Key: r.Key, By: r.By, Exact: r.Exact, Trend: r.Trend, Rest: r.Rest, Total: r.Total, Aligned: r.Aligned, Complete: r.Complete,
		CompleteFrom: r.CompleteFrom, From: r.From, To: r.To, Before: r.Before, AsOf: r.AsOf,
	}
	for _, x := range r.Items {
		t.Items = append(t.Items, call.TopItem{
			Item: x.Item, Count: x.Count, Lower: x.Lower, Upper: x.Upper, Rise: x.Rise.Count, RiseLower: x.Rise.Lower, RiseUpper: x.Rise.Upper,
		})
	}
	return t, err
}

func (w *wire) AddUniques(ctx context.Context, key string, users ...string) (bool, error) {
	items := make([]text, len(users))
	for i, user := range users {
		items[i] = text(user)
	}
	var r struct{ Changed bool }
	err := w.do(ctx, "POST", "/uniques/"+escape(key), nil, map[string]any{"items": items}, &r)
	return r.Changed, err
}

func (w *wire) MakeSketch(ctx context.Context, key string, shape call.Shape, opts ...quipu.WriteOption) (bool, error) {
	header, ttl, err := sketchHeader(opts)
	if err != nil {
		return false, err
	}
	body := map[string]any{"kind": shape.Kind}
	for name, v := range map[string]any{
		"capacity": shape.Capacity, "error": shape.Error, "growth": shape.Growth, "fixed": shape.Fixed, "epsilon": shape.Epsilon, "confidence": shape.Confidence,
		"width": shape.Width, "depth": shape.Depth, "conservative": shape.Conservative, "k": shape.K,
	} {
		if !reflect.ValueOf(v).IsZero() {
			body[name] = v
		}
	}
	if ttl != "" {
		body["ttl"] = ttl
	}
	var r struct{ Made bool }
	err = w.do(ctx, "PUT", "/sketches/"+escape(key), header, body, &r)
	return r.Made, err
}

// sketchHeader returns what options are over REST: a header, and a lifetime.
func sketchHeader(opts []quipu.WriteOption) (header http.Header, ttl string, err error) {
	t, err := call.WriteTermsOf(opts, true)
	header = http.Header{}
	if t.HasToken {
		header.Set("Idempotency-Key", t.Token)
	}
	if t.HasTTL {
		ttl = t.TTL.String()
	}
	if t.HasFloor && err == nil {
		err = quipu.ErrInvalid // nothing says it
	}
	return header, ttl, err
}

// A wireItem is what a sketch knows of an item.
type wireItem struct {
	Item                 string
	Added, Found, Listed bool
	Count, Lower, Upper  int64
	Expelled             string
}

func wireItems(items []wireItem) []call.SketchItem {
	if items == nil {
		return nil
	}
	out := make([]call.SketchItem, len(items))
	for i, x := range items {
		out[i] = call.SketchItem{Item: x.Item, Added: x.Added, Found: x.Found, Listed: x.Listed, Count: x.Count, Lower: x.Lower, Upper: x.Upper, Expelled: x.Expelled}
	}
	return out
}

func (w *wire) AddItems(ctx context.Context, key string, items []call.Item, opts ...quipu.WriteOption) (call.Addition, error) {
	header, ttl, err := sketchHeader(opts)
	if err != nil {
		return call.Addition{}, err
	}
	sent := make([]any, len(items))
	for i, item := range items {
		if sent[i] = text(item.Item); item.N != 0 {
			sent[i] = map[string]any{"item": text(item.Item), "n": item.N}
		}
	}
	body := map[string]any{"items": sent}
	if ttl != "" {
		body["ttl"] = ttl
	}
	var r struct {
		Key        string
		Kind       call.SketchKind
		Items      []wireItem
		Confidence float64
		Replayed   bool
		Durability string
	}
	if err := w.do(ctx, "POST", "/sketches/"+escape(key)+"/items", header, body, &r); err != nil {
		return call.Addition{}, err
	}
	return call.Addition{Key: r.Key, Kind: r.Kind, Items: wireItems(r.Items), Confidence: r.Confidence, Replayed: r.Replayed, Durability: map[string]store.Durability{"memory": store.Memory, "written": store.Written, "synced": store.Synced}[r.Durability]}, nil
}

func (w *wire) AskItems(ctx context.Context, key string, items ...string) (call.Asked, error) {
	sent := make([]text, len(items))
	for i, item := range items {
		sent[i] = text(item)
	}
	var r struct {
		Key               string
		Kind              call.SketchKind
		Items             []wireItem
		Exact             bool
		Error, Confidence float64
		AsOf              time.Time `json:"as_of"`
	}
	err := w.do(ctx, "POST", "/sketches/"+escape(key)+"/query", nil, map[string]any{"items": sent}, &r)
	return call.Asked{Key: r.Key, Kind: r.Kind, Items: wireItems(r.Items), Exact: r.Exact, Error: r.Error, Confidence: r.Confidence, AsOf: r.AsOf}, err
}

func (w *wire) Sketch(ctx context.Context, key string, k int) (call.Sketch, error) {
	query := ""
	if k != 0 {
		query = "?k=" + strconv.Itoa(k)
	}
	var r struct {
		Key                        string
		Shape                      call.Shape
		Total, Bytes               int64
		Exact, Full                bool
		Error, Epsilon, Confidence float64
		Capacity, Rest             int64
		Items                      []wireItem
		Uniques                    estimated
		ExpiresAt                  time.Time `json:"expires_at"`
		AsOf                       time.Time `json:"as_of"`
	}
	err := w.do(ctx, "GET", "/sketches/"+escape(key)+query, nil, nil, &r)
	return call.Sketch{
		Key: r.Key, Shape: r.Shape, Total: r.Total, Bytes: r.Bytes, Exact: r.Exact, Full: r.Full, Error: r.Error, Epsilon: r.Epsilon, Confidence: r.Confidence,
		Capacity: r.Capacity, Rest: r.Rest, Items: wireItems(r.Items), Uniques: r.Uniques.told(), ExpiresAt: r.ExpiresAt, AsOf: r.AsOf,
	}, err
}

func (w *wire) MergeSketches(ctx context.Context, key string, from []call.SketchSource, opts ...quipu.WriteOption) (bool, error) {
	header, ttl, err := sketchHeader(opts)
	if err != nil {
		return false, err
	}
	sent := make([]any, len(from))
	for i, f := range from {
		if sent[i] = text(f.Key); f.Weight != 0 {
			sent[i] = map[string]any{"key": text(f.Key), "weight": f.Weight}
		}
	}
	body := map[string]any{"from": sent}
	if ttl != "" {
		body["ttl"] = ttl
	}
	var r struct{ Replayed bool }
	err = w.do(ctx, "POST", "/sketches/"+escape(key)+"/merge", header, body, &r)
	return r.Replayed, err
}

func (w *wire) Sum(ctx context.Context, prefix, cursor string) (quipu.Sum, error) {
	q := url.Values{"prefix": {prefix}}
	if cursor != "" {
		q.Set("cursor", cursor)
	}
	var s struct {
		quipu.Sum
		Value int64     `json:"sum"`
		AsOf  time.Time `json:"as_of"`
	}
	err := w.do(ctx, "GET", "/sum?"+q.Encode(), nil, nil, &s)
	s.Sum.Value, s.Sum.AsOf = s.Value, s.AsOf
	return s.Sum, err
}

func (w *wire) Lookup(ctx context.Context, key, token string) (quipu.Fate, error) {
	return w.fate(ctx, "GET", key, "/tokens/"+escape(token))
}

func (w *wire) Settle(ctx context.Context, key, token string) (quipu.Fate, error) {
	return w.fate(ctx, "POST", key, "/tokens/"+escape(token)+"/settle")
}

func (w *wire) fate(ctx context.Context, method, key, path string) (quipu.Fate, error) {
	var f struct {
		State  string
		At     time.Time
		Result *receipt

		Choice *string
		Before string
	}
	err := w.do(ctx, method, path+"?key="+url.QueryEscape(key), nil, nil, &f)
	fate := quipu.Fate{At: f.At}
	for state := store.TokenUnknown; state <= store.TokenRefused; state++ {
		if state.String() == f.State {
			fate.State = state
		}
	}
	if f.Choice != nil {
		fate.Reacted, fate.Choice, fate.Before = true, *f.Choice, f.Before
	}
	if f.Result != nil && err == nil {
		fate.Receipt, err = w.receipt(f.Result)
	}
	return fate, err
}

func (w *wire) React(ctx context.Context, key, user, choice string, opts ...quipu.WriteOption) (quipu.Reaction, error) {
	return w.react(ctx, "PUT", key, user, map[string]string{"choice": choice}, opts)
}

func (w *wire) Unreact(ctx context.Context, key, user string, opts ...quipu.WriteOption) (quipu.Reaction, error) {
	return w.react(ctx, "DELETE", key, user, nil, opts)
}

func (w *wire) react(ctx context.Context, method, key, user string, body any, opts []quipu.WriteOption) (quipu.Reaction, error) {
	t, err := call.WriteTermsOf(opts, false)
	if err != nil {
		return quipu.Reaction{}, err
	}
	header := http.Header{}
	if !t.WantValue {
		header.Set("Prefer", "return=minimal")
	}
	if t.HasToken {
		header.Set("Idempotency-Key", t.Token)
	}
	var r struct {
		quipu.Reaction
		Counts  map[string]int64
		Session string
	}
	if err := w.do(ctx, method, "/reactions/"+escape(key)+"/"+escape(user), header, body, &r); err != nil {
		return quipu.Reaction{}, err
	}
	r.Namespace, r.Reaction.Counts = w.namespace, w.choiceCounts(ctx, r.Counts, key)
	if !sameSession(r.Version, r.Session, r.Reaction.Session()) {
		return r.Reaction, store.Errorf(store.KindOther, "session %q, want %q", r.Session, r.Reaction.Session())
	}
	return r.Reaction, nil
}

// choiceCounts returns counts in the order of the definition, which JSON has lost.
func (w *wire) choiceCounts(ctx context.Context, counts map[string]int64, key string) (out []quipu.ChoiceCount) {
	b, err := w.db.In(w.namespace).DefinitionOf(ctx, key)
	if err != nil || len(b.Definitions) == 0 || len(counts) == 0 {
		return nil
	}
	for _, choice := range b.Definitions[0].Choices {
		if n, ok := counts[choice]; ok {
			out = append(out, quipu.ChoiceCount{Choice: choice, Users: n})
		}
	}
	return out
}

func (w *wire) Choice(ctx context.Context, user string, keys ...string) ([]string, error) {
	var r struct {
		User    string
		Choices map[string]string
	}
	if len(keys) == 1 {
		var one struct{ Choice string }
		err := w.do(ctx, "GET", "/reactions/"+escape(keys[0])+"/"+escape(user), nil, nil, &one)
		return []string{one.Choice}, err
	}
	err := w.do(ctx, "POST", "/reactions/read", nil, map[string]any{"user": user, "keys": keys}, &r)
	choices := make([]string, len(keys))
	for i, key := range keys {
		choices[i] = r.Choices[key]
	}
	return choices, err
}

func (w *wire) Reactions(ctx context.Context, key string) (quipu.Reactions, error) {
	var r struct {
		Key    string
		Counts map[string]int64
		Users  int64
	}
	err := w.do(ctx, "GET", "/reactions/"+escape(key), nil, nil, &r)
	return quipu.Reactions{Key: r.Key, Counts: w.choiceCounts(ctx, r.Counts, key), Users: r.Users}, err
}

func (w *wire) Members(ctx context.Context, key string, o quipu.MembersOptions) (quipu.MembersPage, error) {
	q := url.Values{}
	if o.Choice != "" {
		q.Set("choice", o.Choice)
	}
	if o.Limit != 0 {
		q.Set("limit", strconv.Itoa(o.Limit))
	}
	if o.Cursor != "" {
		q.Set("cursor", o.Cursor)
	}
	var p quipu.MembersPage
	err := w.do(ctx, "GET", "/members/"+escape(key)+"?"+q.Encode(), nil, nil, &p)
	return p, err
}

// Close closes the DB behind the door, which says so from then on.
func (w *wire) Close() error { return w.db.Close() }

type held struct {
	quipu.Reservation
	State      string
	Committed  int64
	ExpiresAt  time.Time `json:"expires_at"`
	Value      *int64
	Reserved   int64
	Available  int64
	Open       int64
	Exact      bool
	Durability string
}

func (w *wire) held(h *held) quipu.Reservation {
	r := h.Reservation
	r.Namespace, r.ExpiresAt, r.Committed = w.namespace, h.ExpiresAt, h.Committed
	for _, s := range []quipu.HoldState{quipu.HoldOpen, quipu.HoldCommitted, quipu.HoldReleased, quipu.HoldExpired} {
		if s.String() == h.State {
			r.State = s
		}
	}
	if r.HasStock = h.Value != nil; r.HasStock {
		r.Stock = quipu.Stock{Value: *h.Value, Reserved: h.Reserved, Available: h.Available, Open: h.Open, Exact: h.Exact}
	}
	return r
}

func (w *wire) step(ctx context.Context, method, path string, want bool, header http.Header, body any) (quipu.Reservation, error) {
	if !want {
		header.Set("Prefer", "return=minimal")
	}
	var h held
	if err := w.do(ctx, method, path, header, body, &h); err != nil {
		return quipu.Reservation{}, err
	}
	return w.held(&h), nil
}

func (w *wire) Reserve(ctx context.Context, key string, amount int64, ttl time.Duration, opts ...quipu.WriteOption) (quipu.Reservation, error) {
	t, err := call.ReserveTermsOf(opts)
	if err != nil {
		return quipu.Reservation{}, err
	}
	body := map[string]any{"amount": amount, "ttl": ttl.String()}
	if t.HasWho {
		body["who"] = t.Who
	}
	if t.HasFloor {
		body["floor"] = t.Floor
	}
	header := http.Header{}
	if t.HasToken {
		header.Set("Idempotency-Key", t.Token)
	}
	r, err := w.step(ctx, "POST", "/counters/"+escape(key)+"/reserve", t.WantValue, header, body)
	if b, ok := errors.AsType[*quipu.BoundError](err); ok {
		b.Asked = -b.Asked
		err = call.NotEnough(b)
	}
	return r, err
}

func (w *wire) Commit(ctx context.Context, id string, amount int64, opts ...quipu.WriteOption) (quipu.Reservation, error) {
	var body any
	if amount != quipu.All {
		body = map[string]int64{"amount": amount}
	}
	return w.step(ctx, "POST", "/reservations/"+escape(id)+"/commit", len(opts) > 0, http.Header{}, body)
}

func (w *wire) Release(ctx context.Context, id string, opts ...quipu.WriteOption) (quipu.Reservation, error) {
	return w.step(ctx, "POST", "/reservations/"+escape(id)+"/release", len(opts) > 0, http.Header{}, nil)
}

func (w *wire) Extend(ctx context.Context, id string, ttl time.Duration, opts ...quipu.WriteOption) (quipu.Reservation, error) {
	return w.step(ctx, "POST", "/reservations/"+escape(id)+"/extend", len(opts) > 0, http.Header{}, map[string]string{"ttl": ttl.String()})
}

func (w *wire) Reservation(ctx context.Context, id string) (quipu.Reservation, error) {
	return w.step(ctx, "GET", "/reservations/"+escape(id), true, http.Header{}, nil)
}

func (w *wire) Reservations(ctx context.Context, key string, o quipu.ReservationOptions) (p quipu.ReservationPage, err error) {
	q := url.Values{"key": {key}, "who": {o.Who}, "cursor": {o.Cursor}}
	if o.Limit != 0 {
		q.Set("limit", strconv.Itoa(o.Limit))
	}
	var r struct {
		quipu.Stock
		Reservations []held
		Next         string
	}
	if err := w.do(ctx, "GET", "/reservations?"+q.Encode(), nil, nil, &r); err != nil {
		return p, err
	}
	p = quipu.ReservationPage{Key: key, Stock: r.Stock, Next: r.Next}
	for i := range r.Reservations {
		p.Reservations = append(p.Reservations, w.held(&r.Reservations[i]))
	}
	return p, nil
}
