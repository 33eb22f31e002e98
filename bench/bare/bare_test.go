//go:build linux

package bare

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func open(t *testing.T, path string) *Server {
	t.Helper()
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// Commands are executed however they are cut into pieces.
func TestExecute(t *testing.T) {
	f := func(sent, want string) {
		t.Helper()
		for cut := range len(sent) + 1 {
			s := open(t, filepath.Join(t.TempDir(), "log"))
			c := &conn{}
			rest, err := s.execute(c, []byte(sent[:cut]))
			if err == nil {
				rest, err = s.execute(c, append(rest, sent[cut:]...))
			}
			if string(c.out) != want || len(rest) > 0 || err != nil {
				t.Fatalf("%q, cut at %d: got %q, %v, and %q is left; want %q", sent, cut, c.out, err, rest, want)
			}
		}
	}
	const incr, get = "*2\r\n$4\r\nINCR\r\n$1\r\na\r\n", "*2\r\n$3\r\nGET\r\n$1\r\na\r\n"
	f(incr+incr+get, ":1\r\n:2\r\n$1\r\n2\r\n")
	f(get, "$-1\r\n")
	f(strings.Repeat(incr, 10)+get, ":1\r\n:2\r\n:3\r\n:4\r\n:5\r\n:6\r\n:7\r\n:8\r\n:9\r\n:10\r\n$2\r\n10\r\n")
	long := ""
	for i := range groupMax + 8 {
		long += fmt.Sprintf(":%d\r\n", i+1)
	}
	f(strings.Repeat(incr, groupMax+8), long)
	f("*3\r\n$6\r\nCONFIG\r\n$3\r\nGET\r\n$4\r\nsave\r\n"+incr, "-ERR unknown command\r\n:1\r\n")
	f("*2\r\n$4\r\nINCR\r\n$24\r\n"+strings.Repeat("k", 24)+"\r\n", "-ERR "+errKey.Error()+"\r\n")
	f("*2\r\n$4\r\nINCR\r\n$0\r\n\r\n", "-ERR "+errKey.Error()+"\r\n")
}

func TestProtocolErrors(t *testing.T) {
	f := func(sent string) {
		t.Helper()
		s, c := open(t, filepath.Join(t.TempDir(), "log")), &conn{}
		if _, err := s.execute(c, []byte(sent)); err != nil || string(c.out) != "-"+errProtocol.Error()+"\r\n" {
			t.Errorf("%q: got %q, %v", sent, c.out, err)
		}
	}
	f("GET a\r\n")
	f("*x\r\n")
	f("*2\r\n$4\r\nINCR\r\n:1\r\n")
	f("*2\r\n$3\r\nGET\r\n$-1\r\n")
	f("*99999999999\r\n")
}

// The table finds what a map would, while it grows.
func TestTable(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	var got table
	if err := got.make(2); err != nil {
		t.Fatal(err)
	}
	want := map[string]int64{}
	for range 50_000 {
		key := fmt.Sprint(random.IntN(20_000))
		s, err := got.find(got.hash([]byte(key)), []byte(key))
		if err != nil {
			t.Fatal(err)
		}
		s.value++
		want[key]++
	}
	for key, n := range want {
		if s := got.look(got.hash([]byte(key)), []byte(key)); s.length == 0 || s.value != n {
			t.Fatalf("seed %d: %s is %+v, want %d", seed, key, s, n)
		}
	}
	if got.used != len(want) {
		t.Errorf("seed %d: %d counters, want %d", seed, got.used, len(want))
	}
}

// A log that is cut anywhere has all turns before the cut, and takes new ones.
func TestTorn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	s := open(t, path)
	turn := func(s *Server, keys ...string) {
		t.Helper()
		for _, key := range keys {
			incr(t, s, key)
		}
		if err := s.log.sync(); err != nil {
			t.Fatal(err)
		}
	}
	var ends []int64
	var states []map[string]int64
	for _, keys := range [][]string{{"a", "a", "b"}, {"b"}, {"c", "a", "c"}} {
		turn(s, keys...)
		ends, states = append(ends, s.log.end), append(states, counts(s))
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := range ends[2] + 100 {
		torn := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(torn, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		want := map[string]int64{}
		for i, end := range ends {
			if cut >= end {
				want = states[i]
			}
		}
		again := open(t, torn)
		if got := counts(again); !maps.Equal(got, want) {
			t.Fatalf("cut at %d: got %v, want %v", cut, got, want)
		}
		turn(again, "a")
		if got := counts(open(t, torn)); got["a"] != want["a"]+1 {
			t.Fatalf("cut at %d, and one more: got %v, had %v", cut, got, want)
		}
	}
}

// What followed a torn frame does not come back when another frame takes its place.
func TestTornIsGone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	turn := func(s *Server) {
		t.Helper()
		for i := range 5000 { // so long that no zeros are written ahead
			incr(t, s, fmt.Sprintf("key:%012d", i))
		}
		if err := s.log.sync(); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, path)
	turn(s)
	turn(s)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	whole[headBytes] ^= 1
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	turn(open(t, path))
	for key, n := range counts(open(t, path)) {
		if n != 1 {
			t.Fatalf("%s is %d, want 1", key, n)
		}
	}
}

// A frame with a byte that was changed, and what follows it, is not taken.
func TestDamaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	s := open(t, path)
	incr(t, s, "a")
	if err := s.log.sync(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range s.log.end {
		whole[i] ^= 1
		damaged := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(damaged, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		if got := counts(open(t, damaged)); len(got) > 0 {
			t.Errorf("byte %d changed: got %v", i, got)
		}
		whole[i] ^= 1
	}
}

func incr(t *testing.T, s *Server, key string) {
	t.Helper()
	if err := s.incr(&conn{}, &add{[]byte(key), s.table.hash([]byte(key))}); err != nil {
		t.Fatal(err)
	}
}

// counts returns all counters.
func counts(s *Server) map[string]int64 {
	all := map[string]int64{}
	for i := range s.table.slots {
		if at := &s.table.slots[i]; at.length > 0 {
			all[string(at.key[:at.length])] = at.value
		}
	}
	return all
}
