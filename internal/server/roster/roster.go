// Package roster is where the servers of one store say how they fare, so that each can show
// all of them side by side. Servers do not know each other's addresses, and need not: each
// puts a summary into the store's own namespace every few seconds.
//
// A summary is an object with a deadline. The store's clock judges the deadline and the age,
// so the clocks of servers do not matter, and the store removes what a lost server leaves
// behind. A server that ends in peace removes its own. It promises that a store that can't
// be reached costs nobody the rest: what was read last is told, and that it is old.
package roster

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quipudb/quipu/internal/server/pulse"
	"github.com/quipudb/quipu/store"
)

const (
	sayEvery    = 5 * time.Second
	silentAfter = 3 * sayEvery    // then a server is said to have stopped speaking
	keep        = 5 * time.Minute // then it is forgotten
	lookEvery   = 3               // times that it speaks between two looks at the store
	sayTimeout  = 3 * time.Second
	endTimeout  = time.Second
	readTimeout = 2 * time.Second
	fresh       = time.Second // for how long what was read is good enough

	readMax      = 1000    // summaries that are read
	listMax      = 200     // servers that are told
	textBytesMax = 8 << 10 // of a summary
	doorsMax     = 16
	keepMSMax    = int64(time.Hour / time.Millisecond)
)

// prefix is what the keys of summaries begin with, in the store's own namespace.
const prefix = "server/"

// A Summary is what a server says of itself. Rates are those of the last seconds.
type Summary struct {
	ID       string    `json:"id"` // of one start
	Host     string    `json:"host"`
	Version  string    `json:"version"`
	Started  time.Time `json:"started_at"`
	ReadOnly bool      `json:"read_only"`
	Status   string    `json:"status"` // of the store as the server sees it: ready, degraded or unavailable
	Detail   string    `json:"detail,omitempty"`
	Writes   float64   `json:"writes_per_second"`
	Reads    float64   `json:"reads_per_second"`
	Errors   float64   `json:"errors_per_second"`
	LagMS    *float64  `json:"lag_ms,omitempty"` // how long writes take to be durable; not there if nothing was written
	Memory   int64     `json:"memory_bytes"`
	Limit    int64     `json:"memory_limit_bytes,omitempty"`
	Doors    []Door    `json:"doors"`
}

// A Door is one door of a server.
type Door struct {
	Name    string   `json:"name"`
	Address string   `json:"address"`
	Calls   float64  `json:"calls_per_second"`
	P99     *float64 `json:"p99_ms,omitempty"` // not there if there were no calls
}

// A Server is one in a list.
type Server struct {
	Summary
	Self   bool  `json:"self"`   // it made the list
	Silent bool  `json:"silent"` // it has stopped speaking: it was lost, or can't reach the store
	AgeMS  int64 `json:"age_ms"` // since it spoke
}

// A List is what all servers of a store said last.
type List struct {
	Servers  []Server `json:"servers"`
	Shared   bool     `json:"shared"`           // others may use the store; if not, there is one server
	Complete bool     `json:"complete"`         // all that have spoken are there, as they spoke last
	Detail   string   `json:"detail,omitempty"` // why not
}

// Options are what a roster is told.
type Options struct {
	Logger   *slog.Logger // takes reports of what failed; the default is slog.Default()
	ReadOnly bool         // says nothing, since it writes nothing
	Detail   func(error) string
}

// A Roster is the servers of a store as one of them knows them. It is safe for concurrent use.
type Roster struct {
	store store.Store
	pulse *pulse.Pulse
	o     Options
	id    string
	host  string
	cell  store.Cell
	stop  context.CancelFunc
	done  sync.WaitGroup

	busy  chan struct{} // has a value while somebody reads; guards the fields below
	found []heard
	tried time.Time // when it was read last, or was to be
	at    time.Time // when it was read
	more  bool      // there are more than are read
	err   error     // why it could not be read
}

// A heard is a summary that was read.
type heard struct {
	Summary
	spoke time.Time
}

