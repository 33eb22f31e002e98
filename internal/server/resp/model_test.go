package resp_test

import (
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/server/resp"
)

// Clients with keys of their own send random pipelines at the same time, and
// each sees exactly what it did, in its order: on a store that has most keys on
// disk, so that what can be answered at once and what has to wait are mixed.
func TestColdAndHot(t *testing.T) {
	first := *seed
	if first == 0 {
		first = rand.Uint64()
	}
	transports(t, func(t *testing.T, o resp.Options) {
		db, err := quipu.Open(t.TempDir(), quipu.Options{Memory: 4 << 20, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		d := openOver(t, db, o)
		var wg sync.WaitGroup
		for i := range uint64(8) {
			c := dial(t, d.addr)
			wg.Go(func() {
				m := &model{
					Rand: rand.New(rand.NewPCG(first, i)), t: t, c: c, values: map[string]int64{},
					name: fmt.Sprintf("client:%d:", i), seed: first,
				}
				for range 60 {
					if !m.pipeline() {
						return
					}
				}
			})
		}
		wg.Wait()
	})
}

// A model is what one client must see.
type model struct {
	*rand.Rand
	t      *testing.T
	c      *client
	name   string
	seed   uint64
	values map[string]int64
}

// pipeline sends some commands at once and checks the replies.
func (m *model) pipeline() bool {
	var raw, want strings.Builder
	kinds := 12
	if m.IntN(2) == 0 {
		kinds = 5 // additions alone
	}
	for range 1 + m.IntN(200) {
		// A few keys are hot, most are not seen again soon.
		key := fmt.Sprintf("%s%d", m.name, m.IntN(3))
		if m.IntN(2) == 0 {
			key = fmt.Sprintf("%s%d", m.name, m.IntN(20_000))
		}
		m.one(key, kinds, &raw, &want)
	}
	_ = m.c.SetDeadline(time.Now().Add(patience))
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.WriteString(m.c, raw.String())
	}()
	got := make([]byte, want.Len())
	n, err := io.ReadFull(m.c.r, got)
	<-sent
	if string(got[:n]) == want.String() {
		return true
	}
	a, b := strings.SplitAfter(string(got[:n]), "\r\n"), strings.SplitAfter(want.String(), "\r\n")
	at := 0
	for at < len(a) && a[at] == b[at] {
		at++
	}
	m.t.Errorf("%sreply line %d of a pipeline: %q, want %q (%v)\nreplay: go test ./internal/server/resp -run TestColdAndHot -args -seed=%d",
		m.name, at, a[min(at, len(a)-1)], b[at], err, m.seed)
	return false
}

func (m *model) one(key string, kinds int, raw, want *strings.Builder) {
	value, exists := m.values[key]
	switch m.IntN(kinds) {
	case 0, 1, 2, 3:
		raw.WriteString(array("INCR", key))
		if value == math.MaxInt64 {
			want.WriteString("-ERR increment or decrement would overflow\r\n")
			return
		}
		m.values[key] = value + 1
		fmt.Fprintf(want, ":%d\r\n", value+1)
	case 4:
		by := m.Int64N(100) - 50
		if m.IntN(4) == 0 { // as much as there is, or nearly
			by = m.Int64() - m.Int64()
		}
		raw.WriteString(array("INCRBY", key, fmt.Sprint(by)))
		if (value+by > value) != (by > 0) {
			want.WriteString("-ERR increment or decrement would overflow\r\n")
			return
		}
		m.values[key] = value + by
		fmt.Fprintf(want, ":%d\r\n", value+by)
	case 5, 6, 7:
		raw.WriteString(array("GET", key))
		if exists {
			want.WriteString(bulk(fmt.Sprint(value)))
		} else {
			want.WriteString(null)
		}
	case 8:
		n := m.Int64N(1000)
		if m.IntN(4) == 0 {
			n = math.MaxInt64 - n%4
		}
		m.values[key] = n
		raw.WriteString(array("SET", key, fmt.Sprint(n)))
		want.WriteString(ok)
	case 9:
		delete(m.values, key)
		raw.WriteString(array("GETDEL", key))
		if exists {
			want.WriteString(bulk(fmt.Sprint(value)))
		} else {
			want.WriteString(null)
		}
	case 10:
		if value > math.MaxInt64-2 {
			return
		}
		m.values[key] = value + 2
		raw.WriteString(array("MULTI") + array("INCR", key) + array("INCR", key) + array("EXEC"))
		fmt.Fprintf(want, "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:%d\r\n:%d\r\n", value+1, value+2)
	case 11:
		raw.WriteString(array("PING") + array("RENAME", key, key))
		want.WriteString("+PONG\r\n")
		if exists {
			want.WriteString(ok)
		} else {
			want.WriteString("-ERR no such key\r\n")
		}
	}
}

// What is durable at once does not overtake what is not, on one connection.
func TestOrderOfDurabilities(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		db, err := quipu.Open(t.TempDir(), quipu.Options{
			Policies: []quipu.Policy{{Pattern: "m*", Durability: quipu.Memory}}, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		c := dial(t, openOver(t, db, o).addr)
		for i := range 200 {
			c.send(array("INCR", "s"))
			c.send(array("INCRBY", "m", "-1"))
			if got, want := c.reply()+c.reply(), fmt.Sprintf(":%d\r\n:-%d\r\n", i+1, i+1); got != want {
				t.Fatalf("replies %q, want %q", got, want)
			}
		}
	})
}
