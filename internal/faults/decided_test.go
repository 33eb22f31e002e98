package faults

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/client"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/load/redisproc"
	"github.com/quipudb/quipu/internal/pgtest"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/pgstore"
	"github.com/quipudb/quipu/store/redisstore"
)

// A decider is the library, or a client: what they decide must look as if it were decided
// one thing at a time.
type decider interface {
	Define(ctx context.Context, definitions []definition.Definition, o quipu.DefineOptions) (quipu.Change, error)
	Add(ctx context.Context, key string, delta int64, opts ...quipu.WriteOption) (quipu.Receipt, error)
	Reset(ctx context.Context, key string, opts ...quipu.WriteOption) (quipu.Receipt, error)
	Read(ctx context.Context, key string, opts ...quipu.ReadOption) (quipu.Count, error)
	Reserve(ctx context.Context, key string, amount int64, ttl time.Duration, opts ...quipu.WriteOption) (quipu.Reservation, error)
	Commit(ctx context.Context, id string, amount int64, opts ...quipu.WriteOption) (quipu.Reservation, error)
	Release(ctx context.Context, id string, opts ...quipu.WriteOption) (quipu.Reservation, error)
	Extend(ctx context.Context, id string, ttl time.Duration, opts ...quipu.WriteOption) (quipu.Reservation, error)
	Reservation(ctx context.Context, id string) (quipu.Reservation, error)
	Reservations(ctx context.Context, key string, o quipu.ReservationOptions) (quipu.ReservationPage, error)
	React(ctx context.Context, key, user, choice string, opts ...quipu.WriteOption) (quipu.Reaction, error)
	Unreact(ctx context.Context, key, user string, opts ...quipu.WriteOption) (quipu.Reaction, error)
	Choice(ctx context.Context, user string, keys ...string) ([]string, error)
	Reactions(ctx context.Context, key string) (quipu.Reactions, error)
}

// A court is who decides for callers, what is broken meanwhile, and what callers were told.
type court struct {
	t     *testing.T
	rng   *rand.Rand
	dbs   []decider
	ways  []*proxy
	kills *node // killed and started again, if there is one

	mu       sync.Mutex // guards the fields below
	problems []error
}

// TestDecidedEmbedded has callers reserve and react by way of a server that is killed, and by
// connections that are cut.
func TestDecidedEmbedded(t *testing.T) {
	c := &court{t: t, rng: replay(t)}
	c.kills = newNode(t, "0", "embedded:", nil, "--data", filepath.Join(t.TempDir(), "data"))
	c.dial(c.kills, 2)
	c.sits()
}

