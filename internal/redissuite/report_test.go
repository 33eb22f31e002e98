package main

import (
	"bufio"
	"slices"
	"strings"
	"testing"
)

const printed = "\x1b[1;37;49mTesting unit/type/incr\x1b[0m\n" +
	"[\x1b[0;32;49mok\x1b[0m]: INCR twice (1 ms)\n" +
	"[\x1b[0;32;49mok\x1b[0m]: SET (NX) (0 ms)\n" +
	"[\x1b[0;31;49merr\x1b[0m]: INCR fails in tests/unit/type/incr.tcl\nERR no\n    while executing\n\"r incr x\"\n" +
	"[ignore]: INCR shared: Tag: needs:debug denied\n" +
	"[\x1b[0;31;49merr\x1b[0m]: a block was broken off\nwhile executing\n" +
	"[\x1b[0;32;49mok\x1b[0m]: INCR twice (3 ms)\n" +
	"[1/1 \x1b[0;33;49mdone\x1b[0m]: unit/type/incr (0 seconds)\n\n                   The End\n\n" +
	"*** [\x1b[0;31;49merr\x1b[0m]: INCR fails in tests/unit/type/incr.tcl\nERR no\n"

func TestParse(t *testing.T) {
	got := parse(printed)
	want := []result{{name: "INCR twice"}, {name: "SET (NX)"}, {name: "INCR fails", failed: true, why: "ERR no\n    while executing\n\"r incr x\""}, {name: "INCR twice"}}
	if len(got) != len(want) {
		t.Fatalf("parsed %+v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("result %d: %+v, want %+v", i, got[i], want[i])
		}
	}
}

// A test that is missing has failed, one that needs a command that Quipu lacks is
// not counted, and neither is one that Redis itself fails.
func TestComparison(t *testing.T) {
	knows := func(names ...string) func(string) (bool, error) {
		return func(name string) (bool, error) {
			return slices.Contains(names, name), nil
		}
	}
	c := &comparison{known: knows("get", "client", "client|list", "lpush"), has: knows("get", "client")}
	asked := map[string][]string{"a": {"get|k", "nonsense"}, "b": {"lpush|k"}, "c": {"client|list"}, "d": {"client|none"}}
	redis := []result{{name: "a"}, {name: "a"}, {name: "b"}, {name: "c"}, {name: "d"}, {name: "e", failed: true}}
	quipu := []result{{name: "a"}, {name: "a", failed: true, why: "no"}, {name: "c"}, {name: "e"}}
	if apart, err := c.apart(redis, asked); err != nil || !slices.Equal(apart, []string{"b", "c"}) {
		t.Errorf("left out %q, %v; want b and c", apart, err)
	}
	if err := c.add("unit", redis, quipu, asked); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	c.print(&b, false)
	if want := "| unit | 5 | 3 | 1 |\n"; !strings.Contains(b.String(), want) {
		t.Errorf("%s, want %s", b.String(), want)
	}
	for _, want := range []string{"unit: a\n    no\n", "unit: d\n    not reached"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%s, want %s", b.String(), want)
		}
	}
}

// What the suite does before the first test, and between blocks, is no test's.
func TestNote(t *testing.T) {
	w := &watch{seen: map[string][]string{}}
	r := bufio.NewReader(strings.NewReader("PING\r\n*3\r\n$5\r\nDEBUG\r\n$3\r\nlog\r\n$46\r\n### Starting test the name in tests/unit/x.tcl\r\n" +
		"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*2\r\n$8\r\nFUNCTION\r\n$5\r\nflush\r\n*1\r\n$6\r\nDBSIZE\r\n"))
	for {
		args, err := request(r)
		if err != nil {
			break
		}
		w.note(args)
	}
	if got := strings.Join(w.commands()["the name"], " "); got != "ping get|k" || len(w.seen) != 1 {
		t.Errorf("noted %q of %q", got, w.seen)
	}
}
