package server_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/store"
)

// Every kind has a word and a title of its own, and a code that says an error.
func TestStatusOf(t *testing.T) {
	words, titles := map[string]store.Kind{}, map[string]store.Kind{}
	for k := store.KindOther; k <= store.KindLost; k++ {
		s := server.StatusOf(k)
		if other, taken := words[s.Word]; taken || s.Word == "" {
			t.Errorf("kind %d has the word %q of kind %d", k, s.Word, other)
		}
		if other, taken := titles[s.Title]; taken || s.Title == "" {
			t.Errorf("kind %d has the title %q of kind %d", k, s.Title, other)
		}
		if s.HTTP < 400 || s.HTTP > 599 {
			t.Errorf("kind %d: status %d", k, s.HTTP)
		}
		if s.RPC == codes.OK || s.RPC > codes.DataLoss {
			t.Errorf("kind %d: code %v", k, s.RPC)
		}
		words[s.Word], titles[s.Title] = k, k
	}
}

func TestKindOf(t *testing.T) {
	f := func(err error, want store.Kind) {
		t.Helper()
		if got := server.KindOf(err); got != want {
			t.Errorf("%v: kind %d, want %d", err, got, want)
		}
	}
	f(store.ErrOverflow, store.KindOverflow)
	f(fmt.Errorf("apply: %w", store.ErrFull), store.KindFull)
	f(context.DeadlineExceeded, store.KindUnavailable)
	f(fmt.Errorf("apply: %w", context.Canceled), store.KindUnavailable)
	f(store.Errorf(store.KindUnknown, "apply: %w", context.DeadlineExceeded), store.KindUnknown)
	f(errors.New("anything"), store.KindOther)
}

// A caller learns of the condition, and of no file.
func TestDetail(t *testing.T) {
	f := func(err error, want string) {
		t.Helper()
		for _, got := range []string{server.Detail(err), server.ReadDetail(err) + "; nothing changed"} {
			if !strings.HasPrefix(got, want) || strings.Contains(got, "/var") {
				t.Errorf("%v: %q, want %q", err, got, want)
			}
		}
	}
	file := &fs.PathError{Op: "write", Path: "/var/lib/quipu/000001.log", Err: syscall.ENOSPC}
	f(store.Errorf(store.KindUnavailable, "log stopped: %w", file), "log stopped: no space left on device; nothing changed")
	f(store.Errorf(store.KindUnavailable, "the disk is nearly full: 1 MiB free"), "the disk is nearly full; nothing changed")
	f(store.Errorf(store.KindUnavailable, "lock /var/lib/quipu: %w", file), "unavailable: no space")
	f(store.Errorf(store.KindUnknown, "log stopped: %w", file), "log stopped: no space left on device; it may have counted")
	f(fmt.Errorf("apply: %w", context.DeadlineExceeded), "the deadline of the call passed; nothing changed")
	f(store.Errorf(store.KindCorrupt, "/var/lib/quipu: flipped"), server.SeeLog)
	f(store.Errorf(store.KindLost, "/var/lib/quipu: gone"), "the store has lost acknowledged writes; ")
	f(store.Errorf(store.KindSessionLost, "the session is lost: it was at version 7"), "the session is lost: it was at version 7")
	f(file, server.SeeLog)

	lost := store.Errorf(store.KindLost, "partition 37: callers were told of version 9, and the server is at 3")
	for _, c := range []struct{ got, want string }{
		{server.Detail(lost), "the store has lost acknowledged writes; this call counted nothing; try again"},
		{server.ReadDetail(lost), "the store has lost acknowledged writes; try again"},
		{server.ReadDetail(store.ErrClosed), "the server is closing"},
		{server.ReadDetail(store.Errorf(store.KindUnavailable, "the store can't be reached: refused")), "the store can't be reached"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
	f(store.ErrClosed, "the server is closing")
	f(store.ErrOverflow, "the result does not fit into an int64")
}

func TestKeys(t *testing.T) {
	keys, err := server.NewKeys([]string{"one", "two"})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]bool{"one": true, "two": true, "": false, "three": false, "on": false, "onetwo": false} {
		if keys.Has(key) != want {
			t.Errorf("has %q: %v", key, !want)
		}
	}
	if none, err := server.NewKeys(nil); err != nil || none.Required() || none.Has("") || !keys.Required() {
		t.Errorf("no keys: %v", err)
	}
	for _, bad := range []string{"", "a b", "é", "a\n"} {
		if _, err := server.NewKeys([]string{"good", bad}); err == nil {
			t.Errorf("key %q was taken", bad)
		}
	}
}
