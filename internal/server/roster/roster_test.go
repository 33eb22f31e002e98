package roster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/internal/server/pulse"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

// A shared store is one that several servers use, and that can be unplugged.
type shared struct {
	*memstore.Store
	down atomic.Bool
}

func (s *shared) Traits() store.Traits {
	t := s.Store.Traits()
	t.Shared = true
	return t
}

func (s *shared) Apply(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
	if s.down.Load() {
		return store.ErrUnavailable
	}
	return s.Store.Apply(ctx, batches, replies)
}

func (s *shared) Scan(ctx context.Context, r store.Range, n int) ([]store.Entry, error) {
	if s.down.Load() {
		return nil, store.ErrUnavailable
	}
	return s.Store.Scan(ctx, r, n)
}

// A fleet is servers of one store. Time passes only while all of them wait.
type fleet struct {
	t     *testing.T
	store *shared
}

func newFleet(t *testing.T) *fleet {
	return &fleet{t, &shared{Store: memstore.New(memstore.Options{})}}
}

// open starts a server that listens on an address.
func (f *fleet) open(address string, o Options) (r *Roster, end func()) {
	f.t.Helper()
	db := quipu.New(memstore.New(memstore.Options{}), quipu.Options{}) // the roster alone uses what they share
	p := pulse.New(server.NewMetrics(db.Port()), db.Port(), pulse.About{Version: "v1", Doors: func() []server.DoorAddress {
		return []server.DoorAddress{{Name: "http", Address: address}}
	}}, slog.New(slog.DiscardHandler))
	o.Logger = slog.New(slog.DiscardHandler)
	r = New(f.store, p, o)
	r.host = "host"
	r.Start()
	return r, func() {
		p.Close()
		if err := db.Close(); err != nil {
			f.t.Error(err)
		}
	}
}

// says checks what a server says of all: "ADDRESS", with * for itself and ! if it is silent.
func (f *fleet) says(r *Roster, complete bool, want string) List {
	f.t.Helper()
	synctest.Wait()
	l, err := r.List(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	var all []string
	for _, s := range l.Servers {
		text := s.Doors[0].Address
		if s.Self {
			text += "*"
		}
		if s.Silent {
			text += "!"
		}
		all = append(all, text)
	}
	if got := strings.Join(all, " "); got != want || l.Complete != complete || l.Complete == (l.Detail != "") {
		f.t.Errorf("%q, complete %v %q; want %q, %v", got, l.Complete, l.Detail, want, complete)
	}
	return l
}

func pass(d time.Duration) { <-time.After(d) }

// Servers hear of each other; one that ends takes itself back, and one that is lost is silent,
// and then forgotten, by the store too.
func TestServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		a, endA := f.open("a", Options{})
		b, endB := f.open("b", Options{})
		c, endC := f.open("c", Options{})
		reader, endReader := f.open("r", Options{ReadOnly: true})
		defer func() { a.Close(); endA(); endReader() }()
		pass(2 * time.Second)
		f.says(a, true, "a* b c")
		f.says(b, true, "a b* c")
		f.says(reader, true, "a b c r*") // which the others do not see
		c.Close()
		endC()
		pass(2 * time.Second)
		f.says(a, true, "a* b")

		b.stop() // as if it were killed: nothing is taken back
		b.stop = func() {}
		f.store.down.Store(true)
		b.done.Wait()
		f.store.down.Store(false)
		endB()
		pass(silentAfter + sayEvery)
		l := f.says(a, true, "a* b!")
		if age := l.Servers[1].AgeMS; age < silentAfter.Milliseconds() || age > (silentAfter+2*sayEvery).Milliseconds() {
			t.Errorf("it spoke %d ms ago", age)
		}
		pass(keep)
		f.says(a, true, "a*")
		if found, err := f.store.Scan(t.Context(), store.Range{Prefix: prefix}, 10); err != nil || len(found) != 1 {
			t.Errorf("the store keeps %+v, %v", found, err)
		}
	})
}

// A server that is started again in its place is listed once.
func TestStartedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		a, endA := f.open("a", Options{})
		old, endOld := f.open("b", Options{})
		pass(time.Second)
		f.store.down.Store(true)
		old.Close()
		endOld()
		f.store.down.Store(false)
		again, endAgain := f.open("b", Options{})
		defer func() { a.Close(); again.Close(); endA(); endAgain() }()
		pass(2 * time.Second)
		f.says(a, true, "a* b b") // nobody knows yet that they are not two
		pass(silentAfter + sayEvery)
		f.says(a, true, "a* b")
	})
}

