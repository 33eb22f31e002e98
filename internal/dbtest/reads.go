package dbtest

import (
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/store"
)

// reads are the laws of what an answer says about itself.
func reads(s *suite) {
	s.law("a count says what it is", func(k *kit) {
		for i, value := range []int64{0, 1, -1, 1 << 53, 1<<53 + 1, math.MaxInt64, math.MinInt64} {
			key := string(rune('a' + i))
			k.set(key, value)
			start := time.Now()
			c := k.read(key)
			k.sound(c, start)
			exact := k.read(key, quipu.Exact())
			k.sound(exact, start)
			if !exact.Exact || exact.Value != value || !exact.Exists || exact.Source != "store" {
				k.Fatalf("exact read of %d returned %+v", value, exact)
			}
		}
		start := time.Now()
		k.sound(k.read("never"), start)
		k.sound(k.read("never", quipu.Exact()), start)
	})

	s.law("every need is met, alone and together", func(k *kit) {
		k.add("a", 3)
		r := k.add("a", 4)
		needs := []quipu.ReadOption{
			quipu.Exact(), quipu.Session(r.Session()), quipu.MaxStaleness(time.Second), quipu.MaxError(1),
		}
		start := time.Now()
		for _, n := range needs {
			k.sound(k.read("a", n), start)
		}
		if c := k.read("a", quipu.Session(r.Session())); c.Value != 7 {
			k.Fatalf("a session read does not see its own write: %+v", c)
		}
		if c := k.read("a", quipu.MaxStaleness(0)); c.Staleness != 0 || c.Value != 7 {
			k.Fatalf("a read that may not be stale returned %+v", c)
		}
		if c := k.read("a", quipu.MaxError(0)); !c.Bounded || c.Lower != 7 || c.Upper != 7 {
			k.Fatalf("a read that may not err returned %+v", c)
		}
		for range needs {
			needs = append(needs[1:], needs[0])
			c := k.read("a", needs...)
			k.sound(c, start)
			if !c.Exact || c.Value != 7 {
				k.Fatalf("a read with all needs returned %+v", c)
			}
		}
	})

	s.law("a session sees sets and deletes too", func(k *kit) {
		k.add("a", 3)
		if c := k.read("a", quipu.Session(k.set("a", 9).Session())); c.Value != 9 {
			k.Fatalf("a session read after a set returned %+v", c)
		}
		if c := k.read("a", quipu.Session(k.delete("a").Session())); c.Exists {
			k.Fatalf("a session read after a delete returned %+v", c)
		}
	})

	s.law("a session is not lost with what was deleted or written over", func(k *kit) {
		sessions := []quipu.ReadOption{quipu.Session(k.add("a", 3).Session())}
		for _, write := range []func() quipu.Receipt{
			func() quipu.Receipt { return k.add("a", 1, quipu.WantValue()) },
			func() quipu.Receipt { return k.delete("a") },
			func() quipu.Receipt { return k.delete("a") },
			func() quipu.Receipt { return k.set("a", 9) },
			func() quipu.Receipt { return k.reset("a") },
			func() quipu.Receipt { return k.delete("a") },
		} {
			sessions = append(sessions, quipu.Session(write().Session()))
			k.read("a", sessions...)
			if _, err := k.db.ReadBatch(k.ctx, []string{"b", "a"}, sessions...); err != nil {
				k.Fatalf("ReadBatch with sessions: %v", err)
			}
		}
	})

	s.law("a session of what the store does not have is lost, and says what to do", func(k *kit) {
		here := quipu.Session(k.add("other", 1).Session())
		gone := quipu.Session(quipu.Receipt{Namespace: "default", Key: "a", Version: k.add("a", 1).Version + 1<<40}.Session())
		for range 2 {
			if _, err := k.db.Read(k.ctx, "a", gone); !errors.Is(err, quipu.ErrSessionLost) || !strings.Contains(err.Error(), "read again without it") {
				k.Fatalf("a read with a session that is lost: %v", err)
			}
			if _, err := k.db.ReadBatch(k.ctx, []string{"other", "a"}, here, gone); !errors.Is(err, quipu.ErrSessionLost) {
				k.Fatalf("a read of several with a session that is lost: %v", err)
			}
			k.read("other", here, gone)
			k.read("a")
			k.delete("a") // That it is not there is no answer to the session.
		}
	})

	s.law("a need that is none is refused", func(k *kit) {
		for name, bad := range map[string]quipu.ReadOption{
			"empty session":      quipu.Session(""),
			"made-up session":    quipu.Session("yesterday, about noon"),
			"half a session":     quipu.Session(k.add("a", 1).Session()[:1]),
			"negative staleness": quipu.MaxStaleness(-1),
			"negative error":     quipu.MaxError(-1),
			"no option":          {},
		} {
			if _, err := k.db.Read(k.ctx, "a", bad); store.KindOf(err) != quipu.ErrInvalid.Kind {
				k.Fatalf("read with %s: %v, want it invalid", name, err)
			}
			if _, err := k.db.ReadBatch(k.ctx, []string{"a"}, bad); store.KindOf(err) != quipu.ErrInvalid.Kind {
				k.Fatalf("batch read with %s: %v, want it invalid", name, err)
			}
		}
	})

	s.law("a batch of reads answers in the order of its keys", func(k *kit) {
		k.add("a", 1)
		k.add("b", 2)
		keys := []string{"b", "never", "a", "b"}
		start := time.Now()
		counts, err := k.db.ReadBatch(k.ctx, keys, quipu.Exact())
		if err != nil {
			k.Fatalf("ReadBatch: %v", err)
		}
		var got []string
		for _, c := range counts {
			k.sound(c, start)
			single := k.read(c.Key, quipu.Exact())
			single.AsOf = c.AsOf
			if c != single {
				k.Fatalf("in a batch %+v, by itself %+v", c, single)
			}
			got = append(got, c.Key)
		}
		if !slices.Equal(got, keys) {
			k.Fatalf("asked for %q, got %q", keys, got)
		}
		none, err := k.db.ReadBatch(k.ctx, nil)
		if err != nil || len(none) != 0 {
			k.Fatalf("read of no keys: %v, %v", none, err)
		}
		_, err = k.db.ReadBatch(k.ctx, []string{"a", ""})
		k.fails(err, quipu.ErrInvalid)
	})

	s.law("a reader never sees a count go back", func(k *kit) {
		const adds = 200
		k.add("a", 0)
		k.parallel(3, func(i int) error {
			if i == 0 {
				for range adds {
					if _, err := k.db.Add(k.ctx, "a", 1); err != nil {
						return err
					}
				}
				return nil
			}
			last := quipu.Count{}
			for range adds {
				c, err := k.db.Read(k.ctx, "a", quipu.Exact())
				if err != nil {
					return err
				}
				if c.Value < last.Value || c.Version < last.Version {
					k.t.Errorf("read %+v after %+v", c, last)
					return nil
				}
				last = c
			}
			return nil
		})
	})
}

// sound checks what is true of every count that was read since start.
func (k *kit) sound(c quipu.Count, start time.Time) {
	k.Helper()
	const rounding = time.Millisecond // of times on a wire
	now := time.Now()
	switch {
	case c.Bounded && (c.Lower > c.Value || c.Upper < c.Value):
		k.Fatalf("the value is not between its bounds: %+v", c)
	case c.Exact && (!c.Bounded || c.Lower != c.Upper || !c.Complete || c.Staleness != 0):
		k.Fatalf("exact, yet not proved: %+v", c)
	case !c.Exists && c.Version != 0, c.Exists && c.Version == 0:
		k.Fatalf("the version and the existence differ: %+v", c)
	case c.Source == "" || c.Shards < 1:
		k.Fatalf("the count does not say where it is from: %+v", c)
	case c.Staleness < 0 || c.AsOf.Before(start.Add(-rounding-c.Staleness)) || c.AsOf.After(now.Add(rounding)):
		k.Fatalf("read between %v and %v, yet the count says %+v", start, now, c)
	}
}
