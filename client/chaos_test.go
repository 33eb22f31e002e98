package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/client"
	"github.com/quipudb/quipu/internal/server/rpc"
)

// A site is a DB in a directory, served, that can be killed and started again.
type site struct {
	t    testing.TB
	dir  string
	link *link

	db     *quipu.DB
	door   *rpc.Door
	served chan error
}

func newSite(t testing.TB) *site {
	s := &site{t: t, dir: t.TempDir()}
	s.link = newLink(t, s.start())
	t.Cleanup(s.stop)
	return s
}

// start returns where it can be reached.
func (s *site) start() string {
	s.t.Helper()
	var err error
	if s.db, err = quipu.Open(s.dir, quipu.Options{Logger: slog.New(slog.DiscardHandler)}); err != nil {
		s.t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	s.door = rpc.New(s.db, rpc.Options{Logger: slog.New(slog.DiscardHandler)})
	s.served = make(chan error, 1)
	go func() { s.served <- s.door.Serve(l) }()
	return l.Addr().String()
}

// stop cuts everybody off, whatever is under way.
func (s *site) stop() {
	s.t.Helper()
	if err := errors.Join(s.door.Close(), <-s.served, s.db.Close()); err != nil {
		s.t.Errorf("stop: %v", err)
	}
}

// restart stops and starts.
func (s *site) restart() {
	s.t.Helper()
	s.stop()
	s.link.to(s.start())
}

// Connections break at random bytes and the server restarts: what was
// acknowledged counts once, and nothing else counts.
func TestWriterThroughBreakingConnections(t *testing.T) {
	for _, mode := range []client.Mode{client.Wait, client.Flush} {
		t.Run(fmt.Sprint("mode ", mode), func(t *testing.T) {
			s := newSite(t)
			w := newWriter(t, s.link.dial(client.Options{}), client.WriterOptions{
				Mode: mode, Every: 5 * time.Millisecond, KeysMax: 50,
				OnFailure: func(f client.Failure) { t.Errorf("failure %+v", f) },
			})
			s.link.breakAfter(6000)
			s.link.cut(false)
			want := oracle{sums: map[string]int64{}}
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for range 300 {
						key, delta := fmt.Sprintf("key %d", rand.IntN(100)), rand.Int64N(100)
						if err := w.Add(t.Context(), key, delta); err != nil {
							t.Errorf("Add: %v", err)
							return
						}
						want.add(key, delta)
					}
				})
			}
			for range 3 {
				seen := w.Stats().Batches
				poll(t, func() bool { return w.Stats().Batches > seen+3 || w.Stats().Pending == 0 })
				s.restart()
			}
			wg.Wait()
			closeWriter(t, w)
			want.check(t, s.db)
			if mode == client.Wait && w.Stats().Resent == 0 {
				t.Errorf("nothing was sent again: stats %+v", w.Stats())
			}
		})
	}
}

// The same for single calls: with tokens they count once, without they count at
// most once and say when that is not known.
func TestCallsThroughBreakingConnections(t *testing.T) {
	f := func(o client.Options, opts func(i int) []quipu.WriteOption) (unknown int64) {
		t.Helper()
		s := newSite(t)
		c := s.link.dial(o)
		s.link.breakAfter(3000)
		s.link.cut(false)
		var sure, unsure atomic.Int64
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				for i := range 100 {
					switch _, err := c.Add(t.Context(), "a", 1, opts(g*1000+i)...); {
					case err == nil:
						sure.Add(1)
					case errors.Is(err, quipu.ErrUnknown):
						unsure.Add(1)
					default:
						t.Errorf("Add: %v", err)
					}
					if rs, err := c.AddBatch(t.Context(), []quipu.Event{{Key: "b", Delta: 1, Token: fmt.Sprint(g, i)}}); err != nil || rs[0].Err != nil {
						t.Errorf("AddBatch: %v, %v", rs, err)
					}
					if _, err := c.Read(t.Context(), "a"); err != nil {
						t.Errorf("Read: %v", err)
					}
				}
			})
		}
		s.restart()
		wg.Wait()
		holds(t, s.db, "b", 400)
		count, err := s.db.Read(t.Context(), "a")
		if err != nil || count.Value < sure.Load() || count.Value > sure.Load()+unsure.Load() {
			t.Errorf("a is %d, %v: %d counted, %d are unknown", count.Value, err, sure.Load(), unsure.Load())
		}
		return unsure.Load()
	}
	tokens := func(i int) []quipu.WriteOption { return []quipu.WriteOption{quipu.Token(fmt.Sprint(i))} }
	none := func(int) []quipu.WriteOption { return nil }
	if unknown := f(client.Options{}, tokens); unknown != 0 {
		t.Errorf("%d calls with tokens are unknown", unknown)
	}
	if unknown := f(client.Options{Tokens: true}, none); unknown != 0 {
		t.Errorf("%d calls with tokens of the client are unknown", unknown)
	}
	if unknown := f(client.Options{}, none); unknown == 0 {
		t.Error("no connection broke under a call")
	}
}

// A server that can't be reached is no reason to hang, and nothing changed.
func TestCallsWithoutServer(t *testing.T) {
	s := newSite(t)
	c := s.link.dial(client.Options{Timeout: 100 * time.Millisecond})
	s.link.cut(true)
	f := func(err error) {
		t.Helper()
		if !errors.Is(err, quipu.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want %v", err, quipu.ErrUnavailable)
		}
	}
	poll(t, func() bool { // until the client has noticed
		_, err := c.Read(t.Context(), "a")
		return errors.Is(err, quipu.ErrUnavailable)
	})
	_, err := c.Add(t.Context(), "a", 1)
	f(err)
	_, err = c.Add(t.Context(), "a", 1, quipu.Token("t"))
	f(err)
	_, err = c.AddBatch(t.Context(), []quipu.Event{{Key: "a", Delta: 1}})
	f(err)
	_, err = c.List(t.Context(), "", quipu.ListOptions{})
	f(err)
	_, err = client.Dial(t.Context(), s.link.listener.Addr().String(), client.Options{Timeout: 50 * time.Millisecond})
	f(err)
	if _, err := client.Dial(t.Context(), "\x00", client.Options{}); !errors.Is(err, quipu.ErrInvalid) {
		t.Errorf("dial nothing: %v", err)
	}
}
