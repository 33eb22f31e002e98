package main

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestMedian(t *testing.T) {
	f := func(want float64, values ...float64) {
		t.Helper()
		if got := (&series{Values: values}).median(); got != want {
			t.Errorf("median of %v: got %v, want %v", values, got, want)
		}
	}
	f(3, 3)
	f(2, 3, 1, 2)
	f(2.5, 4, 1, 3, 2)
}

func TestNumber(t *testing.T) {
	f := func(v float64, want string) {
		t.Helper()
		if got := number(v); got != want {
			t.Errorf("number of %v: got %q, want %q", v, got, want)
		}
	}
	f(0.71234, "0.712")
	f(99.94, "99.9")
	f(123.4, "123")
	f(1234, "1,234")
	f(10_000_000, "10,000,000")
}

// Ratios are those of the rounds, not of the medians.
func TestOver(t *testing.T) {
	var s session
	for i, ours := range []float64{10, 30, 100} {
		s.record("a", rate, ours)
		s.record("b", rate, []float64{10, 10, 50}[i])
	}
	if got := s.over("a", "b", rate); got != 2 {
		t.Errorf("got %v, want 2", got)
	}
	s.atLeast("rate", 2, 2)
	s.atMost("time", 2, 1)
	if !s.Targets[0].Met || s.Targets[1].Met {
		t.Errorf("targets: got %v, want one met and one missed", s.Targets)
	}
}

func TestAlternate(t *testing.T) {
	var turns strings.Builder
	side := func(name string) func() error {
		return func() error {
			turns.WriteString(name)
			return nil
		}
	}
	s := session{options: options{rounds: 3, out: t.Output()}, ctx: t.Context()}
	if err := s.alternate(side("a"), side("b")); err != nil {
		t.Fatal(err)
	}
	if got, want := turns.String(), "abbaab"; got != want {
		t.Errorf("turns: got %s, want %s", got, want)
	}
}

func TestScattered(t *testing.T) {
	for _, n := range []int{100_000, 10_000_000} {
		number := scattered(n)
		seen := make([]bool, n)
		for i := range n {
			if k := number(i); seen[k] {
				t.Fatalf("of %d keys, %d comes twice", n, k)
			} else {
				seen[k] = true
			}
		}
	}
}

// Every record that was committed is in the file.
func TestGroupLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, err := openGroupLog(path)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 10 {
				if err := l.commit([]byte("record")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if want := strings.Repeat("record", 80); err != nil || string(got) != want {
		t.Errorf("got %d bytes, %v; want %d", len(got), err, len(want))
	}
}

// This process takes some memory, and no more time than it and its children.
func TestUsage(t *testing.T) {
	if _, peak, err := usage(); err != nil || peak < mib {
		t.Errorf("usage: got a peak of %v bytes, %v", peak, err)
	}
	own, err := cpuTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if all, err := cpuTimeOfAll(os.Getpid()); err != nil || all < own {
		t.Errorf("CPU time with children: got %v, %v; want at least %v", all, err, own)
	}
}