// New returns the roster of a store, for a server with a pulse.
func New(s store.Store, p *pulse.Pulse, o Options) *Roster {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Detail == nil {
		o.Detail = func(error) string { return "the store can't be reached" }
	}
	var raw [8]byte
	_, _ = rand.Read(raw[:]) // never fails
	r := &Roster{store: s, pulse: p, o: o, id: hex.EncodeToString(raw[:]), stop: func() {}, busy: make(chan struct{}, 1)}
	r.cell = store.Cell{Key: prefix + r.id}
	r.host, _ = os.Hostname() // or it has none
	return r
}

// Start has the server speak until Close, if others share the store.
func (r *Roster) Start() {
	if r.o.ReadOnly || !r.store.Traits().Shared {
		return
	}
	ctx, stop := context.WithCancel(store.Unheard(context.Background()))
	r.stop = stop
	r.done.Go(func() { r.run(ctx) })
}

// Close takes back what the server has said.
func (r *Roster) Close() {
	r.stop()
	r.done.Wait()
}

func (r *Roster) run(ctx context.Context) {
	tick := time.NewTicker(sayEvery)
	defer tick.Stop()
	spoke, failing := false, false
	for n := 0; ctx.Err() == nil; n++ {
		if n%lookEvery == 0 {
			r.pulse.Look(ctx)
		}
		err := r.say(ctx)
		switch {
		case ctx.Err() != nil:
		case err == nil:
			spoke, failing = true, false
		case !failing: // It is said once, however long it lasts.
			failing = true
			r.o.Logger.Warn("other servers of the store can't see this one", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	if !spoke {
		return
	}
	// An error is no matter: the store forgets it by itself.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	_ = r.apply(ctx, store.Delta{Cell: r.cell, Op: store.OpDelete})
}

// say puts a summary of the server into the store.
func (r *Roster) say(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sayTimeout)
	defer cancel()
	s, err := r.self(ctx)
	if err != nil {
		return err
	}
	text, err := json.Marshal(said{s, keep.Milliseconds()})
	if err != nil {
		return err
	}
	return r.apply(ctx, store.Delta{
		Cell: r.cell, Op: store.OpPut, Expiry: store.ExpirySet | store.ExpiryAfter, DeadlineMS: keep.Milliseconds(),
		Event: &store.Event{Part: store.Object, Bytes: text},
	})
}

// apply applies one delta. What is lost is said again: it need not be durable.
func (r *Roster) apply(ctx context.Context, d store.Delta) error {
	batch := store.Batch{Partition: store.PartitionOf(d.Cell, r.store.Traits().Partitions), Durability: store.Memory, Deltas: []store.Delta{d}}
	var replies [1]store.Reply
	if err := r.store.Apply(ctx, []store.Batch{batch}, replies[:]); err != nil {
		return err
	}
	if err := replies[0].Err; err != nil {
		return err
	}
	return replies[0].Results[0].Outcome.Err()
}

// self returns how this server fares. It waits until that is known.
func (r *Roster) self(ctx context.Context) (Summary, error) {
	o, err := r.pulse.Overview(ctx)
	if err != nil {
		return Summary{}, err
	}
	s := Summary{
		ID: r.id, Host: r.host, Version: o.Server.Version, Started: o.Server.Started, ReadOnly: o.Server.ReadOnly, Status: o.Server.Status, Detail: o.Server.Detail,
		Writes: o.Rates.Writes, Reads: o.Rates.Reads, Errors: o.Rates.Errors, LagMS: o.Durability.LagMS,
		Memory: o.Memory.Process, Limit: o.Memory.Limits["total"], Doors: make([]Door, 0, len(o.Doors)),
	}
	for _, d := range o.Doors {
		s.Doors = append(s.Doors, Door{Name: d.Name, Address: d.Address, Calls: d.Calls, P99: d.P99})
	}
	return s, nil
}

// List returns what all servers said last. This server is always among them, and is as it is
// now.
func (r *Roster) List(ctx context.Context) (List, error) {
	self, err := r.self(ctx)
	if err != nil {
		return List{}, err
	}
	l := List{Servers: []Server{{Summary: self, Self: true}}, Shared: r.store.Traits().Shared, Complete: true}
	if !l.Shared {
		return l, nil
	}
	select {
	case r.busy <- struct{}{}:
		defer func() { <-r.busy }()
	case <-ctx.Done():
		return List{}, ctx.Err()
	}
	if time.Since(r.tried) >= fresh {
		r.read(ctx)
	}
	switch {
	case r.err != nil:
		l.Complete, l.Detail = false, "this is what the servers said last: "+r.o.Detail(r.err)
	case r.more:
		l.Complete, l.Detail = false, "more servers have spoken than are read"
	}
	for _, h := range r.found {
		if h.ID == r.id {
			continue
		}
		// While the store can't be read, nobody is known to be silent who was not.
		l.Servers = append(l.Servers, Server{Summary: h.Summary, Silent: r.at.Sub(h.spoke) > silentAfter, AgeMS: max(0, time.Since(h.spoke).Milliseconds())})
	}
	l.settle()
	return l, nil
}

// settle leaves out servers that were started again, and puts the others in an order that
// stays.
func (l *List) settle() {
	l.Servers = slices.DeleteFunc(slices.Clone(l.Servers), func(s Server) bool {
		return s.Silent && slices.ContainsFunc(l.Servers, func(o Server) bool { return !o.Silent && o.Started.After(s.Started) && o.place() == s.place() })
	})
	if len(l.Servers) > listMax {
		slices.SortStableFunc(l.Servers, func(a, b Server) int { return int(a.AgeMS - b.AgeMS) })
		l.Servers = l.Servers[:listMax]
		l.Complete, l.Detail = false, fmt.Sprintf("the %d servers that spoke last are listed", listMax)
	}
	slices.SortFunc(l.Servers, func(a, b Server) int {
		if c := strings.Compare(a.place(), b.place()); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
}

// place returns where a server runs, which no two do at a time.
func (s *Summary) place() string {
	var b strings.Builder
	b.WriteString(s.Host)
	for _, d := range s.Doors {
		b.WriteString("\x00" + d.Name + " " + d.Address)
	}
	return b.String()
}

// read reads what servers have said. The caller has busy.
func (r *Roster) read(ctx context.Context) {
	ctx, cancel := context.WithTimeout(store.Unheard(ctx), readTimeout)
	defer cancel()
	found, more, err := r.hear(ctx)
	r.tried, r.err = time.Now(), err
	if err == nil {
		r.found, r.more, r.at = found, more, r.tried
	}
}

func (r *Roster) hear(ctx context.Context) (found []heard, more bool, err error) {
	entries, err := r.store.Scan(ctx, store.Range{Prefix: prefix}, readMax)
	if err != nil {
		return nil, false, err
	}
	parts, contents := make([]store.PartCell, len(entries)), make([]store.Content, len(entries))
	for i, e := range entries {
		parts[i] = store.PartCell{Cell: store.Cell{Key: e.Key}, Part: store.Object}
	}
	if err := r.store.ReadParts(ctx, parts, contents); err != nil {
		return nil, false, err
	}
	now := time.Now()
	for i, e := range entries {
		s, ok := parse(contents[i].Bytes)
		if !ok || prefix+s.ID != e.Key { // It is gone, or of a later version that says it otherwise.
			continue
		}
		age := r.nowMS(parts[i].Cell) - (e.Value.DeadlineMS - s.KeepMS)
		found = append(found, heard{s.Summary, now.Add(-time.Duration(max(0, age)) * time.Millisecond)})
	}
	return found, len(entries) == readMax, nil
}

// nowMS returns the store's time, or that of this machine if the store has not told it.
func (r *Roster) nowMS(c store.Cell) int64 {
	if clock, ok := r.store.(store.Clock); ok {
		if ms := clock.NowMS(c); ms != 0 {
			return ms
		}
	}
	return time.Now().UnixMilli()
}

// A said is a summary as it is in the store.
type said struct {
	Summary
	KeepMS int64 `json:"keep_ms"` // how long before its deadline it was said
}

// parse reads a summary. Members that it does not know are of later versions.
func parse(text string) (s said, ok bool) {
	if len(text) == 0 || len(text) > textBytesMax || json.Unmarshal([]byte(text), &s) != nil {
		return said{}, false
	}
	if s.KeepMS < 1 || s.KeepMS > keepMSMax || len(s.Doors) > doorsMax || s.Started.Year() > 9999 {
		return said{}, false
	}
	if s.Doors == nil {
		s.Doors = []Door{}
	}
	return s, true
}
