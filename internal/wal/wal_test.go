package wal_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/quipudb/quipu/internal/wal"
	"github.com/quipudb/quipu/store"
)

func TestReopen(t *testing.T) {
	o := options(vfs.NewMem())
	create(t, o)
	var all []record
	var end wal.Position
	for life := range 20 {
		l, r, got := open(t, o, 0)
		wantRecords(t, got, all)
		if r.Frames != len(all) || r.Cut != nil || r.Clean != (life > 0) || r.Epoch != uint64(life+2) {
			t.Fatalf("life %d found %+v", life, r)
		}
		if r.End < end {
			t.Fatalf("the log ended at %d, now it ends at %d", end, r.End)
		}
		all = append(all, commitMany(t, l, len(all), life%5)...)
		end = l.Next() - 40 // without the header of a frame that never came
		mustClose(t, l)
	}
}

func TestReopenAfterKill(t *testing.T) {
	mem := vfs.NewCrashableMem()
	create(t, options(mem))
	var all []record
	for range 20 {
		l, r, got := open(t, options(mem), 0)
		wantRecords(t, got, all)
		if len(all) > 0 && (r.Clean || r.Cut != nil) {
			t.Fatalf("found %+v after a kill", r)
		}
		all = append(all, commitMany(t, l, len(all), 3)...)
		mem = mem.CrashClone(vfs.CrashCloneCfg{})
	}
}

// TestIdleLives checks that opening and closing alone leaves nothing behind.
func TestIdleLives(t *testing.T) {
	mem := vfs.NewMem()
	o := options(mem)
	create(t, o)
	for range 10 {
		l, _, _ := open(t, o, 0)
		mustClose(t, l)
	}
	if got := segments(t, mem); len(got) != 1 {
		t.Fatalf("segments %v", got)
	}
}

func TestCreateTwice(t *testing.T) {
	o := options(vfs.NewMem())
	create(t, o)
	wantKind(t, wal.Create(o, 0, 1), store.KindInvalid)
}

// TestCreateAt checks the log of a copy, which starts where the checkpoint is.
func TestCreateAt(t *testing.T) {
	const start = 12345
	o := options(vfs.NewMem())
	if err := wal.Create(o, start, 7); err != nil {
		t.Fatal(err)
	}
	_, _, _, err := tryOpen(o, start-1)
	wantKind(t, err, store.KindLost)
	l, r, got := open(t, o, start)
	if len(got) != 0 || r.End != start || r.Epoch != 8 {
		t.Fatalf("found %+v", r)
	}
	all := commitMany(t, l, 0, 12)
	mustClose(t, l)
	_, _, got = open(t, o, start)
	wantRecords(t, got, all)
}

// TestFrom checks which frames are replayed, for every position of a log.
func TestFrom(t *testing.T) {
	o := options(vfs.NewMem())
	create(t, o)
	l, _, _ := open(t, o, 0)
	all := commitMany(t, l, 0, 12)
	next := l.Next() // of an empty frame: after the header it would have had
	mustClose(t, l)
	for from := wal.Position(0); from <= next; from++ {
		l, _, got := open(t, o, from)
		first := slices.IndexFunc(all, func(r record) bool { return r.end() > from })
		if first < 0 {
			first = len(all)
		}
		wantRecords(t, got, all[first:])
		mustClose(t, l)
	}
	_, _, _, err := tryOpen(o, next+1)
	wantKind(t, err, store.KindLost)
}

func TestReplayError(t *testing.T) {
	mem := vfs.NewCrashableMem()
	o := options(mem)
	create(t, o)
	l, _, _ := open(t, o, 0)
	all := commitMany(t, l, 0, 3)
	o.FS = mem.CrashClone(vfs.CrashCloneCfg{})
	before := files(t, o.FS)
	oops := errors.New("oops")
	_, _, err := wal.Open(o, 0, func(wal.Position, []byte) error { return oops })
	if !errors.Is(err, oops) {
		t.Fatalf("got %v", err)
	}
	if after := files(t, o.FS); before != after {
		t.Fatalf("a failed Open changed\n%s to\n%s", before, after)
	}
	_, _, got := open(t, o, 0)
	wantRecords(t, got, all)
}

