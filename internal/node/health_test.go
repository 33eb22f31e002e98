package node_test

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/node"
	"github.com/quipudb/quipu/store"
)

// The log has a line when the store can't be reached and one when it can again,
// and not many of them if that changes all the time.
func TestOutageIsLogged(t *testing.T) {
	var log bytes.Buffer
	plain := &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "since" {
			return slog.Attr{}
		}
		return a
	}}
	run(t, node.Options{Logger: slog.New(slog.NewTextHandler(&log, plain))}, func(k *kit) {
		read := func(err error) {
			k.remote.set(func() { k.remote.down = err })
			_ = k.node.Read(k.ctx, []store.Cell{cell("a")}, make([]store.Value, 1))
		}
		logged := func(want string) {
			t.Helper()
			if got := log.String(); got != want {
				t.Errorf("logged\n%swant\n%s", got, want)
			}
			log.Reset()
		}
		away := store.Errorf(store.KindUnavailable, "gone")
		const lost = "level=WARN msg=\"the store is unreachable\" error=\"quipu: gone\"\n"
		read(nil)
		read(store.ErrUnsupported)
		logged("")
		read(away)
		logged(lost)
		<-time.After(time.Hour)
		read(away)
		read(store.ErrUnsupported)
		logged("")
		read(nil)
		read(nil)
		logged("level=INFO msg=\"the store is back\" away=1h0m0s\n")

		// A write that is not answered counts as well.
		k.failures(away)
		k.do(add("a", 1)).results()
		if got := log.String(); got == "" {
			t.Error("a write did not reach the store, and the log has nothing")
		}
		log.Reset()

		// It comes and goes.
		<-time.After(time.Minute)
		for range 100 {
			read(away)
			read(nil)
			<-time.After(100 * time.Millisecond)
		}
		logged(lost + "level=INFO msg=\"the store is back\" away=0s\n")
		// It goes for good, so soon that it is said later.
		read(away)
		logged("")
		<-time.After(10 * time.Second)
		read(away)
		logged(lost)
		read(nil)
		logged("level=INFO msg=\"the store is back\" away=10s\n")
	})
}
