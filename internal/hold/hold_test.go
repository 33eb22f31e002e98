package hold_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/hold"
	"github.com/quipudb/quipu/store"
)

// TestID keeps the ids: callers keep them too.
func TestID(t *testing.T) {
	f := func(h hold.Hold, namespace, id string) {
		t.Helper()
		if got := h.ID(namespace); got != id {
			t.Errorf("%+v in %q has id %s, want %s", h, namespace, got, id)
		}
		got, err := hold.ParseID(namespace, id)
		if err != nil || got != h {
			t.Errorf("%s is %+v, %v", id, got, err)
		}
		if len(id) > hold.IDBytesMax {
			t.Errorf("id of %d bytes", len(id))
		}
		for i := range id {
			if _, err := hold.ParseID(namespace, id[:i]); !errors.Is(err, store.ErrInvalid) {
				t.Errorf("%s: %v", id[:i], err)
			}
		}
		if _, err := hold.ParseID(namespace+"x", id); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("in another namespace: %v", err)
		}
	}
	name := hold.NameOf("ns", "k", "t")
	if name != "xuioh2YiTbSzC1pf" || len(name) != hold.NameBytes {
		t.Errorf("name %s", name)
	}
	f(hold.Hold{Key: "k", Amount: 1, Name: name}, "ns", "AQRj-30Bxuioh2YiTbSzC1pfAWs")
	f(hold.Hold{Key: "stock:1", Amount: 300, Name: name, Who: "eve"}, "ns", "Abbtl3-sAsboqIdmIk20swtaXwdzdG9jazoxZXZl")
	longest := hold.Hold{Key: strings.Repeat("k", 512), Amount: hold.AmountMax, Name: name, Who: strings.Repeat("w", hold.WhoBytesMax)}
	f(longest, "ns", longest.ID("ns"))
}

func TestIDRefuses(t *testing.T) {
	if _, err := hold.ParseID("ns", strings.Repeat("A", hold.IDBytesMax+1)); !errors.Is(err, store.ErrTooLarge) {
		t.Error(err)
	}
	for _, h := range []hold.Hold{
		{Key: "", Amount: 1},
		{Key: "k"},
		{Key: "k", Amount: -1},
		{Key: "k", Amount: hold.AmountMax + 1},
		{Key: "k", Amount: 1, Who: "\xff"},
		{Key: "k", Amount: 1, Who: strings.Repeat("w", hold.WhoBytesMax+1)},
	} {
		h.Name = hold.NameFrom([12]byte{})
		if h.Check() == nil {
			t.Errorf("%+v is a hold", h)
		}
		if got, err := hold.ParseID("ns", h.ID("ns")); err == nil {
			t.Errorf("%+v has an id: %+v", h, got)
		}
	}
}

func FuzzParseID(f *testing.F) {
	h := hold.Hold{Key: "stock:1", Amount: 300, Name: hold.NameOf("ns", "k", "t"), Who: "eve"}
	f.Add("ns", h.ID("ns"))
	h.Who = ""
	f.Add("default", h.ID("default"))
	f.Add("ns", "")
	f.Fuzz(func(t *testing.T, namespace, id string) {
		h, err := hold.ParseID(namespace, id)
		if err != nil {
			return
		}
		if h.ID(namespace) != id {
			t.Errorf("%q becomes %q", id, h.ID(namespace))
		}
		if err := h.Check(); err != nil {
			t.Errorf("%q is %+v: %v", id, h, err)
		}
	})
}

// What a part says of a hold is what made it.
func TestOf(t *testing.T) {
	h := hold.Hold{Key: "k", Amount: 7, Name: hold.NameFrom([12]byte{1}), Who: "eve"}
	if got, deadline, ok := hold.Of("k", h.Part(), 99); !ok || got != h || deadline != 99 {
		t.Errorf("%+v, %d, %t", got, deadline, ok)
	}
	if got, deadline, ok := hold.Of("k", h.Due(99), 7); !ok || got != h || deadline != 99 {
		t.Errorf("%+v, %d, %t", got, deadline, ok)
	}
	if _, _, ok := hold.Of("k", store.PartFields{Kind: store.PartHold, Name: "short"}.Part(), 1); ok {
		t.Error("a short name")
	}
}

func TestHint(t *testing.T) {
	f := func(c store.Cell, deadline, at int64, key string) {
		t.Helper()
		h := hold.HintOf(c, deadline)
		if h.At != at || h.Key != key || h.Namespace != c.Namespace || h.Prefix != (key != c.Key) {
			t.Errorf("%+v", h)
		}
		p, n := h.Part()
		if err := store.CheckPart(hold.Lanes(1)[0], p); err != nil {
			t.Error(err)
		}
		if back, ok := hold.HintIn(p, n); !ok || back != h {
			t.Errorf("%+v, %t", back, ok)
		}
		if lane := h.Lane(4); lane < 0 || lane > 3 {
			t.Errorf("lane %d", lane)
		}
	}
	f(store.Cell{Namespace: "ns", Key: "a/b"}, 1, 250_000, "a/b")
	f(store.Cell{Namespace: "ns", Key: "a"}, 250_000, 250_000, "a")
	f(store.Cell{Namespace: "ns", Key: "a"}, 250_001, 500_000, "a")
	long := strings.Repeat("k", 600)[:252]
	f(store.Cell{Namespace: "ns", Key: long}, 1, 250_000, long)
	f(store.Cell{Namespace: "ns", Key: long + "x"}, 1, 250_000, long)
	f(store.Cell{Namespace: "ns", Key: long[:251] + "é"}, 1, 250_000, long[:251])
	if len(hold.Lanes(1)) != 1 || len(hold.Lanes(64)) != 4 {
		t.Error("lanes")
	}
}

func TestCheckTTL(t *testing.T) {
	f := func(ttl, longest time.Duration, ok bool) {
		t.Helper()
		if err := hold.CheckTTL(ttl, longest); (err == nil) != ok {
			t.Errorf("%s of %s: %v", ttl, longest, err)
		}
	}
	f(0, 0, false)
	f(time.Microsecond, 0, false)
	f(time.Millisecond, 0, true)
	f(hold.LongestTTL, 0, true)
	f(hold.LongestTTL+1, 0, false)
	f(time.Minute, time.Second, false)
}