// While the store can't be reached, a server tells what it has heard last, and that it is old;
// nobody is called silent who could not speak.
func TestStoreDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		a, endA := f.open("a", Options{Detail: func(err error) string {
			if !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("error %v", err)
			}
			return "no store"
		}})
		b, endB := f.open("b", Options{})
		defer func() { a.Close(); b.Close(); endA(); endB() }()
		pass(2 * time.Second)
		f.says(a, true, "a* b")
		f.store.down.Store(true)
		pass(time.Minute)
		if l := f.says(a, false, "a* b"); l.Servers[1].AgeMS < time.Minute.Milliseconds() || !strings.Contains(l.Detail, "no store") {
			t.Errorf("%+v", l)
		}
		f.store.down.Store(false)
		pass(sayEvery + time.Second)
		f.says(a, true, "a* b")
	})
}

// A store that nobody shares has one server, and keeps nothing of it.
func TestAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Options{})
		db := quipu.New(s, quipu.Options{})
		p := pulse.New(server.NewMetrics(db.Port()), db.Port(), pulse.About{Version: "v1"}, slog.New(slog.DiscardHandler))
		defer func() { p.Close(); _ = db.Close() }()
		r := New(s, p, Options{})
		r.Start()
		defer r.Close()
		pass(time.Minute)
		l, err := r.List(t.Context())
		if err != nil || len(l.Servers) != 1 || !l.Servers[0].Self || l.Shared || !l.Complete {
			t.Errorf("%+v, %v", l, err)
		}
		if found, err := s.Scan(t.Context(), store.Range{}, 10); err != nil || len(found) != 0 {
			t.Errorf("the store keeps %+v, %v", found, err)
		}
	})
}

// What another program, or a later version, has put there harms nothing, and there is a limit.
func TestStrangeSummaries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		a, endA := f.open("a", Options{})
		defer func() { a.Close(); endA() }()
		pass(time.Second)
		put := func(id, text string) {
			t.Helper()
			err := a.apply(t.Context(), store.Delta{
				Cell: store.Cell{Key: prefix + id}, Op: store.OpPut, Expiry: store.ExpirySet | store.ExpiryAfter, DeadlineMS: keep.Milliseconds(),
				Event: &store.Event{Part: store.Object, Bytes: []byte(text)},
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		put("1", `nonsense`)
		put("2", `{"id":"another","keep_ms":1000}`)
		put("3", `{"id":"3","keep_ms":-1}`)
		put("4", `{"id":"4","keep_ms":300000,"colour":"red","doors":[{"name":"http","address":"later"}]}`)
		put("5", `{"id":"5","keep_ms":300000,"host":"`+strings.Repeat("x", textBytesMax)+`"}`)
		if err := a.apply(t.Context(), store.Delta{Cell: store.Cell{Key: prefix + "6"}, Op: store.OpAdd, N: 1}); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		f.says(a, true, "later a*")
		for i := range listMax {
			put(fmt.Sprintf("many%d", i), fmt.Sprintf(`{"id":"many%d","keep_ms":300000,"doors":[{"name":"http","address":"x"}]}`, i))
		}
		pass(2 * time.Second)
		l, err := a.List(t.Context())
		if err != nil || len(l.Servers) != listMax || l.Complete || l.Detail == "" {
			t.Errorf("%d servers, %v %q, %v", len(l.Servers), l.Complete, l.Detail, err)
		}
	})
}

// FuzzParse reads anything as a summary: what is taken is within its limits, and can be told.
func FuzzParse(f *testing.F) {
	lag := 1.5
	seed, err := json.Marshal(said{Summary{ID: "a", Host: "h", Started: time.Unix(0, 0), LagMS: &lag, Doors: []Door{{Name: "http", Address: ":1"}}}, 1000})
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{string(seed), "", "{}", `{"keep_ms":1}`, `{"keep_ms":1,"doors":[{}],"started_at":"0000-01-01T00:00:00Z"}`, `{"keep_ms":9223372036854775807}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, ok := parse(text)
		if !ok {
			return
		}
		if s.KeepMS < 1 || s.KeepMS > keepMSMax || len(s.Doors) > doorsMax || s.Doors == nil {
			t.Fatalf("%q is %+v", text, s)
		}
		if _, err := json.Marshal(s); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
	})
}
