package main

import (
	"strings"
	"testing"
)

// A shop that reserves from the command line.
func TestReserve(t *testing.T) {
	p := serve(t)
	client := p.client()
	f := func(want string, args ...string) {
		t.Helper()
		if got := client(args...); got != want {
			t.Errorf("quipu %q: %q, want %q", args, got, want)
		}
	}
	f("10", "set", "stock", "10")
	one := client("reserve", "stock", "3", "--ttl", "1h", "--who", "eve", "--id", "cart-1")
	f(one, "reserve", "stock", "3", "--ttl", "1h", "--who", "eve", "--id", "cart-1")
	two := client("reserve", "stock", "--ttl", "7d")
	f("6", "get", "stock")
	if got := client("reservations", "stock"); !strings.HasPrefix(got, two+"\t1\t") || !strings.Contains(got, "\n"+one+"\t3\t") || !strings.HasSuffix(got, "\teve") {
		t.Errorf("%q", got)
	}
	if got := client("reservations", "stock", "--who", "eve", "--json"); !strings.Contains(got, `"value":10,"reserved":4,"available":6,"open":2`) {
		t.Errorf("%q", got)
	}
	if got := client("extend", one, "--ttl", "2h"); !strings.HasSuffix(got, "Z") {
		t.Errorf("%q", got)
	}
	f("2", "commit", one, "2")
	f("2", "commit", one, "2")
	f("1", "release", two)
	f("1", "release", two)
	f("", "reservations", "stock")
	f("8", "get", "stock")
	f("8", "commit", client("reserve", "stock", "8", "--ttl", "1m"))
	refused(t, 1, "1 asked for, and 0 available", "reserve", "stock", "--ttl", "1m", "--addr", p.url)
	again := []string{"reserve", "stock", "3", "--ttl", "1h", "--who", "eve", "--id", "cart-1", "--addr", p.url}
	refused(t, 1, "names reservation "+one+", which is committed", again...)
	if r := command(t, append(again, "--json")...); r.code != 1 || !strings.Contains(r.stdout, `"state":"committed"`) {
		t.Errorf("replayed: %+v", r)
	}
	refused(t, 1, "(ended)", "commit", one, "--addr", p.url)
	refused(t, 1, "(ended)", "extend", two, "--ttl", "1m", "--addr", p.url)
	refused(t, 2, "--ttl", "reserve", "stock", "--addr", p.url)
	refused(t, 1, "not the id of a reservation", "commit", "x", "--addr", p.url)
}
