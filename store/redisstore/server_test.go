package redisstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/quipudb/quipu/internal/load/redisproc"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/redisstore"
)

func command(t *testing.T, s *redisproc.Server, args ...string) string {
	t.Helper()
	out, err := s.Command(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// written returns how many changes a server has seen.
func written(t *testing.T, s *redisproc.Server) string {
	t.Helper()
	_, n, ok := strings.Cut(command(t, s, "info", "persistence"), "rdb_changes_since_last_save:")
	if !ok {
		t.Fatal("the server does not tell what was changed")
	}
	return strings.Fields(n)[0]
}

func TestScriptsAreForgotten(t *testing.T) {
	s := redisproc.For(t)
	k := kit{t, open(t, "redis://"+s.Addr, redisstore.Options{Partitions: 4})}
	for i := range int64(3) {
		command(t, s, "script", "flush")
		k.one(add("a", 1), store.Applied, 2*i, 2*i+1)
		d := add("a", 1)
		d.Guard.Exists = store.ExistsMust
		command(t, s, "script", "flush")
		k.one(d, store.Applied, 2*i+1, 2*i+2)
		command(t, s, "script", "flush")
		k.holds("a", 2*i+2)
		command(t, s, "script", "flush")
		es, err := k.Scan(t.Context(), store.Range{Namespace: "n"}, 5)
		if err != nil || len(es) != 1 {
			t.Fatalf("scan lists %+v, %v", es, err)
		}
	}
	k.clean()
}

// A server that syncs before it answers loses nothing when it is killed, and what
// was on its way is exact when it is sent again.
func TestKilledServerKeepsWhatItSynced(t *testing.T) {
	s := redisproc.For(t, "--appendonly", "yes", "--appendfsync", "always")
	k := kit{t, open(t, "redis://"+s.Addr, redisstore.Options{Partitions: 4})}
	if d := k.Traits().Durability; d != store.Synced {
		t.Fatalf("the store offers %v", d)
	}
	l := newLoad(k, 3)
	for range 3 {
		l.until(20)
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.until(20)
	}
	l.stop()
	l.exact()
	if k.meter("quipu_redis_resends_total") == 0 {
		t.Error("the server was killed, and nothing was sent again")
	}
}

// What a server that is gone was asked is unavailable if it was not sent, and
// unknown if it was. That nobody is there is said at once, and not tried again.
func TestServerGone(t *testing.T) {
	s := redisproc.For(t)
	k := kit{t, open(t, "redis://"+s.Addr, redisstore.Options{Partitions: 4})}
	k.one(add("a", 1), store.Applied, 0, 1)
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	// The client has a few connections, and takes any. Some calls may find one that
	// is broken before it has noticed.
	for gone := 0; gone < 50; gone++ {
		if _, err := k.try(t.Context(), k.batch(add("a", 1))); errors.Is(err, store.ErrUnknown) {
			gone = 0
		} else if !errors.Is(err, store.ErrUnavailable) {
			t.Fatalf("Apply: %v", err)
		}
	}
	decided := add("a", 1)
	decided.Guard.Exists = store.ExistsMust
	resends := k.meter("quipu_redis_resends_total")
	for _, b := range []store.Batch{k.batch(add("a", 1)), k.batch(once(add("a", 1), "t")), k.numbered(1, 0, 1, add("a", 1)), k.batch(decided)} {
		k.refused(b, store.KindUnavailable)
	}
	if err := k.Read(t.Context(), []store.Cell{cell("a")}, make([]store.Value, 1)); !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("Read: %v", err)
	}
	if n := k.meter("quipu_redis_resends_total") - resends; n != 0 {
		t.Errorf("%v batches were sent again, and nobody was there", n)
	}
	if _, err := k.try(t.Context(), store.Batch{Partition: -1}); !errors.Is(err, store.ErrInvalid) {
		t.Fatalf("an invalid batch: %v", err)
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	// It kept nothing: the unnumbered can't be told from the new.
	k.one(add("a", 1), store.Applied, 0, 1)
}

// A server that takes no writes is unavailable at once, and keys that are not what
// they should be are corrupt. Nothing is half done.
func TestServerRefuses(t *testing.T) {
	s := redisproc.For(t)
	k := kit{t, open(t, "redis://"+s.Addr, redisstore.Options{Partitions: 1})}
	decided := add("a", 1)
	decided.Guard.Exists = store.ExistsMust
	batches := []store.Batch{k.batch(add("a", 1)), k.batch(once(add("a", 1), "t"), add("b", 1)), k.batch(decided), k.numbered(1, 0, 1, add("a", 1))}
	k.one(add("a", 1), store.Applied, 0, 1)
	command(t, s, "config", "set", "maxmemory", "1")
	for _, b := range batches {
		k.refused(b, store.KindUnavailable)
	}
	command(t, s, "config", "set", "maxmemory", "0")
	k.holds("a", 1)
	k.clean()
	command(t, s, "rename", "quipu:{0}:v:n", "kept")
	command(t, s, "set", "quipu:{0}:v:n", "x")
	for _, b := range batches {
		k.refused(b, store.KindCorrupt)
	}
	command(t, s, "rename", "kept", "quipu:{0}:v:n")
	k.holds("a", 1)
	k.clean()
}

// What changes nothing costs no write and no version, and is still refused by a
// server that takes no writes.
func TestNothingToWrite(t *testing.T) {
	s := redisproc.For(t)
	k := kit{t, open(t, "redis://"+s.Addr, redisstore.Options{Partitions: 1})}
	gone := store.Delta{Cell: cell("gone"), Op: store.OpDelete}
	unless := gone
	unless.Guard.Exists = store.ExistsNot
	probe := k.batch(unless)
	probe.If = []store.Condition{{Cell: cell("gone")}}
	batches := []store.Batch{k.batch(gone), probe, k.batch(store.Delta{Cell: cell("gone"), Op: store.OpGet, Want: true})}
	all := func() {
		t.Helper()
		for _, b := range batches {
			if r := k.reply(b); r.Results[0] != (store.Result{Outcome: store.Applied}) {
				t.Fatalf("%+v: %+v", b, r)
			}
		}
	}
	// There is no namespace yet, so nothing is tidied in the background either.
	all() // the partition has a time now
	before := written(t, s)
	all()
	if after := written(t, s); after != before {
		t.Errorf("%s changes became %s", before, after)
	}
	version := k.one(add("a", 1), store.Applied, 0, 1).Version
	all()
	if next := k.one(add("a", 1), store.Applied, 1, 2).Version; next != version+1 {
		t.Errorf("version %d follows %d", next, version)
	}
	for _, how := range [][2]string{
		{"config set maxmemory 1", "config set maxmemory 0"},
		{"config set min-replicas-to-write 1", "config set min-replicas-to-write 0"},
		{"replicaof 127.0.0.1 1", "replicaof no one"},
	} {
		command(t, s, strings.Fields(how[0])...)
		k.refused(probe, store.KindUnavailable)
		command(t, s, strings.Fields(how[1])...)
		all()
	}
	k.clean()
}

// Marks that go back are data that is missing: said, metered, and not built on.
func TestLost(t *testing.T) {
	s := redisproc.For(t)
	k := kit{t, open(t, "redis://"+s.Addr, redisstore.Options{Partitions: 1})}
	w, other := k.enlist(), k.enlist()
	third := k.numbered(w, 2, 3, add("a", 1))
	k.reply(k.numbered(w, 0, 1, add("a", 1)))
	k.reply(k.numbered(other, 0, 1, add("b", 1)))
	for key := range strings.FieldsSeq(command(t, s, "keys", "quipu:{*")) {
		command(t, s, "copy", key, "older:"+key[len("quipu:"):])
	}
	k.reply(k.numbered(w, 1, 2, add("a", 1)))
	k.reply(third)
	for key := range strings.FieldsSeq(command(t, s, "keys", "older:*")) {
		command(t, s, "copy", key, "quipu:"+key[len("older:"):], "replace")
	}
	lost := 0.0
	f := func(b store.Batch) {
		t.Helper()
		k.refused(b, store.KindLost)
		lost++
		if n := k.meter("quipu_redis_lost_total"); n != lost {
			t.Fatalf("%v were metered as lost, want %v", n, lost)
		}
		k.holds("a", 1)
	}
	f(k.numbered(w, 3, 4, add("a", 1)))
	f(third)
	f(k.numbered(w, 1, 2, add("a", 1))) // follows the mark there is
	bounded := add("a", 1)
	bounded.Guard.Bound = &store.Bound{High: 100}
	f(k.numbered(w, 1, 2, bounded))
	f(k.numbered(w, 0, 1, add("a", 1)))
	k.reply(k.numbered(other, 1, 2, add("b", 1))) // lost nothing
	command(t, s, "flushall")
	k.refused(k.numbered(w, 0, 1, add("a", 1)), store.KindLost)
	k.refused(k.numbered(other, 0, 1, add("a", 1)), store.KindLost)
	k.reply(k.numbered(other+1, 0, 1, add("a", 1)))
	k.holds("a", 1)
}

// Who reads after a loss is told of it once, by whatever reads, and who has not
// seen what is missing is not.
func TestReadersFindLoss(t *testing.T) {
	s := redisproc.For(t)
	o := redisstore.Options{Partitions: 2}
	k, other := kit{t, open(t, "redis://"+s.Addr, o)}, kit{t, open(t, "redis://"+s.Addr, o)}
	f := func(see func(k kit), read func(k kit) error) {
		t.Helper()
		other.reply(k.batch(add("a", 5)))
		see(k)
		command(t, s, "flushall")
		lost := k.meter("quipu_redis_lost_total")
		if err := read(k); !errors.Is(err, store.ErrLost) {
			t.Fatalf("after a loss: %v", err)
		}
		if n := k.meter("quipu_redis_lost_total"); n != lost+1 {
			t.Fatalf("%v losses were metered, want %v", n, lost+1)
		}
		if err := read(k); err != nil {
			t.Fatalf("a loss is told again: %v", err)
		}
	}
	one := func(k kit) error { return k.Read(t.Context(), []store.Cell{cell("a")}, make([]store.Value, 1)) }
	all := func(k kit) error {
		_, err := k.Scan(t.Context(), store.Range{Namespace: "n"}, 9)
		return err
	}
	sees := func(read func(k kit) error) func(k kit) {
		return func(k kit) {
			if err := read(k); err != nil {
				t.Fatal(err)
			}
		}
	}
	writes := func(k kit) { k.reply(k.batch(add("a", 1))) }
	f(writes, one)
	f(writes, all)
	f(writes, func(k kit) error {
		_, err := k.Lookup(t.Context(), cell("a"), "t")
		return err
	})
	f(writes, func(k kit) error {
		_, err := k.Store.(store.Sizer).Size(t.Context(), "n")
		return err
	})
	f(writes, func(k kit) error {
		_, err := k.Store.(store.Namespacer).Namespaces(t.Context(), "", 9)
		return err
	})
	f(sees(one), one)
	f(sees(all), one)
	sees(one)(kit{t, open(t, "redis://"+s.Addr, o)})
}

func TestEvictionIsRefused(t *testing.T) {
	f := func(refused bool, accept bool, settings ...string) {
		t.Helper()
		s := redisproc.For(t, settings...)
		st, err := redisstore.Open(t.Context(), "redis://"+s.Addr, redisstore.Options{AcceptEviction: accept})
		if refused {
			if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "allkeys-lru") || !strings.Contains(err.Error(), "noeviction") {
				t.Fatalf("%q: %v", settings, err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
	}
	f(false, false, "--maxmemory-policy", "noeviction")
	f(true, false, "--maxmemory-policy", "allkeys-lru")
	f(false, true, "--maxmemory-policy", "allkeys-lru")
	f(true, false, "--maxmemory-policy", "allkeys-lru", "--rename-command", "CONFIG", "") // INFO tells it too
	f(false, false, "--rename-command", "CONFIG", "")
}

// What a reply says is what the server's settings mean, also when they change.
func TestDurabilityIsSaid(t *testing.T) {
	f := func(want store.Durability, settings ...string) (*redisproc.Server, kit) {
		t.Helper()
		s := redisproc.For(t, settings...)
		k := kit{t, open(t, "redis://"+s.Addr, redisstore.Options{Partitions: 2})}
		if d := k.Traits().Durability; d != want {
			t.Fatalf("%q: offers %v, want %v", settings, d, want)
		}
		decided := add("a", 1)
		decided.Guard.Exists = store.ExistsMust
		for _, d := range []store.Delta{add("a", 1), decided, once(add("a", 1), "t"), once(add("a", 1), "t")} {
			if r := k.reply(k.batch(d)); r.Durability != want {
				t.Fatalf("%q: acknowledged as %v, want %v", settings, r.Durability, want)
			}
		}
		return s, k
	}
	f(store.Memory)
	f(store.Memory, "--save", "60 1")
	f(store.Memory, "--rename-command", "CONFIG", "")
	f(store.Memory, "--rename-command", "CONFIG", "", "--rename-command", "INFO", "")
	f(store.Written, "--appendonly", "yes", "--appendfsync", "everysec")
	f(store.Written, "--appendonly", "yes", "--appendfsync", "always", "--rename-command", "CONFIG", "")
	s, k := f(store.Synced, "--appendonly", "yes", "--appendfsync", "always")
	w, seq := k.enlist(), uint64(0)
	reconnected := func(want store.Durability, name, value string) {
		t.Helper()
		command(t, s, "config", "set", name, value)
		command(t, s, "client", "kill", "type", "normal") // as a restart does
		for range 10 {
			seq++
			if d := k.reply(k.numbered(w, seq-1, seq, add("a", 1))).Durability; d != want {
				t.Fatalf("after %s %s: acknowledged as %v", name, value, d)
			}
		}
	}
	reconnected(store.Written, "appendfsync", "everysec")
	reconnected(store.Synced, "appendfsync", "always")
	reconnected(store.Written, "appendfsync", "no")
	reconnected(store.Memory, "appendonly", "no")
}

// A serverLog is what a store has logged so far. It is safe for concurrent use.
type serverLog struct {
	mu    sync.Mutex // guards lines
	lines bytes.Buffer
}

func (l *serverLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.Write(p)
}

func (l *serverLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.String()
}

// A server that keeps no log is warned about, at the start and when it becomes so.
func TestWeakSettingsAreLogged(t *testing.T) {
	f := func(want string, s *redisproc.Server, change func(kit)) {
		t.Helper()
		var log serverLog
		k := kit{t, open(t, "redis://"+s.Addr, redisstore.Options{Partitions: 2, Logger: slog.New(slog.NewTextHandler(&log, nil))})}
		change(k)
		// Settings are asked for beside the writes after a restart, so a line may come after their replies.
		for end := time.Now().Add(5 * time.Second); !strings.Contains(log.String(), want) && time.Now().Before(end); {
			command(t, s, "ping")
		}
		if got := log.String(); strings.Count(got, "level=WARN") > 1 || want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("log %q, want %q", got, want)
		}
	}
	const none = "level=WARN msg=\"Redis keeps no log"
	nothing := func(kit) {}
	f(none, redisproc.For(t), nothing)
	s := redisproc.For(t, "--appendonly", "yes", "--appendfsync", "always")
	f("", s, nothing)
	set := func(name, value string) func(kit) {
		return func(k kit) {
			w := k.enlist()
			command(t, s, "config", "set", name, value)
			command(t, s, "client", "kill", "type", "normal") // as a restart does
			k.reply(k.numbered(w, 0, 1, add("a", 1)))
			k.reply(k.numbered(w, 1, 2, add("a", 1)))
		}
	}
	f("was=synced is=written", s, set("appendfsync", "everysec"))
	f(none, s, set("appendonly", "no"))
}

// Without the replicas that were asked for nothing is acknowledged, and what may
// be acknowledged with less does not wait.
func TestReplicasMissing(t *testing.T) {
	s := redisproc.For(t)
	k := kit{t, open(t, "redis://"+s.Addr, redisstore.Options{Partitions: 2, Replicas: 1})}
	if d := k.Traits().Durability; d != store.Synced {
		t.Fatalf("the store offers %v", d)
	}
	w := store.Writer(1)
	b := k.numbered(w, 0, 1, add("a", 1))
	b.Durability = store.Written
	if r := k.reply(b); r.Durability != store.Memory || r.Results[0].After != 1 {
		t.Fatalf("reply %+v", r)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := k.try(ctx, k.numbered(w, 1, 2, add("a", 1))); !errors.Is(err, store.ErrUnknown) {
		t.Fatalf("Apply: %v", err)
	}
	if k.meter("quipu_redis_waits_unmet_total") == 0 {
		t.Fatal("no missing replica was metered")
	}
	// A read would tell of it: it waits too.
	ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := k.Read(ctx, []store.Cell{cell("a")}, make([]store.Value, 1)); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Read: %v", err)
	}
	b = k.numbered(w, 2, 3, add("a", 1))
	b.Durability = store.Written
	if r := k.reply(b); r.Durability != store.Memory || r.Results[0].After != 3 {
		t.Fatalf("reply %+v", r)
	}
}

// What a replica does not have yet is told to nobody, however it is asked for.
func TestReplicaBehind(t *testing.T) {
	s := redisproc.For(t, "--repl-diskless-sync-delay", "0")
	replica := redisproc.For(t, "--replicaof", "127.0.0.1 "+s.Port)
	command(t, s, "wait", "1", "0") // until it is there
	o := redisstore.Options{Partitions: 1, Replicas: 1}
	k, other := kit{t, open(t, "redis://"+s.Addr, o)}, kit{t, open(t, "redis://"+s.Addr, o)}
	k.one(add("a", 1), store.Applied, 0, 1)
	thaw := func() {
		if err := syscall.Kill(replica.PID(), syscall.SIGCONT); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(thaw) // else it could not be stopped
	if err := syscall.Kill(replica.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	b := other.batch(add("a", 1))
	b.Durability = store.Written
	other.reply(b)
	asks := map[string]func(ctx context.Context) error{
		"read": func(ctx context.Context) error {
			return k.Read(ctx, []store.Cell{cell("a")}, make([]store.Value, 1))
		},
		"get": func(ctx context.Context) error {
			_, err := k.try(ctx, k.batch(store.Delta{Cell: cell("a"), Op: store.OpGet, Want: true}))
			return err
		},
		"delete": func(ctx context.Context) error {
			_, err := k.try(ctx, k.batch(store.Delta{Cell: cell("gone"), Op: store.OpDelete}))
			return err
		},
	}
	for name, ask := range asks {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		if err := ask(ctx); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
	thaw()
	for name, ask := range asks {
		before := written(t, s)
		if err := ask(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		// From version 7.2 on WAIT is about what was written on the connection alone.
		if written(t, s) == before {
			t.Errorf("%s: nothing was written", name)
		}
	}
}

// The logs of servers that sync them are waited for, if the servers know how.
func TestWaitsForLogs(t *testing.T) {
	s := redisproc.For(t, "--appendonly", "yes", "--appendfsync", "always")
	k := kit{t, open(t, "redis://"+s.Addr, redisstore.Options{Partitions: 1, Replicas: 1})}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := k.try(ctx, k.batch(add("a", 1))); !errors.Is(err, store.ErrUnknown) { // there is no replica
		t.Fatalf("Apply: %v", err)
	}
	knows := command(t, s, "command", "info", "waitaof") != ""
	stats := command(t, s, "info", "commandstats")
	if strings.Contains(stats, "cmdstat_waitaof:") != knows || strings.Contains(stats, "cmdstat_wait:") == knows {
		t.Fatalf("the server knows WAITAOF: %v, and was called by %s", knows, stats)
	}
}

func TestOpenRefuses(t *testing.T) {
	const secret = "hunter2"
	f := func(url string, kind store.Kind, o redisstore.Options) {
		t.Helper()
		s, err := redisstore.Open(t.Context(), url, o)
		if err == nil {
			_ = s.Close()
		}
		if store.KindOf(err) != kind {
			t.Fatalf("%v, want an error of kind %d", err, kind)
		}
		if strings.Contains(err.Error(), secret) {
			t.Fatalf("the password is in the error: %v", err)
		}
	}
	for _, url := range []string{
		"", "redis", "http://:" + secret + "@localhost", "redis://", "redis://:" + secret + "@", "redis://u:" + secret + "@host:port", "redis://a:1,,b:2",
		"redis://u:" + secret + "@127.0.0.1:1/x", "redis://u:" + secret + "@127.0.0.1:1/0/1", "redis://u:" + secret + "@127.0.0.1:1?db=1",
		"redis://u:" + secret + "%zz@127.0.0.1:1",
	} {
		f(url, store.KindInvalid, redisstore.Options{})
	}
	f("redis://u:"+secret+"@127.0.0.1:1", store.KindUnavailable, redisstore.Options{})
	f("redis://u:"+secret+"@"+single.Addr, store.KindUnavailable, redisstore.Options{})
	url := "redis://" + single.Addr
	f(url, store.KindInvalid, redisstore.Options{Prefix: "a{b"})
	f(url, store.KindInvalid, redisstore.Options{Partitions: -1})
	f(url, store.KindInvalid, redisstore.Options{Partitions: 1 << 20})
	f(url, store.KindInvalid, redisstore.Options{Replicas: -1})
	p := prefix()
	if n := open(t, url, redisstore.Options{Prefix: p, Partitions: 3}).Traits().Partitions; n != 3 {
		t.Fatalf("%d partitions", n)
	}
	f(url, store.KindInvalid, redisstore.Options{Prefix: p, Partitions: 4})
	if n := open(t, url, redisstore.Options{Prefix: p}).Traits().Partitions; n != 3 {
		t.Fatalf("%d partitions", n)
	}
	if n := open(t, url, redisstore.Options{Prefix: prefix()}).Traits().Partitions; n != 64 {
		t.Fatalf("%d partitions", n)
	}
	command(t, single, "hset", p+":store", "layout", "0")
	f(url, store.KindUnsupported, redisstore.Options{Prefix: p})
}

// Who only reads makes nothing, wherever he was sent.
func TestOpenExisting(t *testing.T) {
	url, o := "redis://"+single.Addr, redisstore.Options{Prefix: prefix(), Existing: true}
	s, err := redisstore.Open(t.Context(), url, o)
	if err == nil {
		_ = s.Close()
	}
	text := fmt.Sprint(err)
	if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(text, single.Addr) || !strings.Contains(text, o.Prefix+":store") {
		t.Errorf("a store that is not there: %v", err)
	}
	if out := command(t, single, "keys", o.Prefix+"*"); out != "" {
		t.Errorf("it made %s", out)
	}
	k := kit{t, open(t, url, redisstore.Options{Prefix: o.Prefix, Partitions: 2})}
	k.one(add("a", 1), store.Applied, 0, 1)
	reader := kit{t, open(t, url, o)}
	if n := reader.Traits().Partitions; n != 2 {
		t.Errorf("%d partitions", n)
	}
	reader.holds("a", 1)
}

func TestPasswordAndDatabase(t *testing.T) {
	s := redisproc.For(t, "--requirepass", "p@ss/word")
	k := kit{t, open(t, "redis://:p%40ss%2Fword@"+s.Addr+"/3", redisstore.Options{Partitions: 2})}
	k.one(add("a", 1), store.Applied, 0, 1)
	if out := command(t, s, "-a", "p@ss/word", "--no-auth-warning", "-n", "3", "exists", "quipu:store"); out != "1" {
		t.Fatalf("the store is not in its database: %s", out)
	}
}

// Stores that were closed leave no goroutine behind, whatever they did.
func TestNoLeaks(t *testing.T) {
	_, url := clusterURL(t)
	// A client closes connections to nodes that it needs no more after a while.
	const late = "github.com/redis/rueidis.(*clusterClient)._refresh.func2"
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent(), goleak.IgnoreAnyFunction(late))
	for _, url := range []string{"redis://" + single.Addr, url} {
		for _, replicas := range []int{0, 1} {
			s, err := redisstore.Open(t.Context(), url, redisstore.Options{Prefix: prefix(), Partitions: 4, Replicas: replicas})
			if err != nil {
				t.Fatal(err)
			}
			k := kit{t, s}
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			for i := range 8 {
				_, _ = k.try(ctx, k.batch(add(fmt.Sprint(i), 1)))
			}
			cancel()
			_, _ = k.try(ctx, k.batch(add("a", 1)))
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// The audit finds what was changed behind the store's back.
func TestAuditFindsDrift(t *testing.T) {
	f := func(what string, spoil ...string) {
		t.Helper()
		p := prefix()
		k := kit{t, open(t, "redis://"+single.Addr, redisstore.Options{Prefix: p, Partitions: 1})}
		k.reply(k.batch(once(add("a", 5), "t"), add("b", 7)))
		k.reply(k.batch(with(add("c", 1), rides(window(7, 0), 1), rides(window(7, 1), 2), rides(held, 1))))
		k.clean()
		for i := range spoil {
			spoil[i] = strings.ReplaceAll(spoil[i], "$", p+":{0}:")
		}
		command(t, single, spoil...)
		a, err := k.Store.(store.Auditor).Audit(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range a.Drift {
			if strings.HasPrefix(d.What, what) && d.Have != d.Want {
				return
			}
		}
		t.Fatalf("after %q the audit finds %+v, want %s", spoil, a.Drift, what)
	}
	f("sum of cells", "hincrby", "$v:n", "a", "1")
	f("check sum of cells", "hset", "$v:n", "a", "7", "b", "5")
	f("stamps of", "hdel", "$s:n", "a")
	f("keys of", "zrem", "$i:n", "a")
	f("tokens of", "lpop", "$q:n")
	spoil := func(what, text, key string) {
		t.Helper()
		f(what, "eval", text, "1", key)
	}
	spoil("sum of cells", "return redis.call('hincrby', KEYS[1], redis.call('hkeys', KEYS[1])[1], 1)", "$p:08:n")
	spoil("check sum of parts of kind 0x81, view 1, epoch 0x7", `local k = redis.call('hkeys', KEYS[1])
		return redis.call('hincrby', KEYS[1], k[1], 1) + redis.call('hincrby', KEYS[1], k[2], -1)`, "$p:81000100000007:n")
	spoil("names of parts of kind 0x8 ", "return redis.call('del', KEYS[1])", "$o:08:n")
	spoil("sum of parts of kind 0x81", "return redis.call('del', KEYS[1])", "$p:81000100000007:n")
	spoil("sum of parts of kind 0x81", "return redis.call('del', KEYS[1])", "$tally")
	spoil("check sum of cells", "return redis.call('zrem', KEYS[1], 'n\\255\\8')", "$drawers")
}

func TestMeters(t *testing.T) {
	k := kit{t, open(t, "redis://"+single.Addr, redisstore.Options{Prefix: prefix(), Partitions: 2})}
	k.one(add("a", 1), store.Applied, 0, 1)
	seen := make(map[string]bool)
	k.Store.(store.Meter).Meters(func(name, help string, value float64) {
		if strings.HasPrefix(name, "quipu_clock_") {
			if value > 10 { // both are on this machine
				t.Errorf("%s is %v", name, value)
			}
			return
		}
		counter := strings.HasSuffix(name, "_total") || name == "quipu_redis_evicting_servers"
		if help == "" || seen[name] || !strings.HasPrefix(name, "quipu_redis_") || !counter {
			t.Errorf("meter %q: %q", name, help)
		}
		seen[name] = true
	})
	if k.meter("quipu_redis_calls_total") == 0 {
		t.Error("no calls were counted")
	}
}
