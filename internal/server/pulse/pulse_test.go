package pulse

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/alert"
	"github.com/quipudb/quipu/internal/port"
	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world runs f with the pulse of a DB in memory.
func world(t *testing.T, f func(db *quipu.DB, m *server.Metrics, u *Pulse)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		db := quipu.New(memstore.New(memstore.Options{}), quipu.Options{})
		m := server.NewMetrics(db.Port())
		u := New(m, db.Port(), About{Version: "v1", Doors: func() []server.DoorAddress {
			return []server.DoorAddress{{Name: "rpc", Address: "b"}, {Name: "http", Address: "a"}}
		}}, slog.New(slog.DiscardHandler))
		f(db, m, u)
		u.Close()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
}

func now(t *testing.T, u *Pulse) Overview {
	t.Helper()
	b, err := u.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	text, err := b.FullText()
	if err != nil {
		t.Fatal(err)
	}
	var o Overview
	if err := json.Unmarshal(text, &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// Rates are those of the last seconds, and the history has all of them.
func TestRates(t *testing.T) {
	world(t, func(db *quipu.DB, m *server.Metrics, u *Pulse) {
		route := m.Route("POST", "/api/v1/counters/{key}/increment")
		<-time.After(beatEvery / 2) // between two beats
		for range 10 {
			for range 7 {
				if _, err := db.Add(t.Context(), "a", 1); err != nil {
					t.Fatal(err)
				}
				route.Observe(http.StatusOK, time.Millisecond)
			}
			<-time.After(beatEvery)
		}
		synctest.Wait()
		o := now(t, u)
		if o.Rates.Writes != 7 || o.Rates.Errors != 0 || o.Server.Version != "v1" || o.Server.Store != "memory" {
			t.Errorf("rates %+v, server %+v", o.Rates, o.Server)
		}
		if len(o.Doors) != 2 || o.Doors[0].Name != "http" || o.Doors[0].Calls != 7 || o.Doors[0].P99 == nil || o.Doors[1].P99 != nil {
			t.Errorf("doors %+v", o.Doors)
		}
		if len(o.History.Writes) != 10 || o.History.Writes[9] != 7 || o.History.LagMS[9] != nil {
			t.Errorf("history %+v", o.History)
		}
	})
}

// What is kept does not grow, and a beat that somebody has does not change.
func TestLimits(t *testing.T) {
	world(t, func(_ *quipu.DB, _ *server.Metrics, u *Pulse) {
		<-time.After(beatEvery / 2)
		first, _ := u.Watch()
		before, err := first.FullText()
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(2 * historyMax * beatEvery)
		synctest.Wait()
		if o := now(t, u); len(o.History.Writes) != historyMax || len(o.History.LagMS) != historyMax {
			t.Errorf("%d and %d values in the history", len(o.History.Writes), len(o.History.LagMS))
		}
		u.mu.Lock()
		if n := len(u.readings); n != timesBeats+1 {
			t.Errorf("%d readings are kept", n)
		}
		u.mu.Unlock()
		if after, err := first.FullText(); err != nil || string(after) != string(before) {
			t.Errorf("the first beat has changed to %s, %v", after, err)
		}
	})
}

// A counter that was hot keeps its last minute, and no longer.
func TestHot(t *testing.T) {
	u := &Pulse{hot: map[hotKey][]float64{}}
	hot := func(keys ...string) []Hot {
		var found []port.HotCounter
		for _, k := range keys {
			found = append(found, port.HotCounter{Namespace: "n", Key: k, Rate: 10, Shards: 1})
		}
		return u.warm(found)
	}
	hot("a", "b")
	hot("a")
	got := hot("a", "b")
	if len(got) != 2 || got[0].Key != "a" || got[0].Rate != 10 || got[1].Rate != 6.67 || len(got[1].Rates) != 3 || got[1].Rates[1] != 0 {
		t.Errorf("hot are %+v", got)
	}
	for range hotBeats + 1 {
		hot("a")
	}
	if len(u.hot) != 1 {
		t.Errorf("%d counters are remembered", len(u.hot))
	}
	if got := hot("a"); len(got[0].Rates) != hotBeats {
		t.Errorf("%d rates", len(got[0].Rates))
	}
	for i := range 3 * hotKept {
		hot(string(rune('A' + i)))
	}
	if len(u.hot) > hotKept {
		t.Errorf("%d counters are remembered", len(u.hot))
	}
}

// sick is a source whose store can't be reached.
type sick struct{ asked int }

func (*sick) Hottest(int) []port.HotCounter { return nil }

func (s *sick) Health(context.Context) port.Health {
	s.asked++
	if s.asked == 1 {
		return port.Health{Partitions: 2, Down: []int{1}, Err: store.ErrUnavailable}
	}
	return port.Health{Partitions: 2, Down: []int{0, 1}, Err: store.ErrUnavailable}
}

// The store is looked at only when somebody asks, and not each time.
func TestLook(t *testing.T) {
	world(t, func(_ *quipu.DB, _ *server.Metrics, u *Pulse) {
		s := &sick{}
		u.source = s
		<-time.After(time.Minute)
		if s.asked != 0 {
			t.Fatalf("the store was looked at %d times", s.asked)
		}
		u.Look(t.Context())
		u.Look(t.Context())
		if o := now(t, u); s.asked != 1 || o.Server.Status != "degraded" || len(o.Server.Down) != 1 || o.Server.Detail == "" {
			t.Errorf("%d looks, server %+v", s.asked, o.Server)
		}
		<-time.After(lookEvery)
		u.Look(t.Context())
		if o := now(t, u); s.asked != 2 || o.Server.Status != "unavailable" {
			t.Errorf("%d looks, server %+v", s.asked, o.Server)
		}
	})
}

// The alerting rules see the metrics every 15 s, and say what is wrong.
func TestAlerts(t *testing.T) {
	world(t, func(_ *quipu.DB, m *server.Metrics, u *Pulse) {
		<-time.After(beatEvery / 2)
		state := func(name string) alert.State {
			t.Helper()
			all, _ := u.Alerts()
			for _, a := range all {
				if a.Name == name {
					return a.State
				}
			}
			t.Fatalf("there is no %s", name)
			return ""
		}
		route := m.Route("GET", "/api/v1/counters/{key}")
		if got := state("QuipuErrors"); got != alert.Quiet {
			t.Errorf("at first it is %s", got)
		}
		fail := func(times int) {
			for range times {
				route.Observe(http.StatusServiceUnavailable, time.Second)
				<-time.After(15 * time.Second)
			}
		}
		fail(5)
		if got := state("QuipuErrors"); got != alert.Pending {
			t.Errorf("when calls fail it is %s", got)
		}
		fail(20)
		if got := state("QuipuErrors"); got != alert.Firing {
			t.Errorf("after minutes it is %s", got)
		}
		if got := state("QuipuCallsSlow"); got != alert.Firing {
			t.Errorf("calls of a second are %s", got)
		}
		if got := state("QuipuDown"); got != alert.Quiet {
			t.Errorf("a server that tells is %s", got)
		}
		all, seen := u.Alerts()
		if len(all) < u.Rules() || seen < 6*time.Minute {
			t.Errorf("%d alerts of %d rules, seen for %v", len(all), u.Rules(), seen)
		}
	})
}
