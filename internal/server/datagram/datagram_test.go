package datagram_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/server/datagram"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fixture is a door that serves, and a sender.
type fixture struct {
	t      *testing.T
	db     *quipu.DB
	door   *datagram.Door
	sender net.Conn
	served chan error
}

func open(t *testing.T, s store.Store, definitions ...definition.Definition) *fixture {
	t.Helper()
	f := &fixture{t: t, db: quipu.New(s, quipu.Options{}), served: make(chan error, 1)}
	if definitions != nil {
		if _, err := f.db.Define(t.Context(), definitions, quipu.DefineOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	f.door = datagram.New(f.db, datagram.Options{Logger: slog.New(slog.DiscardHandler)})
	socket, err := datagram.Listen(&net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	go func() { f.served <- f.door.Serve(socket) }()
	if f.sender, err = net.Dial("udp", socket.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = f.sender.Close()
		if err := f.door.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := <-f.served; err != nil {
			t.Errorf("serve: %v", err)
		}
		if err := f.db.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return f
}

// send sends a datagram, and waits until the door has it: what UDP loses is no matter of
// these tests.
func (f *fixture) send(lines string) {
	f.t.Helper()
	was := f.meter("datagrams_total")
	if _, err := f.sender.Write([]byte(lines)); err != nil {
		f.t.Fatal(err)
	}
	f.wait(func() bool { return f.meter("datagrams_total") > was })
}

func (f *fixture) wait(ok func() bool) {
	f.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			f.t.Fatal("nothing happened for 20 s")
		}
	}
}

func (f *fixture) meter(name string) int64 {
	f.t.Helper()
	found := int64(-1)
	f.door.Meters(func(n, _ string, value float64) {
		if n == "quipu_statsd_"+name {
			found = int64(value)
		}
	})
	if found < 0 {
		f.t.Fatalf("no meter %s", name)
	}
	return found
}

// settled waits until nothing waits, and checks that every accepted line has its end.
func (f *fixture) settled() {
	f.t.Helper()
	f.wait(func() bool { return f.meter("waiting") == 0 })
	accepted := f.meter("counters_total") + f.meter("sets_total")
	if ended := f.meter("added_total") + f.meter("refused_total") + f.meter("unknown_total"); ended != accepted {
		f.t.Fatalf("%d lines accepted, and %d have an end", accepted, ended)
	}
}

func (f *fixture) holds(key string, want int64) {
	f.t.Helper()
	c, err := f.db.Read(f.t.Context(), key)
	if err != nil || c.Value != want {
		f.t.Fatalf("%s holds %d (%v), want %d", key, c.Value, err, want)
	}
}

func memory() store.Store { return memstore.New(memstore.Options{}) }

func TestCounters(t *testing.T) {
	f := open(t, memory())
	f.send("a:1|c\na:2|c|@0.1\n\nb:-5|c|#env:prod\nc:1|g\nd:5|ms\nx:ana|s\nbad\nbad:x|c\n" + strings.Repeat("k", 513) + ":1|c")
	f.settled()
	f.holds("a", 21)
	f.holds("b", -5)
	for name, want := range map[string]int64{"counters_total": 3, "ignored_total": 3, "malformed_total": 3, "added_total": 3, "dropped_total": 0, "datagrams_total": 1} {
		if got := f.meter(name); got != want {
			t.Errorf("%s is %d, want %d", name, got, want)
		}
	}
	f.send("a:9223372036854775807|c")
	f.settled() // refused: 21 and that is over the limit
	f.holds("a", 21)
	if got := f.meter("refused_total"); got != 1 {
		t.Errorf("%d lines refused", got)
	}
}

// Sums of lines that are sampled by a third are right in the mean.
func TestSampled(t *testing.T) {
	f := open(t, memory())
	const lines = 3000
	for range lines / 100 {
		f.send(strings.Repeat("a:1|c|@0.3\n", 100))
	}
	f.settled()
	c, err := f.db.Read(t.Context(), "a")
	if err != nil || c.Value < lines*10/3-200 || c.Value > lines*10/3+200 { // 6 standard deviations are 155
		t.Errorf("%d, %v", c.Value, err)
	}
}

func TestDimensionsAndUsers(t *testing.T) {
	hour, err := definition.ParseWidth("1h")
	if err != nil {
		t.Fatal(err)
	}
	f := open(t, memory(), definition.Definition{
		Pattern:    "views.*",
		Windows:    []definition.Window{{Every: hour, Keep: definition.Keep(30 * 24 * time.Hour)}},
		Dimensions: []definition.Dimension{{By: []string{"country"}}}, Unique: definition.Unique{Of: definition.Who},
	})
	at := time.Now().Add(-2 * time.Hour).Unix()
	f.send("views.home:2|c|#country:DE,request:1\nviews.home:3|c|#request:2,country:DE\nviews.home:1|c|#country:FR\nviews.home:4|c\n" +
		fmt.Sprintf("views.home:7|c|T%d|#country:FR\n", at) +
		"views.home:ana|s|#country:DE\nviews.home:bob|s\nviews.home:ana|s|#country:DE\nother:ana|s")
	f.settled()
	f.holds("views.home", 17)
	by, err := f.db.By(t.Context(), "views.home", "country", quipu.ByOptions{})
	if err != nil || len(by.Values) != 3 || by.Values[0].Value != "FR" || by.Values[0].Count != 8 || by.Values[1].Value != "DE" || by.Values[1].Count != 5 {
		t.Errorf("%+v, %v", by, err)
	}
	u, err := f.db.Uniques(t.Context(), "views.home", quipu.UniqueOptions{By: "country"})
	if err != nil || u.Count != 2 || !u.Exact {
		t.Errorf("%+v, %v", u, err)
	}
	if got := f.meter("ignored_total"); got != 1 {
		t.Errorf("%d lines ignored", got)
	}
	s, err := f.db.Range(t.Context(), "views.home", quipu.RangeOptions{To: time.Now().Add(-time.Hour)})
	if err != nil || s.Sum != 7 {
		t.Errorf("%+v, %v", s, err)
	}
}

// What is accepted counts once, while the store takes one call in three.
func TestExactly(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	var hooks storetest.Hooks
	var calls atomic.Int64
	hooks.On(storetest.OnWrite, func(c *storetest.Call) error {
		if calls.Add(1)%3 != 0 {
			return store.ErrUnavailable
		}
		return c.Pass()
	})
	s := storetest.Wrap(memory(), &hooks)
	f := open(t, s)
	want := map[string]int64{}
	for range 40 {
		var lines strings.Builder
		for range 50 {
			key, n := fmt.Sprintf("k%d", random.IntN(9)), random.Int64N(100)
			fmt.Fprintf(&lines, "%s:%d|c\n", key, n)
			want[key] += n
		}
		f.send(lines.String())
	}
	f.settled()
	for key, n := range want {
		f.holds(key, n)
	}
	if t.Failed() {
		t.Logf("seed %d", seed)
	}
}

// What a door can't hold while the store is slow is dropped and said, and what it has
// taken is added before Shutdown returns.
func TestShutdownAndLimit(t *testing.T) {
	var hooks storetest.Hooks
	slow := make(chan struct{})
	hooks.On(storetest.OnWrite, func(c *storetest.Call) error {
		<-slow
		return c.Pass()
	})
	f := open(t, storetest.Wrap(memory(), &hooks))
	const lines, most = 120_000, 2 * 50_000
	var datagram strings.Builder
	for i := range lines {
		fmt.Fprintf(&datagram, "k%d:1|c\n", i)
		if i%4000 == 3999 {
			f.send(datagram.String())
			datagram.Reset()
		}
	}
	f.wait(func() bool { return f.meter("waiting")+f.meter("dropped_total") == lines })
	if waiting := f.meter("waiting"); waiting > most {
		t.Errorf("%d lines wait", waiting)
	}
	close(slow)
	if err := f.door.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.settled()
	if got := f.meter("added_total") + f.meter("dropped_total"); got != lines {
		t.Errorf("%d lines have an end", got)
	}
}
