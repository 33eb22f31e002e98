package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quipudb/quipu/internal/memory"
)

// What nobody chose fits in any machine that is not tiny, and is no smaller than
// it must be.
func TestMemoryPlan(t *testing.T) {
	const doors = "127.0.0.1:0"
	plan := func(limit int64, change func(*serveCmd)) (memoryPlan, error) {
		c := &serveCmd{Store: "embedded:", HTTP: doors, RESP: doors, RPC: doors}
		if change != nil {
			change(c)
		}
		return c.planMemory(memory.Limit{Bytes: limit, By: "cgroup"})
	}
	f := func(limit int64, store, requests int64, conns int) {
		t.Helper()
		p, err := plan(limit, nil)
		if err != nil {
			t.Fatalf("limit %d: %v", limit, err)
		}
		if p.store != store<<20 || p.requests != requests<<20 || p.conns != conns || p.sum() > p.total || p.total != limit/4*3 {
			t.Errorf("limit %d: %v", limit, p)
		}
	}
	f(128<<20, 24, 6, 76)
	f(512<<20, 96, 24, 1228)
	f(1<<30, 192, 48, 2764)
	f(16<<30, 256, 64, 10_000)
	f(1<<40, 256, 64, 10_000)

	var sum int64
	p, err := plan(1<<30, nil)
	for _, part := range p.parts()[1:] {
		sum += part.Bytes
	}
	if err != nil || sum != p.sum() {
		t.Errorf("the parts %v add up to %d, %v", p.parts(), sum, err)
	}

	// A door that is off takes nothing, and a store elsewhere hardly anything.
	if p, err := plan(1<<30, func(c *serveCmd) { c.RPC, c.RESP = doorOff, doorOff }); err != nil || p.conns != 10_000 || p.budgets != 1 {
		t.Errorf("REST alone: %v, %v", p, err)
	}
	if p, err := plan(1<<30, func(c *serveCmd) { c.Store = "memory:" }); err != nil || p.store != 0 {
		t.Errorf("a store in memory: %v, %v", p, err)
	}
	if p, err := plan(0, nil); err != nil || p.total != memoryUnknown/4*3 {
		t.Errorf("a machine that does not tell: %v, %v", p, err)
	}

	many := 10_000
	for _, change := range []func(*serveCmd){
		func(c *serveCmd) { c.MaxConnections = &many },
		func(c *serveCmd) { c.Memory = 700 << 20 },
		func(c *serveCmd) { c.RequestMemory = 400 << 20 },
		func(c *serveCmd) { c.MemoryTotal = 80 << 20 },
	} {
		_, err := plan(1<<30, change)
		if err == nil {
			t.Error("too large parts were taken")
			continue
		}
		for _, flag := range []string{"--memory ", "--request-memory ", "--max-connections ", "--memory-total"} {
			if !strings.Contains(err.Error(), flag) {
				t.Errorf("%v: does not name %s", err, flag)
			}
		}
	}
}

// The total comes from a flag, the environment or the file; the collector keeps
// to it, and the metrics show it.
func TestMemoryTotal(t *testing.T) {
	refused(t, 2, "the total is 80.0 MiB (--memory-total)", "serve", "--memory-total", "80MiB")
	refused(t, 2, "the total is 80.0 MiB (--memory-total)", "QUIPU_MEMORY_TOTAL=80MiB", "serve")
	file := filepath.Join(t.TempDir(), "quipu.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("memory: 1GiB\nmemory-total: 1GiB\n")
	refused(t, 1, file+":2: memory-total: the parts of the server may take", "config", "check", file)
	write("memory-total: 1GiB\n")
	r := command(t, "config", "check", file)
	if r.code != 0 || !strings.Contains(r.stdout, "of 1.00 GiB (--memory-total): --memory 256.0 MiB, --request-memory 64.0 MiB times 2, --max-connections ") {
		t.Errorf("config check: %+v", r)
	}
	p := serve(t, "--memory-total", "1GiB")
	for _, want := range []string{
		`quipu_memory_limit_bytes{part="total"} 1.073741824e+09`, `quipu_memory_limit_bytes{part="store"} 0`, "go_gc_gomemlimit_bytes 1.073741824e+09",
	} {
		if _, got := httpGet(t.Context(), t, p.url+"/metrics"); !strings.Contains(got, want) {
			t.Errorf("metrics: no %s", want)
		}
	}
}
