package resp_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/internal/server/resp"
	"github.com/quipudb/quipu/store/memstore"
)

// withKey opens a door that needs the key "secret", and gives strangers a few places
// and some time.
func withKey(t *testing.T, o resp.Options, strangers int, patience time.Duration) *door {
	t.Helper()
	keys, err := server.NewKeys([]string{"secret"})
	if err != nil {
		t.Fatal(err)
	}
	o.Gate = server.NewGate(server.GateOptions{Keys: keys, Logger: slog.New(slog.DiscardHandler)})
	l, _, err := server.Listen{
		Addr: "127.0.0.1:0", ConnectionsMax: 100, Refusal: resp.Refusal, StrangersMax: strangers, LoginTimeout: patience,
	}.Open()
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, l, quipu.New(memstore.New(memstore.Options{}), quipu.Options{}), o)
}

// Whoever shows no key is closed in time, whatever it sends meanwhile. Whoever has
// shown one stays.
func TestLoginDeadline(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		d := withKey(t, o, 50, 200*time.Millisecond)
		known := dial(t, d.addr)
		known.expect("AUTH secret", ok)
		silent, half, guessing := dial(t, d.addr), dial(t, d.addr), dial(t, d.addr)
		half.send("*2\r\n$4\r\nAUTH\r\n$6\r\nsec")
		guessing.expect("PING", "-NOAUTH Authentication required.\r\n")
		silent.ended()
		half.ended()
		guessing.ended()
		known.expect("INCR a", one)
		known.expect("RESET", "+RESET\r\n")
		known.expect("AUTH secret", ok)
		known.expect("INCR a", ":2\r\n")
	})
}

// Silent connections never keep out those who have a key.
func TestStrangersAndOthers(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		d := withKey(t, o, 4, time.Hour)
		for i := range 20 {
			dial(t, d.addr)
			c := dial(t, d.addr)
			c.expect("AUTH secret", ok)
			c.expect("INCR a", fmt.Sprintf(":%d\r\n", i+1))
		}
	})
}

// A stranger may send little, and ask little, before it shows a key.
func TestStrangerLimits(t *testing.T) {
	transports(t, func(t *testing.T, o resp.Options) {
		d := withKey(t, o, 50, time.Hour)
		// As much as fits into one command.
		c := dial(t, d.addr)
		go func() {
			_, _ = io.WriteString(c, "*9\r\n"+strings.Repeat("$16000\r\n"+strings.Repeat("x", 16_000)+"\r\n", 8))
		}()
		_ = c.SetDeadline(time.Now().Add(patience))
		if got, err := resp.ReadReply(c.r); err == nil && got != "-ERR Protocol error: too big query\r\n" || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a long command: %q, %v", got, err)
		}
		// A few commands.
		c = dial(t, d.addr)
		for range 32 {
			c.expect("AUTH guess", "-WRONGPASS invalid username-password pair or user is disabled.\r\n")
		}
		c.expect("AUTH secret", "-NOAUTH Authentication required: too many commands without it.\r\n")
		c.ended()
		// Those that come after the right key do not count.
		c = dial(t, d.addr)
		for range 3 {
			for range 20 {
				c.expect("PING", "-NOAUTH Authentication required.\r\n")
			}
			c.expect("AUTH secret", ok)
			for range 50 {
				c.expect("PING", pong)
			}
			c.expect("RESET", "+RESET\r\n")
		}
		c.send(array("AUTH", "secret") + array("ECHO", strings.Repeat("x", 100_000)))
		if got := c.reply() + c.reply(); got != ok+bulk(strings.Repeat("x", 100_000)) {
			t.Errorf("a key and a long command: %.100q", got)
		}
	})
}
