package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// Sketches are made, filled, asked and merged.
func TestSketchCommands(t *testing.T) {
	p := start(t, nil, "--store", "memory:", "--http", "127.0.0.1:0", "--resp", "off", "--rpc", "off")
	addr := "QUIPU_ADDR=" + p.url
	f := func(stdout, hint string, args ...string) {
		t.Helper()
		r := command(t, append([]string{addr}, args...)...)
		if r.code != 0 || r.stdout != stdout || !strings.Contains(r.stderr, hint) {
			t.Errorf("quipu %q: %+v; want %q, and the hint %q", args, r, stdout, hint)
		}
	}
	f("", "", "sketch", "make", "seen", "filter", "--capacity", "1000", "--error", "0.01")
	f("", "it was there already", "sketch", "make", "seen", "filter", "--capacity", "1000", "--error", "0.01")
	f("ana\tnew\nbob\tnew\nana\tfound\n", "", "sketch", "add", "seen", "ana", "bob", "ana")
	f("ana\tyes\neve\tno\n", "", "sketch", "ask", "seen", "ana", "eve")
	if r := command(t, addr, "sketch", "show", "seen"); r.code != 0 || !strings.HasPrefix(r.stdout, "is\tfilter, capacity 1000, error 0.00781, growth 2\nitems\t2\nroom\t1000\nerror\t") {
		t.Errorf("%+v", r)
	}
	f("", "", "sketch", "make", "clicks", "frequencies", "--epsilon", "0.01", "--confidence", "0.99", "--ttl", "1h")
	for range 2 { // The second changes nothing.
		f("buy\t5\n", "", "sketch", "add", "clicks", "buy", "--amount", "5", "--id", "o1")
	}
	f("buy\t3\n", "", "sketch", "add", "clicks", "buy", "--amount", "-2")
	f("", "", "sketch", "merge", "twice", "clicks", "clicks", "--weights", "2,1")
	f("buy\t9\nsell\t0\n", "", "sketch", "ask", "twice", "buy", "sell")
	if r := command(t, addr, "sketch", "show", "clicks"); r.code != 0 || !strings.HasPrefix(r.stdout, "is\tfrequencies, width 200, depth 7\ntotal\t3\nerror\tat most 0.03 too high") || !strings.Contains(r.stdout, "\nends\t20") {
		t.Errorf("%+v", r)
	}
	f("", "", "sketch", "make", "trending", "top", "--limit", "1")
	f("a\t1\nb\t1\n", "", "sketch", "add", "trending", "a", "b")
	top := "b"
	if r := command(t, addr, "sketch", "show", "trending"); strings.HasSuffix(r.stdout, "\na\t1\n") {
		top = "a"
	}
	f("c\t2\tin the place of "+top+"\n", "", "sketch", "add", "trending", "c", "--amount", "2")
	refused(t, 1, "holds a filter (capacity 1000, ", addr, "sketch", "make", "seen", "top", "--limit", "3")
	refused(t, 1, "make the sketch first", addr, "sketch", "add", "nothing", "x")
	refused(t, 1, "can't be taken away", addr, "sketch", "add", "clicks", "buy", "--amount", "-9")
	refused(t, 1, "used for another payload", addr, "sketch", "add", "clicks", "buy", "--id", "o1")
	refused(t, exitUsage, "--capacity is missing", addr, "sketch", "make", "x", "filter", "--error", "0.01")
	refused(t, exitUsage, `must be one of "filter","frequencies","top"`, addr, "sketch", "make", "x", "bloom")
	refused(t, exitUsage, "2 weights for 1 sketches", addr, "sketch", "merge", "twice", "clicks", "--weights", "2,1")
	refused(t, exitUsage, "give - as the only item", addr, "sketch", "add", "clicks", "a", "--amounts")
	refused(t, exitUsage, "want another number than 0", addr, "sketch", "add", "clicks", "a", "--amount", "0")
	f("0\n", "", "delete", "seen")
	refused(t, 1, "does not exist", addr, "sketch", "show", "seen")
	p.signal(syscall.SIGTERM)
}

// Lines of the standard input go into as few calls as can be, each under a token of its own.
func TestEachItems(t *testing.T) {
	f := func(items []word, in string, want ...int) {
		t.Helper()
		var got []int
		if err := eachItems(items, strings.NewReader(in), func(nth int, some []string) error {
			if nth != len(got) {
				t.Errorf("call %d came as %d", len(got), nth)
			}
			got = append(got, len(some))
			return nil
		}); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%v, %v; want %v", got, err, want)
		}
	}
	stdin := []word{"-"}
	f([]word{"a", "b"}, "", 2)
	f(stdin, "")
	f(stdin, "a\nb\r\n", 2)
	f(stdin, "a\nb", 2)
	f(stdin, strings.Repeat("x\n", 25_000), 10_000, 10_000, 5000)
	f(stdin, strings.Repeat(strings.Repeat("x", 4000)+"\n", 300), 131, 131, 38)
	if err := eachItems(stdin, strings.NewReader(strings.Repeat("x", 100<<10)), nil); err == nil || !strings.Contains(err.Error(), "standard input") {
		t.Errorf("a line of 100 KiB: %v", err)
	}
}