// TestDecidedLibrary does the same in one process, where nothing breaks.
func TestDecidedLibrary(t *testing.T) {
	c := &court{t: t, rng: replay(t)}
	db, err := quipu.Open(filepath.Join(t.TempDir(), "data"), quipu.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	c.use(db)
	c.sits()
}

// TestDecidedPostgres has the library and a server decide over one PostgreSQL.
func TestDecidedPostgres(t *testing.T) {
	c := &court{t: t, rng: replay(t)}
	_, addr := startPostgres(t)
	url := func(way *proxy) string {
		return "postgres://" + pgtest.User + "@" + way.Listen + "/postgres?sslmode=disable"
	}
	c.shared(addr, url, func(ctx context.Context, url string) (store.Store, error) {
		return pgstore.Open(ctx, url, pgstore.Options{})
	})
	c.sits()
}

// TestDecidedRedis does the same over one Redis.
func TestDecidedRedis(t *testing.T) {
	c := &court{t: t, rng: replay(t)}
	url := func(way *proxy) string { return "redis://" + way.Listen }
	c.shared(redisproc.For(t, synced...).Addr, url, func(ctx context.Context, url string) (store.Store, error) {
		return redisstore.Open(ctx, url, redisstore.Options{})
	})
	c.sits()
}

// shared has the library in this process, and a server with a client, use one store.
func (c *court) shared(addr string, url func(*proxy) string, open func(ctx context.Context, url string) (store.Store, error)) {
	c.t.Helper()
	mine, theirs := newProxy(c.t, addr), newProxy(c.t, addr)
	c.kills = newNode(c.t, "0", url(theirs), nil)
	c.dial(c.kills, 1)
	s, err := open(c.t.Context(), url(mine))
	if err != nil {
		c.t.Fatal(err)
	}
	c.use(quipu.New(s, quipu.Options{Logger: slog.New(slog.DiscardHandler)}))
	c.ways = append(c.ways, mine, theirs)
}

// use has callers call a DB, until the test ends.
func (c *court) use(db interface {
	decider
	Close() error
},
) {
	c.t.Cleanup(func() {
		if err := db.Close(); err != nil {
			c.t.Errorf("close: %v", err)
		}
	})
	c.dbs = append(c.dbs, db)
}

// dial has callers call a node, by some ways.
func (c *court) dial(n *node, ways int) {
	c.t.Helper()
	for range ways {
		way := newProxy(c.t, n.rpc)
		db, err := client.Dial(c.t.Context(), way.Listen, client.Options{})
		if err != nil {
			c.t.Fatal(err)
		}
		c.ways = append(c.ways, way)
		c.use(db)
	}
}

const (
	judges   = 6                      // callers of each counter
	cases    = 30                     // what each of them does
	brief    = 400 * time.Millisecond // for which reservations of a history are made
	longer   = 700 * time.Millisecond // by which they are extended
	slack    = 10 * time.Millisecond  // by which servers know the store's time
	unending = int64(1) << 62         // when a call has ended of which nobody knows whether it has done anything
)

// sits has callers reserve and react while connections are cut, and judges what they
// were told.
func (c *court) sits() {
	_, err := c.dbs[0].Define(c.t.Context(), []definition.Definition{{Pattern: "post:*", Choices: choices}}, quipu.DefineOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	for round := range max(1, *rounds) {
		c.hears(round)
	}
}

// hears is one round of histories, each of a new counter.
func (c *court) hears(round int) {
	t, ctx := c.t, c.t.Context()
	var histories []interface {
		act(ctx context.Context, db decider, caller int, rng *rand.Rand) error
		end(ctx context.Context, db decider) error
		judge(t *testing.T)
	}
	for i := range 2 {
		name := fmt.Sprint(round, "-", i)
		histories = append(histories, newStocked("stock:"+name), newLiked("post:"+name))
	}
	stop := make(chan struct{})
	var chaos, all sync.WaitGroup
	mine := rand.New(rand.NewPCG(c.rng.Uint64(), 0))
	chaos.Go(func() { c.disturb(ctx, stop, mine) })
	for _, h := range histories {
		for i := range judges {
			rng := rand.New(rand.NewPCG(c.rng.Uint64(), uint64(i)))
			all.Go(func() {
				for range cases {
					if err := h.act(ctx, c.dbs[rng.IntN(len(c.dbs))], i, rng); err != nil {
						c.problem(err)
						return
					}
					pause(time.Duration(rng.IntN(30))*time.Millisecond, ctx.Done())
				}
			})
		}
	}
	all.Wait()
	close(stop)
	chaos.Wait()
	for _, h := range histories {
		if err := h.end(ctx, c.dbs[0]); err != nil {
			c.problem(err)
		}
	}
	if err := errors.Join(c.problems...); err != nil {
		t.Fatal(err)
	}
	for _, h := range histories {
		h.judge(t)
	}
}

func (c *court) problem(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.problems) < 10 {
		c.problems = append(c.problems, err)
	}
}

// disturb cuts ways, has them reset what comes back, and kills the server now and then.
func (c *court) disturb(ctx context.Context, stop <-chan struct{}, rng *rand.Rand) {
	for len(c.ways) > 0 {
		pause(time.Duration(50+rng.IntN(250))*time.Millisecond, stop)
		select {
		case <-stop:
			return
		default:
		}
		var err error
		way := c.ways[rng.IntN(len(c.ways))]
		switch rng.IntN(12) {
		case 0:
			c.kills.kill()
			err = c.kills.start(ctx)
		case 1, 2, 3, 4:
			way.Stop()
			pause(time.Duration(rng.IntN(100))*time.Millisecond, stop)
		default: // What was done is not told.
			err = way.spoil(back, "reset_peer", `"timeout":0`)
			pause(time.Duration(rng.IntN(40))*time.Millisecond, stop)
		}
		if err = errors.Join(err, way.heal(ctx)); err != nil {
			c.problem(err)
			return
		}
	}
}

// A told is a history of one counter: what callers have asked, and were told.
type told struct {
	key   string
	start time.Time

	mu    sync.Mutex // guards the fields below
	done  []porcupine.Operation
	named int
}

// now is the time of the wall clock at which the history began, and what has gone by since.
func (h *told) now() int64 { return h.start.UnixMicro() + time.Since(h.start).Microseconds() }

func (h *told) record(caller int, in, out any, call, end int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.done = append(h.done, porcupine.Operation{ClientId: caller, Input: in, Output: out, Call: call, Return: end})
}

// name returns a number that nothing else of the history has.
func (h *told) name() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.named++
	return h.named
}

func (h *told) token() quipu.WriteOption { return quipu.Token(h.key + "-" + strconv.Itoa(h.name())) }

// unclear reports whether a call may be sent again: nobody could serve it, or it may have
// done something.
func unclear(err error) bool {
	return errors.Is(err, quipu.ErrUnavailable) || doubted(err)
}

// doubted reports whether a call may have done something, though it failed.
func doubted(err error) bool {
	return errors.Is(err, quipu.ErrUnknown) || errors.Is(err, context.DeadlineExceeded)
}

// insist makes a call until it is clear what has become of it. It returns whether an attempt
// before the last one may have done something.
func insist(ctx context.Context, call func(ctx context.Context) error) (again bool, err error) {
	e := await(ctx, "an answer", func() bool {
		ctx, cancel := context.WithTimeout(ctx, 2*requestTimeout)
		defer cancel()
		if err = call(ctx); unclear(err) {
			again = again || doubted(err)
			return false
		}
		return true
	})
	return again, errors.Join(err, e)
}

