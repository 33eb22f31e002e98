package wal_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/quipudb/quipu/internal/wal"
	"github.com/quipudb/quipu/store"
)

// A script is a short life of a log that comes by every kind of file operation.
type script struct {
	acked    []record // in memory at least
	synced   []record
	saved    wal.Position
	openErr  error
	otherErr error // of Release
	log      *wal.Log
}

func runScript(t *testing.T, o wal.Options) (s script) {
	t.Helper()
	s.log, _, _, s.openErr = tryOpen(o, 0)
	if s.openErr != nil {
		return s
	}
	for id := range 14 {
		level := []wal.Level{store.Synced, store.Written, store.Memory}[id%3]
		f, r := add(s.log, 100+id, level)
		if err := f.Wait(t.Context(), level); err != nil {
			wantKind(t, err, store.KindUnknown)
			continue
		}
		s.acked = append(s.acked, r)
		if level == store.Synced {
			s.synced = slices.Clone(s.acked)
		}
		if id == 6 || id == 10 {
			if len(s.synced) > 0 {
				s.saved = s.synced[len(s.synced)-1].end()
			}
			s.otherErr = errors.Join(s.otherErr, s.log.Release(s.saved))
		}
	}
	return s
}

// startScript returns a disk with a log that was killed: there is a tail to be
// written anew.
func startScript(t *testing.T) (mem *vfs.MemFS, before []record) {
	t.Helper()
	mem = vfs.NewCrashableMem()
	o := options(mem)
	create(t, o)
	l, _, _ := open(t, o, 0)
	before = commitMany(t, l, 0, 8)
	return mem.CrashClone(vfs.CrashCloneCfg{}), before
}

// TestFaults fails every single file operation of a script, one at a time. A
// log whose write or sync failed has to stop for good. Whatever happened, all
// that was acknowledged is there when the log is opened again, after a kill and
// after a power loss.
func TestFaults(t *testing.T) {
	kinds := map[errorfs.OpKind]int{}
	for n := 0; ; n++ {
		mem, before := startScript(t)
		failed := failNth(n, nil)
		o := options(errorfs.Wrap(mem, failed))
		s := runScript(t, o)
		var closeErr error
		if s.log != nil {
			closeErr = s.log.Close()
			checkStopped(t, s.log, closeErr)
		}
		if failed.op == nil {
			if s.openErr != nil || s.otherErr != nil || closeErr != nil || len(s.acked) != 14 {
				t.Fatalf("without a fault: %+v", s)
			}
			break
		}
		kinds[failed.op.Kind]++
		if s.openErr == nil && s.otherErr == nil && closeErr == nil {
			t.Errorf("the failure of %+v went unnoticed", *failed.op)
		}
		if closeErr != nil && len(failed.after) > 0 {
			t.Errorf("after the failure of %+v: %+v", *failed.op, failed.after)
		}
		for _, fs := range []*vfs.MemFS{mem.CrashClone(vfs.CrashCloneCfg{}), mem} {
			l, _, got, err := tryOpen(options(fs), s.saved)
			if err != nil {
				t.Fatalf("after the failure of %+v: %v", *failed.op, err)
			}
			mustClose(t, l)
			want := append(slices.Clone(before), s.synced...)
			want = slices.DeleteFunc(want, func(r record) bool { return r.end() <= s.saved })
			got = slices.DeleteFunc(got, func(r record) bool { return r.end() <= s.saved })
			if len(got) < len(want) {
				t.Fatalf("after the failure of %+v: replayed %v, want %v", *failed.op, got, want)
			}
			wantRecords(t, got[:len(want)], want)
		}
	}
	for _, k := range []errorfs.OpKind{
		errorfs.OpCreate, errorfs.OpOpen, errorfs.OpOpenDir, errorfs.OpRename, errorfs.OpReuseForWrite, errorfs.OpList,
		errorfs.OpFileRead, errorfs.OpFileWrite, errorfs.OpFileStat, errorfs.OpFileSync, errorfs.OpFileSyncData,
	} {
		if kinds[k] == 0 {
			t.Errorf("the script never comes by operation %d", k)
		}
	}
}

