package rest

import (
	"context"
	"math"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/alert"
	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/internal/server/pulse"
	"github.com/quipudb/quipu/store"
)

const (
	liveMax      = 64                     // streams at a time
	watchMax     = 256                    // those of counters alone
	watchSays    = 15 * time.Second       // that it is there, if nothing changes
	liveEvery    = 250 * time.Millisecond // between two looks at the counter of a stream
	liveStallMax = 5 * time.Second        // how long a client may take nothing
	liveEnds     = 10 * time.Minute       // then a client comes again, and shows its key again
)

// streams are the live streams of a door.
type streams struct {
	places  places
	watches places        // for those of counters alone
	ending  chan struct{} // closed when the server ends
	open    atomic.Int64
	dropped atomic.Int64
}

// EndStreams ends the live streams. A server that ends would otherwise wait for
// them.
func (h *Handler) EndStreams() { h.endStreams() }

// Meters calls f for each meter of the door.
func (h *Handler) Meters(f func(name, help string, value float64)) {
	f("quipu_live_streams", "Live streams open.", float64(h.streams.open.Load()))
	f("quipu_live_dropped_total", "Live streams ended because their client did not take what was sent.", float64(h.streams.dropped.Load()))
}

// overview replies how the server fares.
func overview(c *call) error {
	c.h.pulse.Look(c.ctx)
	beat, err := c.h.pulse.Now(c.ctx)
	if err != nil {
		return err
	}
	text, err := beat.FullText()
	if err != nil {
		return err
	}
	c.out = append(append(c.out, text...), '\n')
	c.w.Header()["Cache-Control"] = cacheNever
	return c.reply()
}

// servers replies how all servers of the store fare.
func servers(c *call) error {
	c.h.pulse.Look(c.ctx)
	list, err := c.h.roster.List(c.ctx)
	if err != nil {
		return err
	}
	if err := c.take(int64(len(list.Servers)) * 2 * entryBytes); err != nil {
		return err
	}
	return c.secretJSON(list)
}

// An alertOf is what one alerting rule says of one thing.
type alertOf struct {
	Name        string            `json:"name"`
	Severity    string            `json:"severity"`
	State       alert.State       `json:"state"`
	Since       *time.Time        `json:"since,omitempty"`
	For         int64             `json:"for_ms"`
	Expr        string            `json:"expr"`
	Labels      map[string]string `json:"labels,omitempty"`
	Sample      *float64          `json:"sample,omitempty"` // what the expression is
	Summary     string            `json:"summary,omitempty"`
	Description string            `json:"description,omitempty"`
	Action      string            `json:"action"`
}

// alerts replies what the alerting rules of deploy/alerts.yml say now.
func alerts(c *call) error {
	found, seen := c.h.pulse.Alerts()
	out := struct {
		Rules  int       `json:"rules"`
		Seen   int64     `json:"seen_ms"`
		Alerts []alertOf `json:"alerts"`
	}{c.h.pulse.Rules(), seen.Milliseconds(), make([]alertOf, len(found))}
	if err := c.take(int64(len(found)) * 2 * entryBytes); err != nil {
		return err
	}
	for i, a := range found {
		one := alertOf{
			Name: a.Name, Severity: a.Severity, State: a.State, Since: given(a.Since), For: a.For.Milliseconds(), Expr: a.Expr,
			Labels: a.Labels, Summary: a.Summary, Description: a.Description, Action: a.Action,
		}
		if a.State != alert.Quiet && !math.IsInf(a.Value, 0) && !math.IsNaN(a.Value) {
			one.Sample = &a.Value
		}
		out.Alerts[i] = one
	}
	return c.json(out)
}

// live streams how the server fares, and the value of a counter, as server-sent events.
// Each event is the latest: a client that is slow misses some, and one that takes
// nothing is dropped.
func live(c *call) error {
	key := c.query.Get("key")
	if c.query.Has("key") {
		if err := store.CheckKey(key); err != nil {
			return err
		}
	}
	if c.r.Method == http.MethodHead { // It would wait for nothing.
		return c.liveHeader()
	}
	return c.stream(&c.h.streams.places, &liveWriter{c: c, key: key})
}

// watch streams the value of a counter alone, for those who may read that and no more.
func watch(c *call) error {
	need, err := decodeNeed(c.query, c.start.UTC())
	if err != nil {
		return err
	}
	if err := store.CheckKey(c.args.key); err != nil {
		return err
	}
	if c.r.Method == http.MethodHead {
		return c.liveHeader()
	}
	return c.stream(&c.h.streams.watches, &liveWriter{c: c, key: c.args.key, alone: true, options: need.options})
}

