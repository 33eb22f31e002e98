package crash

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/quipudb/quipu/internal/load/redisproc"
	"github.com/quipudb/quipu/internal/pgtest"
	"github.com/quipudb/quipu/internal/serving"
)

var (
	cycles = flag.Int("cycles", 5, "how many times each part of TestCrash kills the server under load")
	seed   = flag.Uint64("seed", 0, "seed of TestCrash; 0 takes a new one")
)

func TestMain(m *testing.M) {
	if addr := os.Getenv(childAddr); addr != "" {
		if err := countForever(addr, os.Getenv(childKey)); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// TestCrash kills the real server again and again, and recounts each time.
//
// The seed decides what is sent and when the server is killed. How the server
// interleaves it, and so what it had done by then, differs from run to run.
func TestCrash(t *testing.T) {
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	binary := build(t)
	f := func(name string, test func(t *testing.T, rng *rand.Rand)) {
		t.Run(name, func(t *testing.T) {
			t.Logf("replay: go test ./internal/crash -run 'TestCrash/%s' -count=1 -args -seed=%d -cycles=%d", name, *seed, *cycles)
			test(t, rand.New(rand.NewPCG(*seed, 0)))
		})
	}
	f("create", func(t *testing.T, rng *rand.Rand) { creation(t, binary, rng) })
	f("synced", func(t *testing.T, rng *rand.Rand) { newWorld(t, binary, rng, false).live() })
	f("policies", func(t *testing.T, rng *rand.Rand) { newWorld(t, binary, rng, true).live() })
	f("views", func(t *testing.T, rng *rand.Rand) { newViewedWorld(t, binary, rng, "").live() })
	f("views-postgres", func(t *testing.T, rng *rand.Rand) { newViewedWorld(t, binary, rng, pgtest.For(t).URL()).live() })
	f("views-redis", func(t *testing.T, rng *rand.Rand) {
		s := redisproc.For(t, "--appendonly", "yes", "--appendfsync", "always")
		newViewedWorld(t, binary, rng, "redis://"+s.Addr).live()
	})
	f("resp", func(t *testing.T, rng *rand.Rand) { overLoop(t, binary, rng) })
	f("resp-tls", func(t *testing.T, rng *rand.Rand) { overGoroutines(t, binary, rng) })
	f("reserve", func(t *testing.T, rng *rand.Rand) { reserved(t, binary, rng) })
	f("sketches", func(t *testing.T, rng *rand.Rand) { sketched(t, binary, rng, "", 1) })
	f("sketches-postgres", func(t *testing.T, rng *rand.Rand) { sketched(t, binary, rng, pgtest.For(t).URL(), 2) })
	f("sketches-redis", func(t *testing.T, rng *rand.Rand) {
		s := redisproc.For(t, "--appendonly", "yes", "--appendfsync", "always")
		sketched(t, binary, rng, "redis://"+s.Addr, 2)
	})
	f("scripts", func(t *testing.T, rng *rand.Rand) { scripted(t, binary, rng, "", 1, 3) })
	f("scripts-postgres", func(t *testing.T, rng *rand.Rand) { scripted(t, binary, rng, pgtest.For(t).URL(), 2, 3) })
	f("scripts-redis", func(t *testing.T, rng *rand.Rand) {
		s := redisproc.For(t, "--appendonly", "yes", "--appendfsync", "always")
		scripted(t, binary, rng, "redis://"+s.Addr, 2, 1)
	})
	f("react", func(t *testing.T, rng *rand.Rand) { reacted(t, binary, rng) })
	f("writer", func(t *testing.T, rng *rand.Rand) { writers(t, binary, rng) })
	f("client", func(t *testing.T, rng *rand.Rand) { killedClients(t, binary, rng) })
}

// creation kills servers that make a new directory.
func creation(t *testing.T, binary string, rng *rand.Rand) {
	for range *cycles {
		w := newWorld(t, binary, rng, false)
		for range 1 + rng.IntN(4) {
			w.abort()
		}
		w.start()
		if err := deliver(t.Context(), w.client, w.newWorker(0).one()); err != nil {
			t.Fatal(err)
		}
		w.process.Kill()
		w.ended()
		w.restart()
		w.stop()
	}
}

// A world is a data directory, the servers that live on it, one after the
// other, and what is known of the counters in it.
type world struct {
	t      *testing.T
	rng    *rand.Rand
	binary string
	dir    string
	config string // its file, if there is one
	store  string // where it counts instead of in the directory, beside another server, if not ""

	process *serving.Process // that serves
	client  *client
	addr    string
	life    int           // counts the processes
	startup time.Duration // how long the last start took

	targets  []target
	cold     []*counter
	counters []*counter // all of them
	owed     []*request // must be sent again
	sample   []*request // of the last life, to be repeated
	kept     []*request // of former lives, to be repeated
	began    time.Time  // if counters have views: events happen now, or hours before this

	mu       sync.Mutex
	problems []error

	// What the test has seen, to tell that it saw something.
	decided, doubts, gone int
	aborts, drains, torn  int
	repeats               atomic.Int64
	flips, undos          atomic.Int64 // changes of definitions, and writes that were taken back
}

func newWorld(t *testing.T, binary string, rng *rand.Rand, policies bool) *world {
	w := &world{
		t: t, rng: rng, binary: binary, dir: filepath.Join(t.TempDir(), "data"),
		targets: targets(policies), cold: cold(), startup: 100 * time.Millisecond,
	}
	if policies {
		w.configure(policiesText)
	}
	for _, target := range w.targets {
		w.counters = append(w.counters, target.counter)
	}
	w.counters = append(w.counters, w.cold...)
	return w
}

const policiesText = "policies:\n- {pattern: 'w:*', durability: written}\n- {pattern: 'm:*', durability: memory}\n"

// configure writes the file of the servers.
func (w *world) configure(text string) {
	w.t.Helper()
	file := filepath.Join(w.t.TempDir(), "quipu.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.config = file
}

// live runs the whole story of a directory.
func (w *world) live() {
	w.restart()
	for range *cycles {
		w.load()
		w.restart()
	}
	w.load()
	if w.store == "" {
		w.checkOffline()
	} else {
		w.restart()
		w.stop()
	}
	if w.decided == 0 {
		w.t.Error("nothing was counted")
	}
	w.t.Logf("%d lives: %d writes decided; %d were in doubt, of which %d had not counted and were sent again; "+
		"%d requests were repeated; %d starts were killed, %d drains were whole, %d torn ends were cut; "+
		"definitions were changed %d times, and %d writes taken back",
		w.life, w.decided, w.doubts, w.gone, w.repeats.Load(), w.aborts, w.drains, w.torn,
		w.flips.Load(), w.undos.Load())
}

// problem takes an error from a goroutine.
func (w *world) problem(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.problems = append(w.problems, err)
}

// fatal ends the test if err is not nil, with what the server logged.
func (w *world) fatal(err error) {
	w.t.Helper()
	if err != nil {
		w.process.Kill()
		w.t.Fatalf("life %d: %v\nthe server's log:\n%s", w.life, err, &w.process.Log)
	}
}

// launch starts a server on the directory.
func (w *world) launch() {
	w.t.Helper()
	w.life++
	w.process = launch(w.t, w.binary, w.command()...)
}

// command returns the arguments of a server.
func (w *world) command() []string {
	args := []string{"--http", "127.0.0.1:0"}
	if w.store != "" {
		args = append(args, "--store", w.store)
	} else { // With little memory there are checkpoints under load, too.
		args = append(args, "--data", w.dir, "--memory", "16MiB")
	}
	if w.config != "" {
		args = append(args, "--config", w.config)
	}
	return args
}

// abort starts a server and kills it before, or just when, it is ready.
func (w *world) abort() {
	w.t.Helper()
	w.aborts++
	w.launch()
	switch w.rng.IntN(4) {
	case 0: // at once
	case 1:
		_, err := ready(w.t.Context(), w.process)
		w.fatal(err)
	default:
		pause(time.Duration(w.rng.Int64N(int64(w.startup)*5/4)), w.process.Exited)
		w.fatal(w.process.Died())
	}
	w.process.Kill()
}

// start starts a server, and waits until it is ready.
func (w *world) start() {
	w.t.Helper()
	w.launch()
	addr, err := ready(w.t.Context(), w.process)
	w.fatal(err)
	w.startup = time.Since(w.process.Began)
	w.addr, w.client = addr, newClient(addr)
}

// restart starts a server and judges what it serves. Before that some are
// killed while they start, or while they are judged.
func (w *world) restart() {
	w.t.Helper()
	for range max(0, w.rng.IntN(5)-2) {
		w.abort()
	}
	for {
		w.start()
		var killer *time.Timer
		if p := w.process; w.rng.IntN(3) == 0 {
			killer = time.AfterFunc(time.Duration(w.rng.IntN(100))*time.Millisecond, p.Kill)
		}
		err := w.judge(w.t.Context(), w.client)
		if killer == nil || killer.Stop() {
			w.fatal(err)
			return
		}
		w.ended()
		if !errors.Is(err, errDown) {
			w.fatal(err)
		}
	}
}

// load has workers count until the server is killed, which is soon.
func (w *world) load() {
	w.t.Helper()
	ctx, stop := w.t.Context(), make(chan struct{})
	peer, kill := w.peer()
	var done sync.WaitGroup
	for i := range workers {
		k := w.newWorker(i)
		if peer != nil && i%2 == 1 {
			k.client = peer
		}
		done.Go(func() { k.run(ctx, stop) })
	}
	for i := range readers {
		k := w.newWorker(workers + i)
		done.Go(func() { w.repeatedly(stop, func() error { return k.read(ctx) }) })
	}
	if w.rng.IntN(2) == 0 {
		rng := rand.New(rand.NewPCG(w.rng.Uint64(), 0))
		done.Go(func() { w.operate(ctx, stop, rng) })
	}
	if !w.began.IsZero() && w.rng.IntN(2) == 0 {
		rng := rand.New(rand.NewPCG(w.rng.Uint64(), 0))
		done.Go(func() { w.redefine(ctx, stop, rng) })
	}
	pause(time.Duration(50+w.rng.IntN(550))*time.Millisecond, w.process.Exited)
	w.fatal(w.process.Died())
	quiet := w.rng.IntN(3) == 0
	if quiet {
		close(stop)
		done.Wait()
		w.fatal(w.newWorker(workers + readers).whisper(ctx))
	}
	drained := w.end()
	kill()
	done.Wait()
	w.ended()
	w.fatal(errors.Join(append(w.problems, drained)...))
}

// peer starts another server of the store, if there is one, and returns a client of it, and
// what kills it.
func (w *world) peer() (c *client, kill func()) {
	w.t.Helper()
	if w.store == "" {
		return nil, func() {}
	}
	p := launch(w.t, w.binary, w.command()...)
	addr, err := ready(w.t.Context(), p)
	w.fatal(err)
	c = newClient(addr)
	return c, func() {
		p.Kill()
		c.close()
	}
}

func (w *world) newWorker(i int) *worker {
	return &worker{
		world: w, client: w.client, name: fmt.Sprintf("%d.%d", w.life, i),
		rng: rand.New(rand.NewPCG(w.rng.Uint64(), 0)),
	}
}

// end ends the server: mostly by SIGKILL at once, else by SIGTERM with a
// SIGKILL in the midst of the drain, or after it. It returns an error if a
// drain that was not cut off failed.
func (w *world) end() error {
	switch d := w.rng.IntN(10); {
	case d < 6:
		w.process.Kill()
		return nil
	case d < 8:
		w.process.Terminate()
		pause(time.Duration(w.rng.IntN(30))*time.Millisecond, w.process.Exited)
		w.process.Kill()
		return nil
	default:
		return w.process.Drain()
	}
}

// ended takes note of the end of a process, and of its last words.
func (w *world) ended() {
	<-w.process.Exited
	w.client.close()
	if strings.Contains(w.process.Log.String(), "torn end") {
		w.torn++
	}
	switch {
	case w.process.Cmd.ProcessState.Success():
		w.drains++
		for _, c := range w.counters {
			c.harden()
		}
	case w.store == "" && w.rng.IntN(4) == 0:
		w.tear()
	}
}

// tear adds to the log what a write may leave that is cut short by a kill.
// Kills alone do so too rarely.
func (w *world) tear() {
	w.t.Helper()
	segments, err := filepath.Glob(filepath.Join(w.dir, "log", "*.wal"))
	if err != nil || len(segments) == 0 {
		w.t.Fatalf("no log in %s: %v", w.dir, err)
	}
	f, err := os.OpenFile(slices.Max(segments), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	part := make([]byte, 1+w.rng.IntN(10_000))
	for i := range part {
		part[i] = byte(w.rng.Uint32())
	}
	_, err = f.Write(part)
	if err := errors.Join(err, f.Close()); err != nil {
		w.t.Fatal(err)
	}
}

// stop drains the server.
func (w *world) stop() {
	w.t.Helper()
	w.client.close() // a drain waits some seconds for connections that were never used
	w.fatal(w.process.Drain())
	w.ended()
}