// TestLevels checks that nothing waits for more than it asked for, and that
// waiting for more than was asked at the append asks for it.
func TestLevels(t *testing.T) {
	for _, asked := range []wal.Level{store.Memory, store.Written, store.Synced, store.DurabilityDefault} {
		for _, waited := range []wal.Level{store.Memory, store.Written, store.Synced, store.DurabilityDefault} {
			synctest.Test(t, func(t *testing.T) {
				o := options(vfs.NewMem())
				create(t, o)
				l, _, _ := open(t, o, 0)
				began := time.Now()
				f, _ := add(l, 1, asked)
				if err := f.Wait(t.Context(), waited); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took != 0 {
					t.Errorf("%v, %v: waited for a timer: %v", asked, waited, took)
				}
				if orSynced(waited) < orSynced(asked) {
					l.Flush(false) // nobody waits for what was asked
				}
				synctest.Wait()
				strongest := max(orSynced(asked), orSynced(waited))
				if got := l.Written() == f.ID; got != (strongest >= store.Written) {
					t.Errorf("%v, %v: written %v", asked, waited, got)
				}
				if got := l.Synced() == f.ID; got != (strongest >= store.Synced) {
					t.Errorf("%v, %v: synced %v", asked, waited, got)
				}
				mustClose(t, l)
			})
		}
	}
}

func orSynced(l wal.Level) wal.Level {
	if l == store.DurabilityDefault {
		return store.Synced
	}
	return l
}

// TestTimers checks how soon what nobody waits for is synced.
func TestTimers(t *testing.T) {
	f := func(need wal.Level, want time.Duration) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			o := options(vfs.NewMem())
			o.FlushEvery, o.SyncEvery = 50*time.Millisecond, 200*time.Millisecond
			create(t, o)
			l, _, _ := open(t, o, 0)
			add(l, 1, need)
			<-time.After(want / 2)
			add(l, 2, need)
			<-time.After(want/2 - time.Millisecond)
			synctest.Wait()
			if l.Synced() != 0 {
				t.Errorf("%v: synced too early", need)
			}
			<-time.After(2 * time.Millisecond)
			synctest.Wait()
			if l.Synced() == 0 {
				t.Errorf("%v: not synced after %v", need, want)
			}
			mustClose(t, l)
		})
	}
	f(store.Memory, 50*time.Millisecond)
	f(store.Written, 200*time.Millisecond)
}

// TestTimerUnderLoad checks that a stream of writes that nobody wants synced is
// synced in time all the same, and that one sync covers all of them.
func TestTimerUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options(vfs.NewMem())
		o.SegmentBytes = 1 << 20
		create(t, o)
		l, _, _ := open(t, o, 0)
		for id := range 1000 {
			f, _ := add(l, id, store.Written)
			if err := f.Wait(t.Context(), store.Written); err != nil {
				t.Fatal(err)
			}
			<-time.After(time.Millisecond)
		}
		if s := l.Stats(); s.Frames != 1000 || s.Syncs < 4 || s.Syncs > 5 {
			t.Errorf("in a second: %+v", s)
		}
		mustClose(t, l)
	})
}

// TestIdle checks that a log with nothing to do does nothing.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ops int
		fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(errorfs.Op) error { ops++; return nil }))
		o := options(fs)
		create(t, o)
		l, _, _ := open(t, o, 0)
		commit(t, l, 1)
		before := ops
		<-time.After(24 * time.Hour)
		if ops != before {
			t.Errorf("%d file operations", ops-before)
		}
		mustClose(t, l)
	})
}

// TestBarrier checks that an empty frame can be waited for.
func TestBarrier(t *testing.T) {
	o := options(vfs.NewMem())
	create(t, o)
	l, _, _ := open(t, o, 0)
	add(l, 1, store.Memory)
	written, _ := add(l, 2, store.Written)
	if err := written.Wait(t.Context(), store.Written); err != nil {
		t.Fatal(err)
	}
	f := l.Begin()
	l.End(store.Synced)
	if err := f.Wait(t.Context(), store.Synced); err != nil {
		t.Fatal(err)
	}
	if l.Synced() < written.ID || l.Stats().Frames != 1 {
		t.Fatalf("synced %d, %+v", l.Synced(), l.Stats())
	}
}

