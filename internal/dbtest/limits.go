package dbtest

import (
	"fmt"
	"strings"

	"github.com/quipudb/quipu"
)

// limits are the laws of what is refused for its size or number.
func limits(s *suite) {
	s.law("keys are 1 to 512 bytes of UTF-8", func(k *kit) {
		longest := strings.Repeat("é", 256)
		k.add(longest, 1)
		k.holds(longest, 1)
		for key, want := range map[string]error{
			"": quipu.ErrInvalid, "a\xffb": quipu.ErrInvalid, longest + "x": quipu.ErrTooLarge,
		} {
			_, err := k.db.Add(k.ctx, key, 1)
			k.fails(err, want)
			_, err = k.db.Set(k.ctx, key, 1)
			k.fails(err, want)
			_, err = k.db.Reset(k.ctx, key)
			k.fails(err, want)
			_, err = k.db.Delete(k.ctx, key)
			k.fails(err, want)
			_, err = k.db.Read(k.ctx, key)
			k.fails(err, want)
			_, err = k.db.ReadBatch(k.ctx, []string{"a", key})
			k.fails(err, want)
			_, err = k.db.Lookup(k.ctx, key, "t")
			k.fails(err, want)
			_, err = k.db.Settle(k.ctx, key, "t")
			k.fails(err, want)
		}
	})

	s.law("tokens are 1 to 255 bytes of UTF-8", func(k *kit) {
		longest := strings.Repeat("t", 255)
		first := k.first("a", longest)
		k.repeats(k.add("a", 1, quipu.Token(longest)), first)
		for token, want := range map[string]error{
			"": quipu.ErrInvalid, "a\xffb": quipu.ErrInvalid, longest + "x": quipu.ErrTooLarge,
		} {
			_, err := k.db.Add(k.ctx, "a", 1, quipu.Token(token))
			k.fails(err, want)
			if !k.door.AddsOnce {
				_, err = k.db.Delete(k.ctx, "a", quipu.Token(token))
				k.fails(err, want)
			}
			_, err = k.db.Lookup(k.ctx, "a", token)
			k.fails(err, want)
			_, err = k.db.Settle(k.ctx, "a", token)
			k.fails(err, want)
		}
		k.holds("a", 1)
	})

	s.law("who is at most 255 bytes of UTF-8", func(k *kit) {
		k.add("a", 1, quipu.Who(strings.Repeat("w", 255)))
		k.add("a", 1, quipu.Who(""))
		_, err := k.db.Add(k.ctx, "a", 1, quipu.Who(strings.Repeat("w", 256)))
		k.fails(err, quipu.ErrTooLarge)
		_, err = k.db.Add(k.ctx, "a", 1, quipu.Who("\xff"))
		k.fails(err, quipu.ErrInvalid)
		k.holds("a", 2)
	})

	s.law("a batch of reads has a limit", func(k *kit) {
		keys := make([]string, quipu.KeysMax+1)
		for i := range keys {
			keys[i] = fmt.Sprint("k", i)
		}
		_, err := k.db.ReadBatch(k.ctx, keys)
		k.fails(err, quipu.ErrTooLarge)
		if counts, err := k.db.ReadBatch(k.ctx, keys[1:]); err != nil || len(counts) != quipu.KeysMax {
			k.Fatalf("ReadBatch of %d keys: %d counts, %v", quipu.KeysMax, len(counts), err)
		}
	})

	small := quipu.Options{Limits: quipu.Limits{KeysMax: 3, TokensMax: 2}}
	s.lawOf("a namespace that is full refuses new keys and keeps the old", small, func(k *kit) {
		for i := range 3 {
			k.add(fmt.Sprint("k", i), 1)
		}
		_, err := k.db.Add(k.ctx, "new", 1)
		k.fails(err, quipu.ErrFull)
		_, err = k.db.Set(k.ctx, "new", 1, quipu.WantValue())
		k.fails(err, quipu.ErrFull)
		rs := k.addBatch(quipu.Event{Key: "k0", Delta: 1}, quipu.Event{Key: "new", Delta: 1}, quipu.Event{Key: "k1", Delta: 1})
		k.fails(rs[1].Err, quipu.ErrFull)
		k.absent("new")
		k.holds("k0", 2)
		k.holds("k1", 2)
		k.with(k.tb, "other").add("new", 1)
	})

	s.lawOf("a namespace that is full of tokens refuses new ones and keeps the old", small, func(k *kit) {
		first := k.first("a", "t0")
		k.add("a", 1, quipu.Token("t1"))
		_, err := k.db.Add(k.ctx, "a", 1, quipu.Token("t2"))
		k.fails(err, quipu.ErrFull)
		_, err = k.db.Settle(k.ctx, "a", "t3")
		k.fails(err, quipu.ErrFull)
		k.repeats(k.add("a", 1, quipu.Token("t0")), first)
		k.add("a", 1)
		k.holds("a", 3)
		k.with(k.tb, "other").add("a", 1, quipu.Token("t2"))
	})
}

// first adds one under a token that must be new.
func (k *kit) first(key, token string) quipu.Receipt {
	k.Helper()
	r := k.add(key, 1, quipu.Token(token))
	if r.Replayed {
		k.Fatalf("token %q is new, its receipt %+v", token, r)
	}
	return r
}