// checkStopped checks that a failed log says so everywhere.
func checkStopped(t *testing.T, l *wal.Log, failure error) {
	t.Helper()
	if failure == nil {
		return
	}
	if !errors.Is(failure, errorfs.ErrInjected) || !errors.Is(l.Err(), errorfs.ErrInjected) || !errors.Is(l.Close(), errorfs.ErrInjected) {
		t.Errorf("the cause is lost: %v, %v", failure, l.Err())
	}
	wantKind(t, l.Room(t.Context()), store.KindUnavailable)
	wantKind(t, l.Release(1<<40), store.KindUnavailable)
	f, _ := add(l, 999, store.Memory)
	for _, level := range []wal.Level{store.Memory, store.Written, store.Synced} {
		err := f.Wait(context.Background(), level)
		wantKind(t, err, store.KindUnknown)
		if !errors.Is(err, errorfs.ErrInjected) {
			t.Errorf("the cause is lost: %v", err)
		}
	}
}

// A nthFault fails one operation.
type nthFault struct {
	mu    sync.Mutex
	n     int
	match func(errorfs.Op) bool
	op    *errorfs.Op  // the one that failed
	after []errorfs.Op // writes and syncs of segments after that
}

func failNth(n int, match func(errorfs.Op) bool) *nthFault { return &nthFault{n: n, match: match} }

func (f *nthFault) String() string { return "n-th" }

func (f *nthFault) MaybeError(op errorfs.Op) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.op != nil:
		if k := op.Kind; k == errorfs.OpFileWrite || k == errorfs.OpFileSync || k == errorfs.OpFileSyncData || k == errorfs.OpCreate {
			f.after = append(f.after, op)
		}
	case f.match != nil && !f.match(op):
	case f.n == 0:
		f.op = &op
		return errorfs.ErrInjected
	default:
		f.n--
	}
	return nil
}

// TestFaultsInCreate fails every file operation of Create. What it leaves
// behind can be created again, or is complete.
func TestFaultsInCreate(t *testing.T) {
	for n := 0; ; n++ {
		mem := vfs.NewCrashableMem()
		failed := failNth(n, nil)
		err := wal.Create(options(errorfs.Wrap(mem, failed)), 0, 1)
		if failed.op == nil {
			break
		}
		if !errors.Is(err, errorfs.ErrInjected) {
			t.Errorf("the failure of %+v went unnoticed: %v", *failed.op, err)
		}
		if err := wal.Create(options(mem), 0, 1); err != nil {
			wantKind(t, err, store.KindInvalid)
		}
		l, _, _ := open(t, options(mem), 0)
		commit(t, l, 1)
	}
}

// TestCreateDurable checks that a new log survives a power loss.
func TestCreateDurable(t *testing.T) {
	mem := vfs.NewCrashableMem()
	create(t, options(mem))
	open(t, options(mem.CrashClone(vfs.CrashCloneCfg{})), 0)
}

// TestSyncFailureReachesWaiters checks that those who wait when a sync fails
// are told, that what was synced before stays so, and that nothing is tried
// again.
func TestSyncFailureReachesWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocking := newBlockingFS(vfs.NewMem())
		failed := failNth(1, func(op errorfs.Op) bool { return op.Kind == errorfs.OpFileSyncData })
		late := errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileSyncData {
				blocking.pass()
			}
			return failed.MaybeError(op)
		})
		o := options(errorfs.Wrap(vfs.NewMem(), late))
		create(t, o)
		l, _, _ := open(t, o, 0)
		first, _ := add(l, 1, store.Synced)
		if err := first.Wait(t.Context(), store.Synced); err != nil {
			t.Fatal(err)
		}
		blocking.block()
		errs := make(chan error)
		for id := range 4 { // one in the syncer's hands, then three in the open frame
			f, _ := add(l, 2+id, store.Synced)
			go func() { errs <- f.Wait(context.Background(), store.Synced) }()
			synctest.Wait()
		}
		blocking.unblock()
		for range 4 {
			wantKind(t, <-errs, store.KindUnknown)
		}
		if err := first.Wait(t.Context(), store.Synced); err != nil {
			t.Fatalf("the first frame was synced: %v", err)
		}
		if l.Synced() != first.ID {
			t.Fatalf("synced up to %d", l.Synced())
		}
		if err := l.Close(); !errors.Is(err, errorfs.ErrInjected) {
			t.Fatal(err)
		}
		if len(failed.after) > 0 {
			t.Fatalf("went on with %+v", failed.after)
		}
	})
}

