package main

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/hostile"
)

// Attacks on every door cost the server little memory, and a client that means
// well is answered throughout. How fast is a figure of bench: tests share their
// machine.
func TestHostile(t *testing.T) {
	const peakMax = 256 << 20 // what a server takes that holds nothing, its budgets, and some
	for _, a := range slices.Concat(hostile.RPC(), hostile.REST()) {
		t.Run(a.Name, func(t *testing.T) {
			p := serve(t, "--api-key", "secret", "--memory-total", "512MiB", "--request-memory", "4MiB", "--log-level", "error")
			target := hostile.Target{HTTP: p.addrOf("http"), RESP: p.addrOf("resp"), RPC: p.addrOf("rpc"), Key: "secret"}
			lasting := time.Second
			if strings.Contains(a.Name, "half") { // it takes a while to send so much
				lasting = 3 * time.Second
			}
			waited, err := hostile.Besiege(t.Context(), a, target, lasting)
			if err != nil || len(waited) == 0 {
				t.Errorf("the client that means well had %d replies, %v", len(waited), err)
			}
			peak := p.peak()
			t.Logf("the server held %d MiB at most", peak>>20)
			if peak > peakMax {
				t.Errorf("want no more than %d MiB", peakMax>>20)
			}
		})
	}
}

// peak returns the most memory that the server had resident.
func (p *process) peak() int64 {
	p.t.Helper()
	status, err := os.ReadFile("/proc/" + strconv.Itoa(p.c.Process.Pid) + "/status")
	if err != nil {
		p.t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(status), "VmHWM:")
	line, _, _ = strings.Cut(line, "kB")
	n, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	if err != nil {
		p.t.Fatal(err)
	}
	return n << 10
}
