package resp

import (
	"bufio"
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/store/memstore"
)

// Every command gives one reply, whatever its arguments are, and a transaction
// of it too.
func FuzzCommands(f *testing.F) {
	for i := range 80 {
		for _, args := range []string{"", "a", "a\x001", "a\x001\x00EX\x0010\x00NX", "a\x001\x00b\x002", "0\x00MATCH\x00*\x00COUNT\x005", "ID\x00t", "a\x00-9223372036854775808"} {
			f.Add(uint8(i), uint8(0), []byte(args), i%2 == 0)
		}
	}
	some := quipu.New(memstore.New(memstore.Options{}), quipu.Options{})
	names := New(some, Options{Logger: slog.New(slog.DiscardHandler)}).names
	if err := some.Close(); err != nil {
		f.Fatal(err)
	}
	for _, words := range []string{
		"Q.ADD\x00a\x001\x00AT\x001790000000000\x00DIM\x00country\x00DE\x00WHO\x00u\x00ID\x00t", "Q.ADD\x00a\x00AT\x00-1", "Q.ADD\x00a\x001\x00DIM\x00os\x00x",
		"Q.RANGE\x00a\x00-24h\x00now\x00STEP\x001h", "Q.RANGE\x00a\x000\x009223372036854775807\x00STEP\x001s", "Q.RANGE\x00a\x002026-10-01\x00+1d\x00STEP\x007d",
		"Q.BY\x00a\x00country\x00FROM\x00-7d\x00TO\x00now\x00TOP\x003", "Q.BY\x00a\x00os", "Q.UNIQUE\x00a\x00FROM\x00-7d\x00BY\x00country\x00TOP\x003", "Q.BY\x00a\x00country\x00TOP\x000",
	} {
		name, args, _ := strings.Cut(words, "\x00")
		i := slices.IndexFunc(names, func(s string) bool { return strings.EqualFold(s, name) })
		if i < 0 {
			f.Fatalf("there is no %s", name)
		}
		f.Add(uint8(i), uint8(0), []byte(args), true)
	}
	hour, err := definition.ParseWidth("1h")
	if err != nil {
		f.Fatal(err)
	}
	views := []definition.Definition{{
		Pattern: "a*", Windows: []definition.Window{{Every: hour, Keep: definition.Keep(24 * time.Hour)}},
		Dimensions: []definition.Dimension{{By: []string{"country"}}}, Ledger: definition.Ledger{Record: definition.All},
	}}
	f.Fuzz(func(t *testing.T, command, sub uint8, args []byte, resp3 bool) {
		db := quipu.New(memstore.New(memstore.Options{}), quipu.Options{})
		defer func() { _ = db.Close() }()
		if resp3 { // so that some counters have views
			if _, err := db.Define(t.Context(), views, quipu.DefineOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		d := New(db, Options{Logger: slog.New(slog.DiscardHandler)})
		c := d.commands[d.names[int(command)%len(d.names)]]
		words := [][]byte{[]byte(c.name)}
		if c.subs != nil && sub > 0 {
			names := sortedNames(c.subs)
			words = append(words, []byte(names[int(sub)%len(names)]))
		}
		if len(args) > 0 {
			words = append(words, bytes.Split(args, []byte{0})...)
		}
		if len(words) > 1 && is(words[0], "CLIENT") && is(words[1], "REPLY") {
			return // it is there to give none
		}
		s := d.open("client", "door", func() {}, func() {})
		s.resp3 = resp3
		want := 1
		execute(t, d, s, words)
		if !s.closing {
			execute(t, d, s, [][]byte{[]byte("DISCARD")})
			execute(t, d, s, [][]byte{[]byte("MULTI")})
			execute(t, d, s, words)
			execute(t, d, s, [][]byte{[]byte("EXEC")})
			want += 4
		}
		if s.closing && want > 1 { // QUIT in the transaction
			want = 4
		}
		r := bufio.NewReader(bytes.NewReader(s.out))
		for i := range want {
			if reply, err := ReadReply(r); err != nil {
				t.Fatalf("%q: reply %d of %q is %q: %v", words, i+1, s.out, reply, err)
			}
		}
		for strings.Contains(c.name, "SUBSCRIBE") && r.Buffered() > 0 { // They reply to each channel.
			if reply, err := ReadReply(r); err != nil {
				t.Fatalf("%q: a further reply of %q is %q: %v", words, s.out, reply, err)
			}
		}
		if r.Buffered() > 0 {
			t.Errorf("%q: more than %d replies: %q", words, want, s.out)
		}
		s.end()
	})
}

// execute executes one command of a session to its end.
func execute(t *testing.T, d *Door, s *session, args [][]byte) {
	t.Helper()
	var e encoder
	e.array(len(args))
	for _, a := range args {
		e.bulk(a)
	}
	var w *worker
	w = d.newWorker(func(c *cycle) {
		c.apply(context.Background(), nil)
		c.finish()
		w.done(c)
	})
	for range 3 {
		used := w.gather(s, e.out)
		w.flushAll()
		if job := s.job; job != nil {
			s.job = nil
			job(context.Background())
		}
		if e.out = e.out[used:]; len(e.out) == 0 {
			return
		}
	}
	if !s.closing {
		t.Fatalf("%q is not executed", args)
	}
}
