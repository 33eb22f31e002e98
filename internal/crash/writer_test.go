package crash

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	quipuclient "github.com/quipudb/quipu/client"
	"github.com/quipudb/quipu/internal/serving"
)

// A host is a data directory and the servers that live on it, one after the
// other, with nothing open but one door, always at one address.
type host struct {
	t       *testing.T
	binary  string
	dir     string
	addr    string
	args    []string // of the server
	process *serving.Process
}

// newHost starts a server with a door, which the name of its flag says, and with
// more arguments.
func newHost(t *testing.T, binary, door string, more ...string) *host {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") // a port that is free
	if err != nil {
		t.Fatal(err)
	}
	h := &host{t: t, binary: binary, dir: filepath.Join(t.TempDir(), "data"), addr: l.Addr().String()}
	h.args = append([]string{"--data", h.dir, "--http", "off", door, h.addr, "--memory", "16MiB"}, more...)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	h.start()
	return h
}

func (h *host) start() {
	h.t.Helper()
	h.process = launch(h.t, h.binary, h.args...)
	if _, err := ready(h.t.Context(), h.process); err != nil {
		h.t.Fatal(err)
	}
}

// dial connects until the test ends.
func (h *host) dial() *quipuclient.DB {
	h.t.Helper()
	db, err := quipuclient.Dial(h.t.Context(), h.addr, quipuclient.Options{})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		if err := db.Close(); err != nil {
			h.t.Errorf("close the client: %v", err)
		}
	})
	return db
}

// writers kills the server under combining writers. What they added counts
// exactly: a writer sends until it knows.
func writers(t *testing.T, binary string, rng *rand.Rand) {
	h := newHost(t, binary, "--rpc")
	db := h.dial()
	const keys, callers = 20, 4
	type side struct {
		writer *quipuclient.Writer
		prefix string
		added  [keys]atomic.Int64
	}
	sides := []*side{{prefix: "wait"}, {prefix: "flush"}}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i, s := range sides {
		w, err := db.Writer(t.Context(), quipuclient.WriterOptions{
			Mode: quipuclient.Mode(i), Every: 5 * time.Millisecond, OnFailure: func(f quipuclient.Failure) { t.Errorf("failure: %+v", f) },
		})
		if err != nil {
			t.Fatal(err)
		}
		s.writer = w
		for range callers {
			own := rand.New(rand.NewPCG(rng.Uint64(), 0))
			wg.Go(func() {
				for n := 1; ; n++ {
					select {
					case <-stop:
						return
					default:
					}
					if n%100 == 0 {
						pause(time.Millisecond, stop) // let others have the processor
					}
					k, delta := own.IntN(keys), own.Int64N(1000)-100
					if err := s.writer.Add(t.Context(), fmt.Sprint(s.prefix, k), delta); err != nil {
						t.Errorf("Add: %v", err)
						return
					}
					s.added[k].Add(delta)
				}
			})
		}
	}
	for range *cycles {
		seen := sides[0].writer.Stats().Batches
		for sides[0].writer.Stats().Batches == seen { // until it is under load again
			pause(time.Millisecond, h.process.Exited)
		}
		pause(time.Duration(rng.IntN(200))*time.Millisecond, h.process.Exited)
		h.process.Kill()
		h.start()
	}
	close(stop)
	wg.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	resent := uint64(0)
	for _, s := range sides {
		if err := s.writer.Close(ctx); err != nil {
			t.Fatalf("%s: close the writer: %v", s.prefix, err)
		}
		for k := range keys {
			c, err := db.Read(ctx, fmt.Sprint(s.prefix, k), quipu.Exact())
			if want := s.added[k].Load(); err != nil || c.Value != want {
				t.Errorf("%s%d is %d, %v; %d was added", s.prefix, k, c.Value, err, want)
			}
		}
		st := s.writer.Stats()
		resent += st.Resent
		t.Logf("%s: %+v", s.prefix, st)
	}
	if resent == 0 {
		t.Error("no batch was sent again: nothing was killed under load")
	}
	h.process.Kill()
	command(t, binary, "verify", "--data", h.dir)
}

// What is set in the environment of a child that counts.
const (
	childAddr = "CRASH_TEST_COUNT_AT"
	childKey  = "CRASH_TEST_COUNT_KEY"
)

// killedClients kills clients. Each says what it is about to add, and what it was
// told is durable: what counts lies between the two.
func killedClients(t *testing.T, binary string, rng *rand.Rand) {
	h := newHost(t, binary, "--rpc")
	said := make([]tale, *cycles)
	for i := range said {
		said[i] = runChild(t, h.addr, fmt.Sprint("child", i), rng)
	}
	if err := h.process.Drain(); err != nil { // and so the last that they sent has arrived
		t.Fatal(err)
	}
	h.start()
	db := h.dial()
	for i, s := range said {
		c, err := db.Read(t.Context(), fmt.Sprint("child", i), quipu.Exact())
		if err != nil || c.Value < s.durable || c.Value > s.begun {
			t.Errorf("child %d: %d count, %v: %d were durable, %d begun", i, c.Value, err, s.durable, s.begun)
		}
	}
}

// A tale is what a child says.
type tale struct{ begun, durable int64 }

// runChild runs a child and kills it, and returns the last it said.
func runChild(t *testing.T, addr, key string, rng *rand.Rand) (said tale) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), self)
	c.Env = append(os.Environ(), childAddr+"="+addr, childKey+"="+key)
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	lines := 1 + rng.IntN(60)
	r := bufio.NewReader(out)
	for n := 0; ; n++ {
		var next tale
		if _, err := fmt.Fscanln(r, &next.begun, &next.durable); err != nil {
			if n < lines {
				t.Errorf("the child ended by itself: %v", err)
			}
			break
		}
		said = next
		if n == lines {
			pause(time.Duration(rng.IntN(5))*time.Millisecond, nil)
			if err := c.Process.Kill(); err != nil {
				t.Error(err)
			}
		}
	}
	_, _ = io.Copy(io.Discard, r)
	_ = c.Wait() // it was killed
	return said
}

// countForever is the child: it adds one after the other until it is killed.
func countForever(addr, key string) error {
	ctx := context.Background()
	db, err := quipuclient.Dial(ctx, addr, quipuclient.Options{})
	if err != nil {
		return err
	}
	w, err := db.Writer(ctx, quipuclient.WriterOptions{Mode: quipuclient.Flush, Every: time.Millisecond})
	if err != nil {
		return err
	}
	var said tale
	for {
		const step = 100
		said.begun += step
		if _, err := fmt.Fprintln(os.Stdout, said.begun, said.durable); err != nil {
			return errors.Join(err, db.Close())
		}
		for range step {
			if err := w.Add(ctx, key, 1); err != nil {
				return err
			}
		}
		if err := w.Flush(ctx); err != nil {
			return err
		}
		said.durable = said.begun
	}
}
