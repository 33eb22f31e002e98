// Package pulse samples a server: once a second it reads the metrics, and keeps
// the last minutes for the overview.
//
// However many readers there are, the metrics are read once a second, and the
// kept data does not grow. A slow reader misses samples and makes nobody wait.
package pulse

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/quipudb/quipu/deploy"
	"github.com/quipudb/quipu/internal/alert"
	"github.com/quipudb/quipu/internal/port"
	"github.com/quipudb/quipu/internal/server"
)

const (
	beatEvery = time.Second
	lookEvery = 5 * time.Second // between two looks at the store

	historyMax = 300 // beats that the history has
	hotMax     = 20  // counters that an overview names
	hotBeats   = 60  // rates that it has of each
	hotKept    = 100 // counters whose rates are kept

	// rateBeats and timesBeats are over how many beats rates are taken, and times of
	// calls: long enough to be read, and short enough to be now.
	rateBeats  = 5
	alertBeats = 15 // as often as deploy/prometheus.yml scrapes
	timesBeats = 30
)

// About is what does not change while a server runs.
type About struct {
	Version string
	Doors   func() []server.DoorAddress // nil if they are not known
}

// A Source is what is looked at.
type Source interface {
	Hottest(n int) []port.HotCounter
	Health(ctx context.Context) port.Health
}

// A Pulse is that of one server. It is safe for concurrent use.
type Pulse struct {
	metrics *server.Metrics
	source  Source
	about   About
	base    Server
	stop    context.CancelFunc
	done    chan struct{}

	watch sync.Mutex // guards what rules have seen
	rules *alert.Rules

	mu       sync.Mutex // guards the fields below
	looked   time.Time
	health   port.Health
	readings []*server.Reading // the last ones, oldest first
	history  History
	hot      map[hotKey][]float64
	full     Overview
	brief    Overview      // without what was before
	beat     *Beat         // of these two
	next     chan struct{} // closed at the next beat
}

type hotKey struct{ namespace, key string }

// A Beat is what was found at one moment. It does not change.
type Beat struct {
	full, brief func() ([]byte, error)
}

// FullText returns the overview as JSON.
func (b *Beat) FullText() ([]byte, error) { return b.full() }

// BriefText returns the overview as JSON, without what was before this beat.
func (b *Beat) BriefText() ([]byte, error) { return b.brief() }

// New begins to take the pulse of a server. Close it.
func New(metrics *server.Metrics, p *port.Port, about About, logger *slog.Logger) *Pulse {
	traits := p.Traits()
	ctx, stop := context.WithCancel(context.Background())
	u := &Pulse{
		metrics: metrics, source: p, about: about, stop: stop,
		base: Server{
			Version: about.Version, Store: traits.Name, Durability: traits.Durability.String(), Shared: traits.Shared,
			ReadOnly: p.ReadOnly(), Started: time.Now().UTC(), Partitions: traits.Partitions,
		},
		done: make(chan struct{}), next: make(chan struct{}),
		hot:     map[hotKey][]float64{},
		history: History{StepMS: beatEvery.Milliseconds()},
	}
	var err error
	if u.rules, err = alert.Parse(deploy.Alerts()); err != nil {
		panic(err) // they are in the program
	}
	go u.run(ctx, logger)
	return u
}

// Close ends it.
func (u *Pulse) Close() {
	u.stop()
	<-u.done
}