// stream writes a stream that has one of some places.
func (c *call) stream(p *places, w *liveWriter) error {
	s := &c.h.streams
	leave, err := p.take(c.h.gate, c.who)
	if err != nil {
		return err
	}
	defer leave()
	s.open.Add(1)
	defer s.open.Add(-1)
	w.rc = http.NewResponseController(c.w)
	if err := c.unhurried(); err != nil {
		return err
	}
	if err := c.liveHeader(); err != nil {
		return err
	}
	if err := w.run(); err != nil && c.r.Context().Err() == nil {
		s.dropped.Add(1)
	}
	return nil
}

func (c *call) liveHeader() error {
	header := c.w.Header()
	header.Set("Content-Type", "text/event-stream")
	header["Cache-Control"] = cacheNever
	header.Set("X-Accel-Buffering", "no") // nginx would keep the events until there are many
	c.status = http.StatusOK
	c.w.WriteHeader(http.StatusOK)
	return nil
}

// A liveWriter writes one stream.
type liveWriter struct {
	c    *call
	rc   *http.ResponseController
	key  string
	last quipu.Count

	alone   bool               // nothing but the counter is streamed
	options []quipu.ReadOption // of its reads
	told    bool               // the client knows last

	began bool   // it has an overview
	bad   string // what was wrong with the last look
}

// run writes until the client or the server is gone, and returns an error if the
// client does not take it.
func (w *liveWriter) run() error {
	end := time.NewTimer(liveEnds)
	defer end.Stop()
	var looks <-chan time.Time
	if w.key != "" {
		t := time.NewTicker(liveEvery)
		defer t.Stop()
		looks = t.C
		if err := w.look(); err != nil {
			return err
		}
	}
	h := w.c.h
	var next <-chan struct{}
	var says <-chan time.Time
	if w.alone {
		t := time.NewTicker(watchSays)
		defer t.Stop()
		says = t.C
	} else {
		var beat *pulse.Beat
		beat, next = h.pulse.Watch()
		if err := w.beat(beat); err != nil {
			return err
		}
	}
	for {
		if w.c.who != nil && w.c.who.Ended(time.Now().UnixMilli()) {
			return nil
		}
		if !w.alone {
			go h.pulse.Look(w.c.r.Context()) // which may wait for the store
		}
		var err error
		select {
		case <-next:
			var beat *pulse.Beat
			beat, next = h.pulse.Watch()
			err = w.beat(beat)
		case <-says:
			err = w.send(append(w.c.out[:0], ":\n\n"...)) // a comment
		case <-looks:
			err = w.look()
		case <-w.c.r.Context().Done():
			return nil
		case <-h.streams.ending:
			return nil
		case <-end.C:
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// beat writes an overview, if there is one yet. The first has what was before.
func (w *liveWriter) beat(b *pulse.Beat) error {
	if b == nil {
		return nil
	}
	text := b.FullText
	if w.began {
		text = b.BriefText
	}
	w.began = true
	data, err := text()
	if err != nil {
		return err
	}
	return w.event("overview", data)
}

// look reads the counter, and writes it if it has changed. An error is written too:
// the next look may find the counter again.
func (w *liveWriter) look() error {
	ctx, cancel := context.WithTimeout(w.c.r.Context(), liveStallMax)
	defer cancel()
	count, err := w.c.db.Read(ctx, w.key, w.options...)
	if err != nil {
		p := problemOf(err, server.ReadDetail)
		if w.bad == p.detail || w.c.r.Context().Err() != nil {
			return nil
		}
		w.bad, w.told = p.detail, false
		return w.event("problem", appendProblem(nil, p, w.c.id))
	}
	if w.told && count.Value == w.last.Value && count.Version == w.last.Version && count.Exists == w.last.Exists {
		return nil
	}
	w.last, w.told, w.bad = count, true, ""
	return w.event("counter", appendCount(nil, &count))
}

// event writes one event.
func (w *liveWriter) event(name string, data []byte) error {
	if w.c.quoted {
		data = quoteInt64(data)
	}
	b := append(w.c.out[:0], "event: "...)
	b = append(append(append(b, name...), "\ndata: "...), data...)
	return w.send(append(b, "\n\n"...))
}

// send writes bytes, and sees to it that they go.
func (w *liveWriter) send(b []byte) error {
	w.c.out = b
	if err := w.rc.SetWriteDeadline(time.Now().Add(liveStallMax)); err != nil {
		return err
	}
	if _, err := w.c.w.Write(w.c.out); err != nil {
		return err
	}
	return w.rc.Flush()
}