// TestTailIsWrittenAnew checks that Open makes durable what it replays. After a
// failed sync, as after a kill, the page cache has what the disk has not.
func TestTailIsWrittenAnew(t *testing.T) {
	mem := vfs.NewCrashableMem()
	noSync := errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileSyncData {
			return errorfs.ErrInjected
		}
		return nil
	})
	o := options(errorfs.Wrap(mem, noSync))
	create(t, o)
	l, _, _ := open(t, o, 0)
	f, r := add(l, 1, store.Written)
	if err := f.Wait(t.Context(), store.Written); err != nil {
		t.Fatal(err)
	}
	wantKind(t, f.Wait(t.Context(), store.Synced), store.KindUnknown)
	if err := f.Wait(t.Context(), store.Written); err != nil {
		t.Fatalf("it was written: %v", err)
	}
	_, _, got := open(t, options(mem), 0)
	wantRecords(t, got, []record{r})
	_, _, got = open(t, options(mem.CrashClone(vfs.CrashCloneCfg{})), 0)
	wantRecords(t, got, []record{r})
}

// TestClosingFrameIsNotNeeded checks that nothing depends on the closing frame
// being on the disk: the log goes on at its position.
func TestClosingFrameIsNotNeeded(t *testing.T) {
	mem := vfs.NewCrashableMem()
	lastSync := failNth(1, func(op errorfs.Op) bool { return op.Kind == errorfs.OpFileSyncData })
	o := options(errorfs.Wrap(mem, lastSync))
	create(t, o)
	l, _, _ := open(t, o, 0)
	all := commitMany(t, l, 0, 1)
	if err := l.Close(); !errors.Is(err, errorfs.ErrInjected) {
		t.Fatal(err)
	}
	l, r, _ := open(t, options(mem), 0)
	if !r.Clean {
		t.Fatal("the page cache has the closing frame")
	}
	all = append(all, commit(t, l, 1))
	_, _, got := open(t, options(mem.CrashClone(vfs.CrashCloneCfg{})), 0)
	wantRecords(t, got, all)
}

// TestShortWrites cuts every write short, one at a time.
func TestShortWrites(t *testing.T) {
	for n := 1; ; n++ {
		mem, before := startScript(t)
		short := &shortFS{FS: mem, n: n}
		s := runScript(t, options(short))
		var err error
		if s.log != nil {
			err = s.log.Close()
		}
		if short.n > 0 {
			break
		}
		if !errors.Is(errors.Join(s.openErr, err), io.ErrShortWrite) {
			t.Fatalf("write %d: %v, %v", n, s.openErr, err)
		}
		l, _, got, err := tryOpen(options(mem), s.saved)
		if err != nil {
			t.Fatalf("write %d: %v", n, err)
		}
		mustClose(t, l)
		want := append(slices.Clone(before), s.synced...)
		want = slices.DeleteFunc(want, func(r record) bool { return r.end() <= s.saved })
		got = slices.DeleteFunc(got, func(r record) bool { return r.end() <= s.saved })
		wantRecords(t, got[:min(len(want), len(got))], want)
	}
}

// TestReadError checks that what can't be read is not taken for the end of the
// log.
func TestReadError(t *testing.T) {
	mem, all := killedLog(t)
	paths := segments(t, mem)
	before := files(t, mem)
	size := len(content(t, mem, paths[len(paths)-1]))
	for n := range size {
		_, _, _, err := tryOpen(options(&unreadableFS{FS: mem, path: paths[len(paths)-1], n: n}), 0)
		if !errors.Is(err, errUnreadable) {
			t.Fatalf("after %d bytes: %v", n, err)
		}
	}
	if files(t, mem) != before {
		t.Fatal("changed what it could not read")
	}
	_, _, got := open(t, options(mem), 0)
	wantRecords(t, got, all)
}

// TestLitter checks that what an ended process has left half made is removed,
// and nothing else.
func TestLitter(t *testing.T) {
	mem, all := killedLog(t)
	for _, name := range []string{"0000000000000000.wal.tmp", "0000000000000007.wal.spare", "notes.tmp"} {
		setContent(t, mem, mem.PathJoin(dir, name), []byte("junk"))
	}
	_, _, got := open(t, options(mem), 0)
	wantRecords(t, got, all)
	names, err := mem.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return strings.HasSuffix(name, ".wal") })
	if !slices.Equal(names, []string{"notes.tmp"}) {
		t.Fatalf("left: %v", names)
	}
}
