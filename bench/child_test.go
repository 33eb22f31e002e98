package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/load"
	"github.com/quipudb/quipu/internal/serving"
)

// TestMain is the program itself where a child is wanted: a child is the same
// binary again.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == childCommand {
		main()
		return
	}
	dir, err := os.MkdirTemp("", "quipu-bench-test-")
	if err != nil {
		log.Fatal(err)
	}
	binDir = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// binDir is where the tests build the command, once for all of them.
var binDir string

var built = sync.OnceValues(func() (string, error) { return serving.Build(context.Background(), "..", binDir) })

// What the bare loop has acknowledged is there when it was killed.
func TestBareKilled(t *testing.T) {
	dir := t.TempDir()
	start := func() (*child, *peer) {
		t.Helper()
		c, serves, err := startChild[bareServes](t.Context(), "bare", bareArgs{dir})
		if err != nil {
			t.Fatal(err)
		}
		return c, &peer{name: bareLoop, port: fmt.Sprint(serves.Port), pid: c.cmd.Process.Pid}
	}
	c, to := start()
	const keys, requests = 10_000, 50_000
	if err := fillKeys(t.Context(), to.addr(), 0, keys); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := generate(ctx, load.Config{
		Target: to.addr(), Op: load.Incr, Dist: load.Uniform, Keys: keys, ServerPID: to.pid,
		Connections: 3, Depth: 5000, Requests: requests, // more than is read at a time, which cuts commands
	})
	if err != nil || r.Operations != requests {
		t.Fatalf("%v: %+v", err, r)
	}
	if err := c.stop(killed); err != nil {
		t.Fatal(err)
	}
	c, to = start()
	total := 0
	for i := range keys {
		n, err := to.get(t.Context(), keyOf(int64(i)))
		if err != nil {
			t.Fatal(err)
		}
		total += n
	}
	if total != keys+requests {
		t.Errorf("%d of %d are left", total, keys+requests)
	}
	if err := c.stop(ended); err != nil {
		t.Error(err)
	}
}