func (u *Pulse) run(ctx context.Context, logger *slog.Logger) {
	defer close(u.done)
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for n := 0; ; n++ {
		if n%alertBeats == 0 {
			u.judge(logger)
		}
		if r, err := u.metrics.Reading(); err != nil {
			logger.Warn("read the metrics", "error", err)
		} else {
			u.take(r)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// judge shows the metrics to the alerting rules.
func (u *Pulse) judge(logger *slog.Logger) {
	samples, err := u.metrics.Samples(u.rules.Wants, instance)
	if err != nil {
		logger.Warn("read the metrics for alerts", "error", err)
		return
	}
	u.watch.Lock()
	defer u.watch.Unlock()
	u.rules.Add(time.Now(), samples)
}

// instance is the server in what alerts say.
const instance = "this server"

// Alerts returns what the rules of deploy/alerts.yml say now, and for how long they
// have seen the metrics.
func (u *Pulse) Alerts() (alerts []alert.Alert, seen time.Duration) {
	u.watch.Lock()
	defer u.watch.Unlock()
	return u.rules.Alerts(), u.rules.Seen(time.Now())
}

// Rules returns how many rules there are.
func (u *Pulse) Rules() int { return u.rules.Len() }

// Look looks at the store, unless that was done of late, and returns when it is known
// how the store is. Nobody looks while nobody asks: it is a call to every partition.
func (u *Pulse) Look(ctx context.Context) {
	u.mu.Lock()
	fresh := time.Since(u.looked) < lookEvery
	if !fresh {
		u.looked = time.Now() // others need not
	}
	u.mu.Unlock()
	if fresh {
		return
	}
	h := u.source.Health(ctx)
	if ctx.Err() != nil {
		return // it says nothing of the store
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.health = h
	if u.beat != nil { // what is known of the store belongs to the last beat already
		u.publish(u.full, u.brief)
	}
}

// Watch returns the last beat, which is nil before the first, and a channel that is
// closed at the next.
func (u *Pulse) Watch() (*Beat, <-chan struct{}) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.beat, u.next
}

// Now returns the last beat. It waits for the first.
func (u *Pulse) Now(ctx context.Context) (*Beat, error) {
	for {
		beat, next := u.Watch()
		if beat != nil {
			return beat, nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Overview returns the last overview, without what was before. It waits for the first.
func (u *Pulse) Overview(ctx context.Context) (Overview, error) {
	if _, err := u.Now(ctx); err != nil {
		return Overview{}, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.brief, nil
}

// take makes a beat of a reading.
func (u *Pulse) take(r *server.Reading) {
	hot := u.source.Hottest(hotMax)
	u.mu.Lock()
	defer u.mu.Unlock()
	o := u.overview(r)
	u.readings = keep(u.readings, r, timesBeats+1)
	if len(u.readings) > 1 { // Else there is nothing to compare with.
		u.remember(r)
	}
	o.Hot = u.warm(hot)
	full := o
	full.History = &History{
		StepMS: u.history.StepMS,
		Writes: append([]float64{}, u.history.Writes...), Reads: append([]float64{}, u.history.Reads...),
		Errors: append([]float64{}, u.history.Errors...), LagMS: append([]*float64{}, u.history.LagMS...),
	}
	brief := o
	brief.Hot = make([]Hot, len(o.Hot))
	for i, h := range o.Hot {
		h.Rates = nil
		brief.Hot[i] = h
	}
	u.publish(full, brief)
	close(u.next)
	u.next = make(chan struct{})
}

// publish makes overviews the last beat. It is called with the lock held.
func (u *Pulse) publish(full, brief Overview) {
	full.Server, full.Doors = u.server(), u.doors()
	brief.Server, brief.Doors = full.Server, full.Doors
	u.full, u.brief = full, brief
	u.beat = &Beat{
		full:  sync.OnceValues(func() ([]byte, error) { return json.Marshal(&full) }),
		brief: sync.OnceValues(func() ([]byte, error) { return json.Marshal(&brief) }),
	}
}

// remember adds the last beat to the history.
func (u *Pulse) remember(now *server.Reading) {
	before := u.readings[len(u.readings)-2]
	h := &u.history
	rates := ratesOf(before, now)
	h.Writes = keep(h.Writes, rates.Writes, historyMax)
	h.Reads = keep(h.Reads, rates.Reads, historyMax)
	h.Errors = keep(h.Errors, rates.Errors, historyMax)
	h.LagMS = keep(h.LagMS, lagOf(before, now), historyMax)
}

// warm returns the hot counters, and notes their rates. A counter that is not hot any
// more is forgotten when nothing is known of its last minute: it may be hot again.
func (u *Pulse) warm(found []port.HotCounter) []Hot {
	all, rates := make([]Hot, 0, len(found)), make(map[hotKey][]float64, len(found))
	for _, h := range found {
		id := hotKey{h.Namespace, h.Key}
		past := keep(u.hot[id], round(h.Rate), hotBeats)
		rates[id] = past
		lately := past[max(0, len(past)-rateBeats):]
		one := Hot{Namespace: h.Namespace, Key: h.Key, Rate: round(mean(lately)), Shards: h.Shards, Rates: past}
		if h.P99 > 0 {
			one.P99 = millis(h.P99)
		}
		if h.HasRollup {
			one.RollupAge = new(h.RollupAge.Milliseconds())
		}
		all = append(all, one)
	}
	for id, past := range u.hot {
		if _, hot := rates[id]; !hot && len(rates) < hotKept && slices.Max(past) > 0 {
			rates[id] = keep(past, 0, hotBeats)
		}
	}
	u.hot = rates
	slices.SortStableFunc(all, func(a, b Hot) int { return cmp.Compare(b.Rate, a.Rate) })
	return all
}

func mean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

// keep appends to what has at most n elements, and drops the oldest. It returns
// another array: those who have the old one may still look at it.
func keep[T any](s []T, v T, n int) []T {
	if len(s) >= n {
		s = s[len(s)-n+1:]
	}
	return append(slices.Clip(s), v)
}
