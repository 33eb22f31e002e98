package redisstore_test

import (
	"bufio"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/load/redisproc"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/redisstore"
)

// restore gives a server what one of layout 1 had: testdata has the commands.
func restore(t *testing.T, s *redisproc.Server) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "layout1.txt"))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	replies := bufio.NewReader(conn)
	for line := range strings.Lines(string(text)) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		args := []string{name}
		for rest != "" {
			quoted, err := strconv.QuotedPrefix(rest)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			arg, _ := strconv.Unquote(quoted)
			args, rest = append(args, arg), strings.TrimPrefix(rest[len(quoted):], " ")
		}
		request := fmt.Sprintf("*%d\r\n", len(args))
		for _, arg := range args {
			request += fmt.Sprintf("$%d\r\n%s\r\n", len(arg), arg)
		}
		if _, err := conn.Write([]byte(request)); err != nil {
			t.Fatal(err)
		}
		if reply, err := replies.ReadString('\n'); err != nil || reply[0] != ':' {
			t.Fatalf("%s: %q, %v", line, reply, err)
		}
	}
}

var migratedAt = time.UnixMilli(1_700_000_000_500)

func migrated() redisstore.Options {
	return redisstore.Options{Now: func() time.Time { return migratedAt }}
}

// holdsLayout1 checks that a store has what testdata has: values, tokens, marks.
func holdsLayout1(t *testing.T, k kit) {
	t.Helper()
	blind := func(d store.Delta) store.Delta {
		d.Want = false
		return d
	}
	for p, keys := range [][5]string{
		{"a2", "until3", "laid3", "new0", "gone0"}, {"a1", "until0", "laid0", "new3", "gone3"}, {"a0", "until1", "laid1", "new2", "gone2"},
	} {
		a := keys[0]
		if got := k.batch(add(a, 1)).Partition; got != p {
			t.Fatalf("%s is in partition %d, not %d", a, got, p)
		}
		k.holds(a, 299)
		k.holds(keys[1], math.MaxInt64)
		k.holds(keys[3], 2)
		k.one(store.Delta{Cell: cell(keys[2]), Op: store.OpAdd, N: 0, Guard: store.Guard{Laid: true, Layout: 1<<40 + 1}}, store.Applied, 0, 0)
		if r := k.one(once(add(a, -7), "plain"), store.Applied, 5, -2); !r.Replayed {
			t.Errorf("%+v is no repeat", r)
		}
		k.one(once(blind(add(a, 1)), "blind"), store.Applied, 0, 0)
		f, err := k.Lookup(t.Context(), cell(keys[4]), "decided")
		if err != nil || f.State != store.TokenApplied || f.Op != store.OpDelete {
			t.Errorf("fate %+v, %v", f, err)
		}
		if f, err := k.Lookup(t.Context(), cell(a), "settled"); err != nil || f.State != store.TokenSettled {
			t.Errorf("fate %+v, %v", f, err)
		}
		for _, b := range []store.Batch{
			k.numbered(1, 0, 1<<33, add(a, 1), blind(add(keys[3], 2)), add(a, 300)),
			k.numbered(2, 0, 1, add(a, math.MaxInt64), store.Delta{Cell: cell(keys[1]), Op: store.OpGet, Want: true}, add(a, -1)),
		} {
			if r := k.reply(b); !r.Replayed || len(r.Results) != 3 || r.Results[2].After != r.Results[2].Before+b.Deltas[2].N {
				t.Errorf("repeat %+v", r)
			}
		}
	}
	k.clean()
}

// fenced checks that a server of layout 1 fails in every partition.
func fenced(t *testing.T, s *redisproc.Server) {
	t.Helper()
	for _, tag := range []string{"0", "1", "2", "3"} {
		if got, err := s.Command(t.Context(), "hmget", "quipu:{"+tag+"}:meta", "now"); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("partition %s: %q, %v", tag, got, err)
		}
	}
	if got := command(t, s, "hget", "quipu:store", "layout"); got != "2" {
		t.Errorf("layout %s", got)
	}
}

// A store of layout 1 is brought to this one, with all that it has. Whoever is too old
// for it is refused, by partitions that were empty too.
func TestMigration(t *testing.T) {
	s := redisproc.For(t)
	restore(t, s)
	if _, err := redisstore.Open(t.Context(), "redis://"+s.Addr, redisstore.Options{Existing: true}); store.KindOf(err) != store.KindUnsupported ||
		!strings.Contains(err.Error(), "start a server that writes") {
		t.Errorf("one that only reads: %v", err)
	}
	if got := command(t, s, "hget", "quipu:store", "layout"); got != "1" {
		t.Errorf("layout %s", got)
	}
	k := kit{t, open(t, "redis://"+s.Addr, migrated())}
	fenced(t, s)
	holdsLayout1(t, k)
	for _, key := range []string{"b", "c", "d", "e"} {
		k.one(with(add(key, 1), rides(window(7, 0), 1)), store.Applied, 0, 1)
	}
	holdsLayout1(t, kit{t, open(t, "redis://"+s.Addr, migrated())})
	k.one(add("a0", 1), store.Applied, 299, 300)
	k.clean()
}

// A migration that ended after any of its steps is completed by the next who opens the
// store.
func TestMigrationIsResumed(t *testing.T) {
	for done := range 5 {
		s := redisproc.For(t)
		restore(t, s)
		command(t, s, "hset", "quipu:store", "layout", "2")
		for _, tag := range []string{"3", "2", "1", "0"}[:done] {
			if err := redisstore.MigratePartition(t.Context(), "redis://"+s.Addr, "quipu:{"+tag+"}:"); err != nil {
				t.Fatal(err)
			}
		}
		k := kit{t, open(t, "redis://"+s.Addr, migrated())}
		fenced(t, s)
		holdsLayout1(t, k)
	}
}

// A failover to a replica that was behind brings back partitions of layout 1, which old
// servers that still run may have written to. Whoever meets one migrates it again: a
// read, a write, one of several, a sweep.
func TestMigrationIsRepeated(t *testing.T) {
	f := func(meet func(k kit) error) {
		t.Helper()
		s := redisproc.For(t)
		restore(t, s)
		k := kit{t, open(t, "redis://"+s.Addr, migrated())}
		command(t, s, "flushall")
		restore(t, s)
		command(t, s, "hset", "quipu:store", "layout", "2") // it is on another server
		if err := meet(k); err != nil {
			t.Error(err)
		}
		fenced(t, s)
		holdsLayout1(t, k)
	}
	f(func(k kit) error { return k.Read(t.Context(), []store.Cell{cell("a0")}, make([]store.Value, 1)) })
	f(func(k kit) error {
		return k.Read(t.Context(), []store.Cell{cell("a0"), cell("a1")}, make([]store.Value, 2))
	})
	f(func(k kit) error { _, err := k.try(t.Context(), k.batch(add("laid9", 0))); return err })
	f(func(k kit) error { _, err := k.try(t.Context(), k.batch(settle("t"))); return err })
	f(func(k kit) error {
		done := make(chan error, 1)
		b, r := k.batch(add("laid9", 0)), store.Reply{}
		k.Store.(store.Carrier).Carry(t.Context(), []*store.Batch{&b}, []*store.Reply{&r}, func(_ int, err error) { done <- err })
		return <-done
	})
}
