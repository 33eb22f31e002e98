package node_test

import (
	"bytes"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quipudb/quipu/internal/node"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

// The log has a line when the store can't be reached and one when it can again,
// and not many of them if that changes all the time.
func TestOutageIsLogged(t *testing.T) {
	var log bytes.Buffer
	plain := &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "since" {
			return slog.Attr{}
		}
		if a.Key == "away" {
			return slog.Duration(a.Key, a.Value.Duration().Truncate(time.Minute))
		}
		return a
	}}
	run(t, node.Options{Logger: slog.New(slog.NewTextHandler(&log, plain))}, func(k *kit) {
		logged := func(want string) {
			t.Helper()
			synctest.Wait()
			if got := log.String(); got != want {
				t.Errorf("logged\n%swant\n%s", got, want)
			}
			log.Reset()
		}
		read := func() { _ = k.node.Read(k.ctx, []store.Cell{cell("a")}, make([]store.Value, 1)) }
		gone := func(d time.Duration) {
			k.away(store.Errorf(store.KindUnavailable, "gone"))
			read()
			pass(d)
			k.back()
			pass(2 * time.Second)
		}
		const lost = "level=WARN msg=\"the store is unreachable\" what=\"the store\" error=\"quipu: gone\"\n"
		const back = "level=INFO msg=\"the store is back\" away="
		read()
		k.away(store.ErrUnsupported)
		read()
		k.back()
		pass(time.Minute)
		logged("")
		gone(900 * time.Millisecond) // no longer than patience
		logged("")
		gone(time.Hour)
		logged(lost + back + "1h0m0s\n")

		// While it takes no writes it is not back, whatever else it answers.
		pass(time.Minute)
		k.away(store.Errorf(store.KindUnavailable, "gone"))
		read()
		pass(2 * time.Second)
		logged(lost)
		k.hooks.On(storetest.OnRead)
		pass(time.Minute)
		if v := k.value("a"); v.Exists {
			t.Errorf("read %+v", v)
		}
		k.do(add("a", 1)).fails(store.KindUnavailable)
		logged("")
		k.back()
		pass(time.Second)
		synctest.Wait()
		log.Reset()
		k.do(add("a", 1)).results()

		// It comes and goes.
		pass(time.Minute)
		for range 3 {
			gone(1500 * time.Millisecond)
		}
		synctest.Wait()
		if n := bytes.Count(log.Bytes(), []byte("unreachable")); n != 1 {
			t.Errorf("%d times logged: %s", n, &log)
		}
	})
}

// A partition that hangs is found out by a probe: from then on nobody waits for
// it, and others are not concerned.
func TestHang(t *testing.T) {
	runOn(t, memstore.Options{Partitions: 2}, node.Options{}, func(k *kit) {
		here, there := "", ""
		for i := 0; here == "" || there == ""; i++ {
			if key := strconv.Itoa(i); k.batch(add(key, 1)).Partition == 0 {
				here = key
			} else {
				there = key
			}
		}
		k.do(add(here, 1)).results()
		k.do(add(there, 1)).results()
		release := k.hangPart(1)
		began := time.Now()
		frozen, queued := k.do(add(there, 1)), k.do(add(there, 1))
		pass(900 * time.Millisecond)
		if queued.over() {
			t.Errorf("refused after %v: %v", time.Since(began), queued.err)
		}
		queued.fails(store.KindUnavailable)
		if took := time.Since(began); took > 1100*time.Millisecond {
			t.Errorf("a caller waited %v", took)
		}
		refused := func(what string, err error) {
			t.Helper()
			if store.KindOf(err) != store.KindUnavailable || !strings.Contains(err.Error(), "partition 1 ") {
				t.Errorf("%s: %v", what, err)
			}
		}
		at := time.Now()
		late := k.do(add(there, 1))
		<-late.done
		refused("add", late.err)
		values := make([]store.Value, 2)
		refused("read", k.node.Read(k.ctx, []store.Cell{cell(there)}, values[:1]))
		refused("read of both", k.node.Read(k.ctx, []store.Cell{cell(here), cell(there)}, values))
		refused("probe", k.node.Probe(k.ctx, 1))
		if _, err := k.node.Scan(k.ctx, store.Range{Namespace: "n"}, 10); err == nil {
			t.Error("a scan went without a partition")
		}
		k.do(add(here, 1)).results()
		k.holds(here, 2)
		if err := k.node.Probe(k.ctx, 0); err != nil {
			t.Errorf("probe of the other: %v", err)
		}
		both := k.begin(k.ctx, k.batch(add(here, 1)), k.batch(add(there, 1)))
		both.each(nil, store.ErrUnavailable)
		if took := time.Since(at); took != 0 {
			t.Errorf("calls waited %v for a partition that hangs", took)
		}
		release()
		frozen.results()
		pass(time.Second)
		k.do(add(there, 1)).results()
		k.holds(there, 3)
	})
}

// A write that takes long while its partition answers is waited for.
func TestSlowIsNotHung(t *testing.T) {
	run(t, node.Options{}, func(k *kit) {
		k.do(add("a", 1)).results()
		k.onFlights(storetest.Before(func() { pass(4 * time.Second) }))
		first, second := k.do(add("a", 1)), k.do(add("a", 1))
		pass(3 * time.Second)
		third := k.do(add("a", 1))
		first.results()
		second.results()
		third.results()
		k.holds("a", 4)
	})
}

// Close does not wait for a partition that is down.
func TestCloseDown(t *testing.T) {
	run(t, node.Options{CloseTimeout: time.Minute}, func(k *kit) {
		k.do(add("a", 1)).results()
		release := k.hang()
		frozen := k.do(add("a", 1))
		pass(2 * time.Second)
		began := time.Now()
		k.shut(k.node)
		if took := time.Since(began); took > 0 {
			t.Errorf("Close took %v", took)
		}
		frozen.fails(store.KindUnknown)
		release()
	})
}
