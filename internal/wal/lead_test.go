package wal_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/quipudb/quipu/internal/wal"
	"github.com/quipudb/quipu/store"
)

// TestFlush checks that who flushes here has it done on return, that who does
// not has it done soon, and that what nobody flushes is done by Close.
func TestFlush(t *testing.T) {
	o := options(vfs.NewMem())
	create(t, o)
	l, _, _ := open(t, o, 0)
	told := make(chan error, 1)
	begin := func(id int) {
		f, _ := add(l, id, store.Synced)
		f.Notify(store.Synced, func(err error) { told <- err })
	}
	l.Flush(true) // of nothing
	begin(1)
	l.Flush(true)
	if len(told) == 0 {
		t.Error("flushed here, and not done")
	}
	if err := <-told; err != nil {
		t.Error(err)
	}
	begin(2)
	l.Flush(false)
	if err := <-told; err != nil {
		t.Error(err)
	}
	begin(3)
	mustClose(t, l)
	if err := <-told; err != nil {
		t.Error(err)
	}
	l.Flush(true)
	l.Flush(false)
}

// TestFlushWhileBusy checks that a flush neither waits for a sync that another
// is at, nor is forgotten by it.
func TestFlushWhileBusy(t *testing.T) {
	for _, here := range []bool{true, false} {
		fs := newBlockingFS(vfs.NewMem())
		o := options(fs)
		create(t, o)
		l, _, _ := open(t, o, 0)
		fs.block()
		first, _ := add(l, 1, store.Synced)
		var group sync.WaitGroup
		group.Go(func() {
			if err := first.Wait(context.Background(), store.Synced); err != nil {
				t.Error(err)
			}
		})
		<-fs.blocked
		second, _ := add(l, 2, store.Synced)
		told := make(chan error, 1)
		second.Notify(store.Synced, func(err error) { told <- err })
		l.Flush(here)
		if len(told) != 0 {
			t.Error("done before the sync")
		}
		fs.unblock()
		if err := <-told; err != nil {
			t.Error(err)
		}
		group.Wait()
		mustClose(t, l)
	}
}

// TestLeaderFails fails a sync that a caller does himself: he is told, and so is
// everyone else.
func TestLeaderFails(t *testing.T) {
	for _, lead := range []func(l *wal.Log, f *wal.Frame) error{
		func(_ *wal.Log, f *wal.Frame) error { return f.Wait(context.Background(), store.Synced) },
		func(l *wal.Log, f *wal.Frame) error {
			told := make(chan error, 1)
			f.Notify(store.Synced, func(err error) { told <- err })
			l.Flush(true)
			return <-told
		},
	} {
		fail := false
		o := options(errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if fail && op.Kind == errorfs.OpFileSyncData {
				return errorfs.ErrInjected
			}
			return nil
		})))
		create(t, o)
		l, _, _ := open(t, o, 0)
		commit(t, l, 1)
		fail = true
		f, _ := add(l, 2, store.Synced)
		err := lead(l, f)
		wantKind(t, err, store.KindUnknown)
		if !errors.Is(err, errorfs.ErrInjected) {
			t.Errorf("the cause is lost: %v", err)
		}
		checkStopped(t, l, err)
	}
}

// TestLeadersAndClose has many callers who do the work themselves, some not, and
// a Close in their midst: nobody is forgotten.
func TestLeadersAndClose(t *testing.T) {
	for round := range 20 {
		o := options(vfs.NewMem())
		o.SegmentBytes = 1 << 20
		create(t, o)
		l, _, _ := open(t, o, 0)
		var group sync.WaitGroup
		for g := range 8 {
			group.Go(func() {
				ctx := context.Background()
				if g%2 == 0 {
					ctx = t.Context()
				}
				for i := range 200 {
					if l.Room(ctx) != nil {
						return
					}
					f, _ := add(l, i, store.Synced)
					if err := f.Wait(ctx, store.Synced); err != nil && !errors.Is(err, store.ErrClosed) {
						t.Error(err)
					}
					if g == 7 && i == 10*round {
						mustClose(t, l)
					}
				}
			})
		}
		group.Wait()
		mustClose(t, l)
	}
}
