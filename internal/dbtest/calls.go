package dbtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/quipudb/quipu"
)

// A method is one of a DB with arguments that are as they should be.
type method struct {
	name string
	do   func(ctx context.Context) error
}

// calls returns a call of each method of db but Close. Writes are of key "w",
// which they change.
func calls(k *kit, db DB) []method {
	k.Helper()
	return []method{
		{"Add", func(ctx context.Context) error { _, err := db.Add(ctx, "w", 1); return err }},
		{"Add with a token", func(ctx context.Context) error { _, err := db.Add(ctx, "w", 1, quipu.Token("t")); return err }},
		{"AddBatch", func(ctx context.Context) error {
			_, err := db.AddBatch(ctx, []quipu.Event{{Key: "w", Delta: 1}})
			return err
		}},
		{"Set", func(ctx context.Context) error { _, err := db.Set(ctx, "w", 1); return err }},
		{"Reset", func(ctx context.Context) error { _, err := db.Reset(ctx, "w"); return err }},
		{"Delete", func(ctx context.Context) error { _, err := db.Delete(ctx, "w"); return err }},
		{"Read", func(ctx context.Context) error { _, err := db.Read(ctx, "w"); return err }},
		{"ReadBatch", func(ctx context.Context) error { _, err := db.ReadBatch(ctx, []string{"w"}); return err }},
		{"List", func(ctx context.Context) error { _, err := db.List(ctx, "", quipu.ListOptions{}); return err }},
		{"Sum", func(ctx context.Context) error { _, err := db.Sum(ctx, "", ""); return err }},
		{"Lookup", func(ctx context.Context) error { _, err := db.Lookup(ctx, "w", "t"); return err }},
		{"Settle", func(ctx context.Context) error { _, err := db.Settle(ctx, "w", "settled"); return err }},
	}
}

// cancels are the laws of calls that are given up.
func cancels(s *suite) {
	s.law("a call given up before it began changes nothing", func(k *kit) {
		was := k.set("w", 7)
		ctx, cancel := context.WithCancel(k.ctx)
		cancel()
		for _, c := range calls(k, k.db) {
			if err := c.do(ctx); !errors.Is(err, context.Canceled) {
				k.Fatalf("%s: %v, want %v", c.name, err, context.Canceled)
			}
		}
		if c := k.read("w"); c.Value != 7 || c.Version != was.Version {
			k.Fatalf("the counter changed to %+v", c)
		}
		for _, token := range []string{"t", "settled"} {
			if f := k.lookup("w", token); f.State != quipu.TokenUnknown {
				k.Fatalf("token %q is %v", token, f.State)
			}
		}
	})

	s.law("settle tells what became of a call given up under way", func(k *kit) {
		const tries = 100
		applied := int64(0)
		for i := range tries {
			token := fmt.Sprint("t", i)
			ctx, cancel := context.WithTimeout(k.ctx, time.Duration(rand.IntN(200))*time.Microsecond)
			_, err := k.db.Add(ctx, "a", 1, quipu.Token(token))
			cancel()
			fate := k.settle("a", token)
			switch {
			case fate.State == quipu.TokenApplied:
				applied++
				if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, quipu.ErrUnknown) {
					k.Fatalf("the call said that nothing changed (%v), and was applied", err)
				}
			case fate.State != quipu.TokenSettled || err == nil:
				k.Fatalf("the call returned %v, and settle says %v", err, fate.State)
			}
			switch r, err := k.db.Add(k.ctx, "a", 1, quipu.Token(token)); {
			case err == nil && k.replayed(r) && fate.State == quipu.TokenApplied:
			case errors.Is(err, quipu.ErrSettled) && fate.State == quipu.TokenSettled:
			default:
				k.Fatalf("settle says %v, and then the write says %+v, %v", fate.State, r, err)
			}
		}
		k.add("a", 0)
		k.holds("a", applied)
	})
}

// closes are the laws of the end.
func closes(s *suite) {
	s.law("after Close every call of every view says so", func(k *kit) {
		k.add("w", 1)
		other := k.in("other")
		if err := k.db.Close(); err != nil {
			k.Fatalf("Close: %v", err)
		}
		for _, db := range []DB{k.db, other, k.in("another")} {
			for _, c := range calls(k, db) {
				if err := c.do(k.ctx); !errors.Is(err, quipu.ErrClosed) {
					k.Fatalf("%s: %v, want %v", c.name, err, quipu.ErrClosed)
				}
			}
			if err := db.Close(); err != nil {
				k.Fatalf("a second Close: %v", err)
			}
		}
	})

	s.law("Close lets the calls under way finish or refuses them", func(k *kit) {
		k.parallel(5, func(w int) error {
			if w == 0 {
				return k.db.Close()
			}
			for {
				switch _, err := k.db.Add(k.ctx, "a", 1); {
				case errors.Is(err, quipu.ErrClosed):
					return nil
				case err != nil:
					return err
				}
			}
		})
	})
}