func TestClose(t *testing.T) {
	o := options(vfs.NewMem())
	create(t, o)
	l, _, _ := open(t, o, 0)
	f, r := add(l, 1, store.Memory)
	mustClose(t, l)
	mustClose(t, l)
	if err := f.Wait(t.Context(), store.Synced); err != nil {
		t.Fatalf("Close did not sync: %v", err)
	}
	wantKind(t, l.Room(t.Context()), store.KindClosed)
	wantKind(t, l.Release(1<<40), store.KindClosed)
	late, _ := add(l, 2, store.Memory)
	wantKind(t, late.Wait(t.Context(), store.Memory), store.KindClosed)
	wantKind(t, late.Wait(t.Context(), store.Synced), store.KindClosed)
	for range 10_000 {
		late, _ = add(l, 2, store.Memory)
	}
	if n := cap(late.Payload); n > 100<<10 {
		t.Fatalf("a closed log collects what is appended: %d bytes", n)
	}
	if err := l.Err(); err != nil {
		t.Fatal(err)
	}
	_, _, got := open(t, o, 0)
	wantRecords(t, got, []record{r})
}

// TestCloseUnderLoad checks that every append that raced with Close is either
// replayed or refused.
func TestCloseUnderLoad(t *testing.T) {
	o := options(vfs.NewMem())
	create(t, o)
	for round := range 20 {
		l, _, before := open(t, o, 0)
		acked := make([][]int, 4)
		var group sync.WaitGroup
		for g := range acked {
			group.Go(func() {
				for i := 0; ; i++ {
					level := []wal.Level{store.Memory, store.Written, store.Synced}[i%3]
					if l.Room(context.Background()) != nil {
						return
					}
					id := (round*len(acked)+g)*1000 + i
					f, _ := add(l, id, level)
					err := f.Wait(context.Background(), level)
					if err == nil {
						acked[g] = append(acked[g], id)
					} else if !errors.Is(err, store.ErrClosed) {
						t.Error(err)
					}
				}
			})
		}
		for l.Synced() < uint64(round) {
			if err := l.Room(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		mustClose(t, l)
		group.Wait()
		l, r, got := open(t, o, 0)
		mustClose(t, l)
		want := slices.Concat(acked...)
		for _, r := range got[len(before):] {
			i := slices.Index(want, r.id)
			if i < 0 {
				t.Fatalf("record %d was refused and replayed", r.id)
			}
			want = slices.Delete(want, i, i+1)
		}
		if len(want) > 0 || !r.Clean {
			t.Fatalf("acknowledged and not replayed: %v; %+v", want, r)
		}
	}
}

func TestWaitCancelled(t *testing.T) {
	fs := newBlockingFS(vfs.NewMem())
	o := options(fs)
	create(t, o)
	l, _, _ := open(t, o, 0)
	fs.block()
	f, _ := add(l, 1, store.Synced)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := f.Wait(ctx, store.Synced)
	wantKind(t, err, store.KindUnknown)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	fs.unblock()
	if err := f.Wait(t.Context(), store.Synced); err != nil {
		t.Fatal(err)
	}
	if err := f.Wait(ctx, store.Synced); err != nil {
		t.Fatalf("a context that ended hides what is known: %v", err)
	}
}

// TestRoom checks that a disk that does not keep up holds back those who ask,
// and only as long as it has to.
func TestRoom(t *testing.T) {
	fs := newBlockingFS(vfs.NewMem())
	o := options(fs)
	o.FrameBytesMax = 1000
	create(t, o)
	l, _, _ := open(t, o, 0)
	fs.block()
	add(l, 0, store.Synced)
	l.Flush(false)
	<-fs.blocked // the syncer has the first frame in hand
	n := 0
	for ; ; n++ {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := l.Room(ctx)
		if err == nil {
			add(l, n+1, store.Memory)
			continue
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		break
	}
	if n < 10 || n > 50 {
		t.Fatalf("%d records in a frame of %d bytes", n, o.FrameBytesMax)
	}
	waiting := make(chan error)
	go func() { waiting <- l.Room(context.Background()) }()
	fs.unblock()
	if err := <-waiting; err != nil {
		t.Fatal(err)
	}
	mustClose(t, l)
	_, _, got := open(t, o, 0)
	if len(got) != n+1 {
		t.Fatalf("replayed %d, want %d", len(got), n+1)
	}
}

// TestRoomEndsWithLog checks that nobody waits for room in a log that closes.
func TestRoomEndsWithLog(t *testing.T) {
	fs := newBlockingFS(vfs.NewMem())
	o := options(fs)
	o.FrameBytesMax = 1
	create(t, o)
	l, _, _ := open(t, o, 0)
	fs.block()
	add(l, 0, store.Synced)
	<-fs.blocked
	add(l, 1, store.Memory)
	waiting, closed := make(chan error), make(chan error)
	go func() { waiting <- l.Room(context.Background()) }()
	go func() { closed <- l.Close() }()
	wantKind(t, <-waiting, store.KindClosed)
	fs.unblock()
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
}

// TestPipelining checks that a frame fills while the one before it is synced,
// and that one sync covers all that came in the meantime.
func TestPipelining(t *testing.T) {
	fs := newBlockingFS(vfs.NewMem())
	o := options(fs)
	create(t, o)
	l, _, _ := open(t, o, 0)
	fs.block()
	first, _ := add(l, 0, store.Synced)
	l.Flush(false)
	<-fs.blocked
	var last *wal.Frame
	for id := range 100 {
		last, _ = add(l, 1+id, store.Synced)
	}
	if last.ID != first.ID+1 {
		t.Fatalf("frame %d is open while frame %d is synced", last.ID, first.ID)
	}
	fs.unblock()
	if err := last.Wait(t.Context(), store.Synced); err != nil {
		t.Fatal(err)
	}
	if s := l.Stats(); s.Frames != 2 || s.Syncs != 2 {
		t.Fatalf("%+v", s)
	}
}

// TestLongPayloads checks frames whose payload outgrows its buffer.
func TestLongPayloads(t *testing.T) {
	o := options(vfs.NewMem())
	o.FrameBytesMax = 64 << 10
	create(t, o)
	l, _, _ := open(t, o, 0)
	var want []int
	for _, n := range []int{1, 7, 8, 9, 64<<10 - 48, 64<<10 - 40, 64<<10 - 39, 64 << 10, 100e3, 1, 100e3, 500e3, 5} {
		f := l.Begin()
		for i := range n {
			f.Payload = append(f.Payload, byte(i*n))
		}
		l.End(store.Synced)
		if err := f.Wait(t.Context(), store.Synced); err != nil {
			t.Fatal(err)
		}
		want = append(want, n)
	}
	mustClose(t, l)
	var got []int
	l, _, err := wal.Open(o, 0, func(_ wal.Position, p []byte) error {
		for i := range p {
			if p[i] != byte(i*len(p)) {
				t.Fatalf("byte %d of %d is wrong", i, len(p))
			}
		}
		got = append(got, len(p))
		return nil
	})
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("%v: got %v, want %v", err, got, want)
	}
	mustClose(t, l)
}

// TestConcurrent has all methods called at once, for the race detector, and
// checks that everyone's records are replayed in the order of their positions.
func TestConcurrent(t *testing.T) {
	o := options(vfs.NewMem())
	o.SegmentBytes, o.FrameBytesMax = 8<<10, 4<<10
	create(t, o)
	l, _, _ := open(t, o, 0)
	var mu sync.Mutex
	all := map[wal.Position]record{}
	var group sync.WaitGroup
	for g := range 8 {
		group.Go(func() {
			for i := range 300 {
				if err := l.Room(context.Background()); err != nil {
					t.Error(err)
				}
				level := []wal.Level{store.Memory, store.Written, store.Synced}[(g+i)%3]
				f, r := add(l, g*1000+i, level)
				if err := f.Wait(context.Background(), level); err != nil {
					t.Error(err)
				}
				if level == store.Synced && l.Synced() < f.ID {
					t.Error("acknowledged before it was published")
				}
				mu.Lock()
				all[r.pos] = r
				mu.Unlock()
				if i%50 == 0 {
					_, _, _ = l.Next(), l.Stats(), l.Err()
					if err := l.Release(0); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	group.Wait()
	mustClose(t, l)
	_, _, got := open(t, o, 0)
	if len(got) != len(all) {
		t.Fatalf("replayed %d records, want %d", len(got), len(all))
	}
	for i, r := range got {
		if all[r.pos] != r || i > 0 && got[i-1].end() > r.pos {
			t.Fatalf("replayed %v at %d after %v", r, i, got[max(i-1, 0)])
		}
	}
}
