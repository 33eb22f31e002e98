package dbtest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
)

// seats are the laws of counters whose users are laid over several shards.
func seats(s *suite, shards int) {
	over := func(n int) definition.Definition {
		d := posts
		d.Shards = n
		return d
	}
	users := func(k *kit, key string, from, to int) {
		k.Helper()
		for i := from; i < to; i++ {
			k.reacts(key, fmt.Sprintf("u%02d", i), "like", "")
		}
	}

	s.law("a counter keeps the shards that it had when its first user reacted", func(k *kit) {
		k.define(posts)
		users(k, "post:1", 0, 8)
		k.define(over(shards))
		users(k, "post:2", 0, 8)
		k.define(over(shards + 2))
		users(k, "post:3", 0, 8)
		k.define(over(1))
		for i, key := range []string{"post:1", "post:2", "post:3"} {
			k.reacts(key, "u00", "like", "like")
			k.reacts(key, "u01", "", "like")
			users(k, key, 8, 16)
			k.counted(key, "like=15")
			want := []int{1, shards, shards + 2}[i]
			if c := k.read(key, quipu.Exact()); c.Shards != want && !k.door.Terse {
				k.Fatalf("%s has %d shards, want %d", key, c.Shards, want)
			}
		}
		k.delete("post:2")
		users(k, "post:2", 0, 4)
		if c := k.read("post:2", quipu.Exact()); c.Shards != shards && !k.door.Terse {
			k.Fatalf("after it was deleted it has %d shards", c.Shards)
		}
	})

	s.law("a definition with shards has choices and no bounds, and users in shards get none", func(k *kit) {
		zero := int64(0)
		bounded := over(1)
		bounded.Floor = &zero
		for _, bad := range []definition.Definition{
			over(definition.ShardsMax + 1), over(-1),
			{Pattern: "post:*", Shards: 2},
			{Pattern: "post:*", Choices: posts.Choices, Shards: 2, Floor: &zero},
		} {
			_, err := k.db.Define(k.ctx, []definition.Definition{bad}, quipu.DefineOptions{})
			k.fails(err, quipu.ErrInvalid)
		}
		k.define(over(shards))
		_, err := k.db.Define(k.ctx, []definition.Definition{bounded}, quipu.DefineOptions{})
		k.fails(err, quipu.ErrInvalid)
		k.define(over(1))
		_, err = k.db.Define(k.ctx, []definition.Definition{bounded}, quipu.DefineOptions{})
		k.fails(err, quipu.ErrInvalid)
	})

	s.law("a change of the number of shards says whom it concerns", func(k *kit) {
		k.define(over(shards))
		c, err := k.db.Define(k.ctx, []definition.Definition{over(shards + 1)}, quipu.DefineOptions{})
		k.succeeds(err)
		if text := strings.Join(c.Changes, "\n"); !strings.Contains(text, fmt.Sprintf("shards are %d, not %d: for counters that have no users yet", shards+1, shards)) {
			k.Fatalf("%q", text)
		}
	})

	s.law("lists, sums and reads of many see one counter", func(k *kit) {
		k.define(over(shards))
		users(k, "post:1", 0, 12)
		users(k, "post:2", 0, 7)
		page, err := k.db.List(k.ctx, "post:", quipu.ListOptions{})
		k.succeeds(err)
		var got []string
		for _, c := range page.Counts {
			got = append(got, fmt.Sprintf("%s=%d", c.Key, c.Value))
		}
		if !slices.Equal(got, []string{"post:1=12", "post:2=7"}) {
			k.Fatalf("%q", got)
		}
		if sum, err := k.db.Sum(k.ctx, "post:", ""); !errors.Is(err, quipu.ErrUnsupported) && (err != nil || sum.Value != 19 || sum.Keys != 2) {
			k.Fatalf("%+v, %v", sum, err)
		}
		k.delete("post:1")
		page, err = k.db.List(k.ctx, "post:", quipu.ListOptions{})
		if err != nil || len(page.Counts) != 1 || page.Counts[0].Key != "post:2" {
			k.Fatalf("%+v, %v", page, err)
		}
		counts, err := k.db.ReadBatch(k.ctx, []string{"post:2", "post:1", "other"}, quipu.Exact())
		if err != nil || counts[0].Value != 7 || counts[1].Exists || counts[2].Exists {
			k.Fatalf("%+v, %v", counts, err)
		}
	})

	s.law("tokens of all shards are looked up and settled", func(k *kit) {
		k.define(over(shards))
		for i := range 3 * shards {
			user, token := fmt.Sprint("u", i), fmt.Sprint("t", i)
			k.reacts("post:1", user, "like", "", quipu.Token(token))
			if f, err := k.db.Lookup(k.ctx, "post:1", token); err != nil || f.State != quipu.TokenApplied {
				k.Fatalf("%s: %+v, %v", token, f, err)
			}
			if f, err := k.db.Settle(k.ctx, "post:1", token); err != nil || f.State != quipu.TokenApplied {
				k.Fatalf("%s: %+v, %v", token, f, err)
			}
			late := fmt.Sprint("late", i)
			if f, err := k.db.Settle(k.ctx, "post:1", late); err != nil || f.State != quipu.TokenSettled {
				k.Fatalf("%s: %+v, %v", late, f, err)
			}
			if f, err := k.db.Lookup(k.ctx, "post:1", late); err != nil || f.State != quipu.TokenSettled {
				k.Fatalf("%s: %+v, %v", late, f, err)
			}
			_, err := k.reactor().Unreact(k.ctx, "post:1", user, quipu.Token(late))
			k.fails(err, quipu.ErrSettled)
		}
		k.counted("post:1", fmt.Sprint("like=", 3*shards))
	})

	s.law("users who react while it is reset are there or not, in all that is told of them", func(k *kit) {
		k.define(over(shards))
		var resets atomic.Int64
		k.parallel(6, func(i int) error {
			for n := range 30 {
				var err error
				switch {
				case i == 0 && n%6 == 0:
					_, err = k.db.Reset(k.ctx, "post:1")
					resets.Add(1)
				case i == 0 && n%6 == 3:
					_, err = k.db.Delete(k.ctx, "post:1")
				default:
					_, err = k.reactor().React(k.ctx, "post:1", fmt.Sprint("u", i, "-", n), posts.Choices[n%2])
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
		k.reacts("post:1", "after", "wow", "") // It is lost by no reset that has ended.
		want := map[string]int{}
		for _, m := range k.members("post:1", "", 100) {
			_, choice, _ := strings.Cut(m, "=")
			want[choice]++
		}
		var words []string
		for _, choice := range posts.Choices {
			if want[choice] != 0 {
				words = append(words, fmt.Sprintf("%s=%d", choice, want[choice]))
			}
		}
		if k.counted("post:1", strings.Join(words, " ")); want["wow"] != 1 || resets.Load() == 0 {
			k.Fatalf("%v", want)
		}
	})
}