// judged wants a history to be found legal, or not.
func (h *told) judged(t *testing.T, model porcupine.Model, want porcupine.CheckResult) {
	t.Helper()
	began := time.Now()
	got, info := porcupine.CheckOperationsVerbose(model, h.done, patience)
	if got == want {
		t.Logf("%s: %d operations: %s in %v", h.key, len(h.done), got, time.Since(began).Round(time.Millisecond))
		return
	}
	t.Errorf("%s: %d operations: %s, want %s", h.key, len(h.done), got, want)
	line := func(o porcupine.Operation) string {
		return fmt.Sprintf("%d…%d %s", o.Call-h.start.UnixMicro(), o.Return-h.start.UnixMicro(), model.DescribeOperation(o.Input, o.Output))
	}
	for _, order := range info.PartialLinearizationsOperations()[0] {
		done := map[string]bool{}
		for i, o := range order {
			if done[line(o)] = true; i >= len(order)-8 {
				t.Logf("explained: %s", line(o))
			}
		}
		for _, o := range h.done {
			if !done[line(o)] {
				t.Logf("not explained: %s", line(o))
			}
		}
	}
}

// TestDecidedLies tells the models of histories stories that are true, and then each with a
// lie, which must be found out.
func TestDecidedLies(t *testing.T) {
	f := func(model porcupine.Model, want porcupine.CheckResult, story ...[2]any) {
		t.Helper()
		h := told{key: fmt.Sprint(story[len(story)-1]), start: time.Now()}
		for i, line := range story {
			h.record(0, line[0], line[1], int64(2*i), int64(2*i+1))
		}
		h.judged(t, model, want)
	}
	stock := func(last claim, truth, lie verdict, more ...[2]any) {
		t.Helper()
		story := append([][2]any{{claim{verb: "add", n: 9}, verdict{value: 9}}, {claim{verb: "reserve", n: 4}, verdict{}}}, more...)
		f(stockModel, porcupine.Ok, append(story, [2]any{last, truth})...)
		f(stockModel, porcupine.Illegal, append(story, [2]any{last, lie})...)
	}
	open, expired := verdict{state: quipu.HoldOpen}, verdict{state: quipu.HoldExpired, repeat: true}
	committed, released := verdict{state: quipu.HoldCommitted, taken: 3}, verdict{state: quipu.HoldReleased}
	again := committed
	again.repeat = true
	commit, extend, lapse := claim{verb: "commit", n: 3}, claim{verb: "extend", by: 7}, claim{verb: "lapse"}
	stock(claim{verb: "read"}, verdict{value: 5}, verdict{value: 9})
	stock(claim{verb: "reserve", hold: 1, n: 6}, verdict{refused: true, value: 5}, verdict{})
	stock(claim{verb: "reserve", hold: 1, n: 5}, verdict{}, verdict{refused: true, value: 5})
	stock(commit, committed, expired)
	stock(commit, again, committed, [2]any{commit, committed})
	stock(claim{verb: "read"}, verdict{value: 6}, verdict{value: 5}, [2]any{commit, committed}, [2]any{commit, again})
	stock(claim{verb: "release"}, again, released, [2]any{commit, committed})
	stock(commit, expired, committed, [2]any{lapse, verdict{}})
	stock(extend, expired, open, [2]any{lapse, verdict{}})
	stock(claim{verb: "look"}, expired, open, [2]any{lapse, verdict{}})
	stock(commit, committed, expired, [2]any{extend, open}, [2]any{lapse, verdict{}})
	stock(claim{verb: "read"}, verdict{value: 9}, verdict{value: 5}, [2]any{lapse, verdict{}}, [2]any{claim{verb: "expire"}, verdict{}})
	stock(claim{verb: "read"}, verdict{value: 5}, verdict{value: 9}, [2]any{extend, verdict{unknown: true}})
	liked := func(last wish, truth, lie fact, more ...[2]any) {
		t.Helper()
		story := append([][2]any{{wish{verb: "react", choice: 1}, fact{changed: true}}, {wish{verb: "react", user: 1, choice: 2}, fact{changed: true}}}, more...)
		f(likesModel, porcupine.Ok, append(story, [2]any{last, truth})...)
		f(likesModel, porcupine.Illegal, append(story, [2]any{last, lie})...)
	}
	liked(wish{verb: "react", choice: 1}, fact{before: 1}, fact{before: 1, changed: true})
	liked(wish{verb: "react"}, fact{before: 1, changed: true}, fact{before: 2, changed: true})
	liked(wish{verb: "counts"}, fact{counts: [4]int64{0, 1, 1}, users: 2}, fact{counts: [4]int64{0, 2}, users: 2})
	liked(wish{verb: "read"}, fact{users: 2}, fact{users: 3}, [2]any{wish{verb: "react", choice: 2}, fact{before: 1, changed: true}})
	liked(wish{verb: "choice"}, fact{}, fact{before: 1}, [2]any{wish{verb: "reset"}, fact{}})
	liked(wish{verb: "choice"}, fact{before: 3}, fact{before: 1}, [2]any{wish{verb: "react", choice: 3}, fact{unknown: true}})
}
