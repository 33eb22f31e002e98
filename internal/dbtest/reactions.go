package dbtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"pgregory.net/rapid"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
)

// A Reactor is what the laws of reactions call: each DB under test is one.
type Reactor interface {
	React(ctx context.Context, key, user, choice string, opts ...quipu.WriteOption) (quipu.Reaction, error)
	Unreact(ctx context.Context, key, user string, opts ...quipu.WriteOption) (quipu.Reaction, error)
	Choice(ctx context.Context, user string, keys ...string) ([]string, error)
	Reactions(ctx context.Context, key string) (quipu.Reactions, error)
	Members(ctx context.Context, key string, o quipu.MembersOptions) (quipu.MembersPage, error)
}

// reactor returns the DB as one that takes reactions.
func (k *kit) reactor() Reactor {
	k.Helper()
	r, ok := k.db.(Reactor)
	if !ok {
		k.Fatalf("%T takes no reactions", k.db)
	}
	return r
}

var posts = definition.Definition{Pattern: "post:*", Choices: []string{"like", "dislike", "wow"}}

// reacts has a user choose, or choose nothing, and checks what was there before.
func (k *kit) reacts(key, user, choice, before string, opts ...quipu.WriteOption) quipu.Reaction {
	k.Helper()
	var r quipu.Reaction
	var err error
	if choice == "" {
		r, err = k.reactor().Unreact(k.ctx, key, user, opts...)
	} else {
		r, err = k.reactor().React(k.ctx, key, user, choice, opts...)
	}
	if err != nil {
		k.Fatalf("%s of %s chooses %q: %v", user, key, choice, err)
	}
	if k.door.Terse {
		r.Before = before
	}
	if r.Key != key || r.User != user || r.Choice != choice || r.Before != before || r.Changed != (before != choice) {
		k.Fatalf("%s of %s chooses %q, and had %q: %+v", user, key, choice, before, r)
	}
	return r
}

// counted checks the counts of a counter: "like=2 dislike=1"; those that are 0 may be left
// out. The counter itself is their sum.
func (k *kit) counted(key, want string) {
	k.Helper()
	r, err := k.reactor().Reactions(k.ctx, key)
	if err != nil || r.Key != key {
		k.Fatalf("Reactions of %q: %+v, %v", key, r, err)
	}
	if got := countsText(r.Counts); got != want {
		k.Fatalf("%q has %q, want %q", key, got, want)
	}
	sum := int64(0)
	for _, c := range r.Counts {
		sum += c.Users
	}
	if c := k.read(key, quipu.Exact()); r.Users != sum || c.Value != sum {
		k.Fatalf("%q is %d, and %d users have a choice: %+v", key, c.Value, r.Users, r)
	}
}

func countsText(counts []quipu.ChoiceCount) string {
	var words []string
	for _, c := range counts {
		if c.Users != 0 {
			words = append(words, fmt.Sprintf("%s=%d", c.Choice, c.Users))
		}
	}
	return strings.Join(words, " ")
}

// members returns all users of a counter, page by page.
func (k *kit) members(key, choice string, limit int) (all []string) {
	k.Helper()
	o := quipu.MembersOptions{Choice: choice, Limit: limit}
	for {
		page, err := k.reactor().Members(k.ctx, key, o)
		if err != nil || len(page.Members) > limit {
			k.Fatalf("Members(%q, %+v): %+v, %v", key, o, page, err)
		}
		for _, m := range page.Members {
			all = append(all, m.User+"="+m.Choice)
		}
		if o.Cursor = page.Next; o.Cursor == "" {
			return all
		}
	}
}

// reactions are the laws of what each user has one of.
func reactions(s *suite) {
	reactionsOver(s, 0)
	onces(s)
}

// shardedReactions are the same laws of counters whose users are laid over several shards, and those
// of the shards.
func shardedReactions(s *suite) {
	const shards = 5
	reactionsOver(s, shards)
	seats(s, shards)
}

// reactionsOver are the laws of counters whose users are in so many shards; 0 is one.
func reactionsOver(s *suite, shards int) {
	posts := posts
	posts.Shards = shards

	s.law("a user has one choice, and switching moves both counts", func(k *kit) {
		k.define(posts)
		k.counted("post:1", "")
		k.reacts("post:1", "ana", "like", "")
		k.reacts("post:1", "bob", "like", "")
		k.counted("post:1", "like=2")
		k.reacts("post:1", "ana", "dislike", "like")
		k.counted("post:1", "like=1 dislike=1")
		k.reacts("post:1", "ana", "", "dislike")
		k.counted("post:1", "like=1")
		k.reacts("post:1", "ana", "like", "") // the same as at first, and counted
		k.counted("post:1", "like=2")
		k.counted("post:2", "")
	})

	s.law("a reaction that is there already changes nothing, and says so", func(k *kit) {
		k.define(posts)
		first := k.reacts("post:1", "ana", "wow", "")
		before := k.read("post:1", quipu.Exact())
		again := k.reacts("post:1", "ana", "wow", "wow")
		if again.Version != 0 || again.Session() != "" || first.Session() == "" && !k.door.Terse {
			k.Fatalf("first %+v, again %+v", first, again)
		}
		k.reacts("post:1", "bob", "", "")
		if after := k.read("post:1", quipu.Exact()); after.Version != before.Version {
			k.Fatalf("from %+v to %+v", before, after)
		}
		k.counted("post:1", "wow=1")
	})

	s.law("a reaction tells the counts that it has made", func(k *kit) {
		k.define(posts)
		k.reacts("post:1", "ana", "like", "")
		r := k.reacts("post:1", "bob", "wow", "", quipu.WantValue())
		if got := countsText(r.Counts); got != "like=1 wow=1" || len(r.Counts) != 3 {
			k.Fatalf("counts %+v", r.Counts)
		}
		if r := k.reacts("post:1", "bob", "", "wow"); len(r.Counts) != 0 {
			k.Fatalf("counts that nobody asked for: %+v", r)
		}
		if c := k.read("post:1", quipu.Session(r.Session())); c.Value < 1 {
			k.Fatalf("a session read %+v", c)
		}
	})

	s.law("a repeat of a reaction returns what the first did, and counts nothing", func(k *kit) {
		k.define(posts)
		same := func(r, first quipu.Reaction) {
			k.Helper()
			if !r.Replayed && !k.door.Unreplayed {
				k.Fatalf("%+v is no repeat", r)
			}
			if r.Replayed = false; fmt.Sprint(r) != fmt.Sprint(first) {
				k.Fatalf("the repeat is %+v, the first %+v", r, first)
			}
		}
		first := k.reacts("post:1", "ana", "like", "", quipu.Token("t"))
		same(k.reacts("post:1", "ana", "like", "", quipu.Token("t")), first)
		off := k.reacts("post:1", "ana", "", "like", quipu.Token("u"))
		same(k.reacts("post:1", "ana", "like", "", quipu.Token("t")), first)
		k.counted("post:1", "")
		k.reacts("post:1", "ana", "like", "", quipu.Token("v"))
		same(k.reacts("post:1", "ana", "", "like", quipu.Token("u")), off)
		k.counted("post:1", "like=1")
		k.reacts("post:1", "ana", "like", "like", quipu.Token("w")) // it did nothing
		k.reacts("post:1", "ana", "", "like")
		k.reacts("post:1", "ana", "like", "like", quipu.Token("w")) // nor does its repeat
		k.counted("post:1", "")
		others := []struct{ user, choice string }{{"ana", "wow"}, {"bob", "like"}}
		if shards > 1 { // Each shard has tokens of its own: one names a write of a user.
			others = others[:1]
		}
		for _, other := range others {
			_, err := k.reactor().React(k.ctx, "post:1", other.user, other.choice, quipu.Token("t"))
			k.fails(err, quipu.ErrToken)
		}
		_, err := k.reactor().Unreact(k.ctx, "post:1", "ana", quipu.Token("t"))
		k.fails(err, quipu.ErrToken)
		if !k.door.AddsOnce && shards < 2 {
			_, err = k.db.Reset(k.ctx, "post:1", quipu.Token("t"))
			k.fails(err, quipu.ErrToken)
		}
		k.counted("post:1", "")
	})

	s.law("a lookup of a reaction names what was chosen", func(k *kit) {
		k.define(posts)
		k.reacts("post:1", "bob", "like", "")
		k.reacts("post:1", "ana", "like", "", quipu.Token("a"))
		k.reacts("post:1", "ana", "wow", "like", quipu.Token("b"))
		k.reacts("post:1", "ana", "", "wow", quipu.Token("c"))
		looks := func(token, choice, before string, reacted bool) {
			k.Helper()
			f, err := k.db.Lookup(k.ctx, "post:1", token)
			k.fails(err, nil)
			if f.State != quipu.TokenApplied || f.Reacted != reacted || f.Choice != choice || f.Before != before || reacted && f.Receipt.HasValue {
				k.Fatalf("token %s is %+v, want %q after %q", token, f, choice, before)
			}
		}
		looks("a", "like", "", true)
		looks("b", "wow", "like", true)
		looks("c", "", "wow", true)
		if !k.door.AddsOnce {
			_, err := k.db.Reset(k.ctx, "post:1", quipu.Token("d"), quipu.WantValue())
			k.fails(err, nil)
			looks("d", "", "", false)
			k.reacts("post:1", "ana", "like", "")
			_, err = k.db.Delete(k.ctx, "post:1", quipu.Token("e"), quipu.WantValue())
			k.fails(err, nil)
			looks("e", "", "", false)
		}
	})

	s.law("reset and delete take all reactions away, and old ones do not come back", func(k *kit) {
		k.define(posts)
		for _, end := range []func(){func() { k.reset("post:1") }, func() { k.delete("post:1") }} {
			k.reacts("post:1", "ana", "like", "")
			k.reacts("post:1", "bob", "wow", "")
			end()
			k.counted("post:1", "")
			if all := k.members("post:1", "", 9); len(all) != 0 {
				k.Fatalf("members %q", all)
			}
			k.reacts("post:1", "ana", "", "")
			k.reacts("post:1", "ana", "dislike", "")
			k.counted("post:1", "dislike=1")
			k.reacts("post:1", "ana", "", "dislike")
		}
	})

	s.law("a counter of reactions is changed by nothing else", func(k *kit) {
		k.define(posts)
		k.reacts("post:1", "ana", "like", "")
		_, err := k.db.Add(k.ctx, "post:1", 1)
		k.fails(err, quipu.ErrInvalid)
		_, err = k.db.Set(k.ctx, "post:1", 7)
		k.fails(err, quipu.ErrInvalid)
		if r := k.addBatch(quipu.Event{Key: "post:1", Delta: 1}, quipu.Event{Key: "other", Delta: 1}); !errors.Is(r[0].Err, quipu.ErrInvalid) || r[1].Err != nil {
			k.Fatalf("%+v", r)
		}
		k.counted("post:1", "like=1")
	})

	s.law("what one user has chosen of many counters is told at once", func(k *kit) {
		k.define(posts)
		k.reacts("post:1", "ana", "like", "")
		k.reacts("post:3", "ana", "wow", "")
		k.reacts("post:2", "bob", "wow", "")
		k.reset("post:2")
		got, err := k.reactor().Choice(k.ctx, "ana", "post:3", "post:2", "post:1", "none", "post:3")
		if err != nil || !slices.Equal(got, []string{"wow", "", "like", "", "wow"}) {
			k.Fatalf("%q, %v", got, err)
		}
		if got, err = k.reactor().Choice(k.ctx, "bob", "post:2"); err != nil || got[0] != "" {
			k.Fatalf("%q, %v", got, err)
		}
	})

	s.law("users are listed page by page, each once", func(k *kit) {
		k.define(posts)
		var all, likes []string
		for i := range 25 {
			user, choice := fmt.Sprintf("u%02d", i), posts.Choices[i%2]
			k.reacts("post:1", user, choice, "")
			k.reacts("post:11", user, "wow", "")
			if all = append(all, user+"="+choice); choice == "like" {
				likes = append(likes, user+"="+choice)
			}
		}
		for _, limit := range []int{1, 4, 25, 100} {
			if got := k.members("post:1", "", limit); !slices.Equal(got, all) {
				k.Fatalf("in pages of %d: %q", limit, got)
			}
			if got := k.members("post:1", "like", limit); !slices.Equal(got, likes) {
				k.Fatalf("in pages of %d: %q", limit, got)
			}
		}
		page, err := k.reactor().Members(k.ctx, "post:1", quipu.MembersOptions{Limit: 2})
		k.succeeds(err)
		_, err = k.reactor().Members(k.ctx, "post:11", quipu.MembersOptions{Limit: 2, Cursor: page.Next})
		k.fails(err, quipu.ErrInvalid)
	})

	s.law("bad reactions are refused, and change nothing", func(k *kit) {
		k.define(posts)
		r := k.reactor()
		f := func(want error, key, user, choice string) {
			k.Helper()
			_, err := r.React(k.ctx, key, user, choice)
			k.fails(err, want)
		}
		f(quipu.ErrInvalid, "post:1", "ana", "love")
		f(quipu.ErrInvalid, "other", "ana", "like")
		f(quipu.ErrTooLarge, "post:1", strings.Repeat("x", 256), "like")
		f(quipu.ErrTooLarge, "post:"+strings.Repeat("x", 1024), "ana", "like")
		_, err := r.Unreact(k.ctx, "other", "ana")
		k.fails(err, quipu.ErrInvalid)
		_, err = r.Reactions(k.ctx, "other")
		k.fails(err, quipu.ErrInvalid)
		_, err = r.Members(k.ctx, "post:1", quipu.MembersOptions{Choice: "love"})
		k.fails(err, quipu.ErrInvalid)
		_, err = r.Members(k.ctx, "post:1", quipu.MembersOptions{Limit: quipu.MembersMax + 1})
		k.fails(err, quipu.ErrTooLarge)
		k.counted("post:1", "")
	})

	s.law("a later definition appends choices, and keeps what was chosen", func(k *kit) {
		k.define(posts)
		k.reacts("post:1", "ana", "like", "")
		more := posts
		more.Choices = append(slices.Clone(posts.Choices), "hm")
		k.define(more)
		k.reacts("post:1", "bob", "hm", "")
		k.reacts("post:1", "ana", "wow", "like")
		k.counted("post:1", "wow=1 hm=1")
		more.Choices = []string{"hm", "like"}
		_, err := k.db.Define(k.ctx, []definition.Definition{more}, quipu.DefineOptions{})
		k.fails(err, quipu.ErrInvalid)
	})

	s.law("users that react at once are counted once each", func(k *kit) {
		k.define(posts)
		k.parallel(8, func(i int) error {
			for n := range 40 {
				user, choice := fmt.Sprint("u", n%10), posts.Choices[(i+n)%2]
				var err error
				if (i+n)%5 == 0 {
					_, err = k.reactor().Unreact(k.ctx, "post:1", user)
				} else {
					_, err = k.reactor().React(k.ctx, "post:1", user, choice)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
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
		k.counted("post:1", strings.Join(words, " "))
	})

	s.lawOf("reactions are what a plain model makes of them", quipu.Options{Policies: []quipu.Policy{{Pattern: "*", Durability: quipu.Memory}}}, func(k *kit) {
		run := 0
		rapid.Check(k.t, func(t *rapid.T) {
			run++
			v := k.with(t, fmt.Sprint("reactions", run))
			v.define(posts)
			m := reacted{shards: shards}
			for range rapid.IntRange(5, 60).Draw(t, "steps") {
				m.step(t, v)
			}
			m.check(v)
		})
	})
}

// reacted is the plain model of reactions: by key and user what was chosen, and by key and
// token what was done first.
type reacted struct {
	shards  int
	choices map[[2]string]string
	tokens  map[[2]string]done
	exists  map[string]bool
	at      int
}

// done is what a token named.
type done struct{ user, choice, before string }

var (
	reactedKeys  = []string{"post:1", "post:2"}
	reactedUsers = []string{"ana", "bob", "cy", "di", "ed"}
)

// step does one thing, and checks what it says.
func (m *reacted) step(t *rapid.T, k *kit) {
	if m.choices == nil {
		m.choices, m.tokens, m.exists = map[[2]string]string{}, map[[2]string]done{}, map[string]bool{}
	}
	key := rapid.SampledFrom(reactedKeys).Draw(t, "key")
	if rapid.IntRange(0, 14).Draw(t, "end") == 0 {
		if rapid.Bool().Draw(t, "delete") {
			k.delete(key)
			m.exists[key] = false
		} else {
			k.reset(key)
			m.exists[key] = true
		}
		for at := range m.choices {
			if at[0] == key {
				delete(m.choices, at)
			}
		}
		return
	}
	user := rapid.SampledFrom(reactedUsers).Draw(t, "user")
	choice := rapid.SampledFrom(append([]string{""}, posts.Choices...)).Draw(t, "choice")
	at := [2]string{key, user}
	token := rapid.SampledFrom([]string{"", "", "t", "u", "v"}).Draw(t, "token")
	if token == "" {
		k.reacts(key, user, choice, m.choices[at])
		m.exists[key] = m.exists[key] || m.choices[at] != choice
		m.choices[at] = choice
		return
	}
	if m.shards > 1 { // Each shard has tokens of its own.
		token += user
	}
	name := [2]string{key, token}
	first, known := m.tokens[name]
	switch {
	case !known:
		m.tokens[name] = done{user, choice, m.choices[at]}
		k.reacts(key, user, choice, m.choices[at], quipu.Token(token))
		m.exists[key] = m.exists[key] || m.choices[at] != choice
		m.choices[at] = choice
	case first.user == user && first.choice == choice:
		k.reacts(key, user, choice, first.before, quipu.Token(token))
	default:
		var err error
		if choice == "" {
			_, err = k.reactor().Unreact(k.ctx, key, user, quipu.Token(token))
		} else {
			_, err = k.reactor().React(k.ctx, key, user, choice, quipu.Token(token))
		}
		k.fails(err, quipu.ErrToken)
	}
	if m.at++; m.at%16 == 0 {
		m.check(k)
	}
}

// check compares all that can be read.
func (m *reacted) check(k *kit) {
	k.Helper()
	for _, key := range reactedKeys {
		var words, all []string
		for _, choice := range posts.Choices {
			n := 0
			for _, user := range reactedUsers {
				if m.choices[[2]string{key, user}] == choice {
					n++
				}
			}
			if n > 0 {
				words = append(words, fmt.Sprintf("%s=%d", choice, n))
			}
		}
		k.counted(key, strings.Join(words, " "))
		for _, user := range reactedUsers {
			if choice := m.choices[[2]string{key, user}]; choice != "" {
				all = append(all, user+"="+choice)
			}
		}
		if c := k.read(key, quipu.Exact()); c.Exists != m.exists[key] {
			k.Fatalf("%q exists: %v, want %v", key, c.Exists, m.exists[key])
		}
		if got := k.members(key, "", 2); !slices.Equal(got, all) {
			k.Fatalf("%q has members %q, want %q", key, got, all)
		}
	}
	for _, user := range reactedUsers {
		got, err := k.reactor().Choice(k.ctx, user, reactedKeys...)
		for i, key := range reactedKeys {
			if err != nil || got[i] != m.choices[[2]string{key, user}] {
				k.Fatalf("%s has %q, %v", user, got, err)
			}
		}
	}
}

// onces are the laws of users that are counted once in a window.
func onces(s *suite) {
	hour, _ := definition.ParseWidth("1h")
	onceBy(s, definition.Once{Every: hour}, "")
	onceBy(s, definition.Once{Every: hour, Approximate: 1000}, ", approximately")
}

// onceBy are the laws of users that are counted once, by a definition.
func onceBy(s *suite, once definition.Once, how string) {
	views := definition.Definition{Pattern: "view:*", Once: once}

	s.law("a user is counted once in a window"+how, func(k *kit) {
		k.define(views)
		now := time.Now()
		first := k.add("view:1", 3, quipu.Who("ana"), quipu.At(now), quipu.WantValue())
		k.moved(first, 0, 3)
		again := k.add("view:1", 3, quipu.Who("ana"), quipu.At(now), quipu.WantValue())
		if !again.Duplicate || again.Applied != 0 || again.Replayed || first.Duplicate {
			k.Fatalf("the first %+v, again %+v", first, again)
		}
		if !s.door.Untold && (again.DuplicateError > 0 != (once.Approximate > 0) || again.DuplicateError > float64(once.Approximate)/1e6 || first.DuplicateError != 0) {
			k.Fatalf("the first %+v, again %+v", first, again)
		}
		k.moved(again, 3, 3)
		k.add("view:1", 1, quipu.Who("bob"), quipu.At(now))
		k.add("view:1", 1, quipu.Who("ana"), quipu.At(now.Add(-time.Hour)))
		k.add("view:2", 1, quipu.Who("ana"), quipu.At(now))
		k.holds("view:1", 5)
		k.holds("view:2", 1)
		rs := k.addBatch(quipu.Event{Key: "view:1", Delta: 1, Who: "cy", At: now}, quipu.Event{Key: "view:1", Delta: 1, Who: "cy", At: now}, quipu.Event{Key: "view:1", Delta: 1, Who: "ana", At: now})
		if rs[0].Duplicate || !rs[1].Duplicate || !rs[2].Duplicate || rs[0].Applied != 1 || rs[1].Applied != 0 {
			k.Fatalf("%+v", rs)
		}
		k.holds("view:1", 6)
	})

	s.law("a repeat under a token is told what the first was"+how, func(k *kit) {
		k.define(views)
		now := quipu.At(time.Now())
		k.add("view:1", 1, quipu.Who("ana"), now, quipu.Token("t"))
		if r := k.add("view:1", 1, quipu.Who("ana"), now, quipu.Token("t")); r.Duplicate || !k.replayed(r) || r.Applied != 1 {
			k.Fatalf("%+v", r)
		}
		k.add("view:1", 1, quipu.Who("ana"), now, quipu.Token("u"))
		if r := k.add("view:1", 1, quipu.Who("ana"), now, quipu.Token("u")); !r.Duplicate || !k.replayed(r) || r.Applied != 0 {
			k.Fatalf("%+v", r)
		}
		k.holds("view:1", 1)
	})

	s.law("what can't be counted once is refused"+how, func(k *kit) {
		k.define(views)
		_, err := k.db.Add(k.ctx, "view:1", 1)
		k.fails(err, quipu.ErrInvalid)
		_, err = k.db.Add(k.ctx, "view:1", 1, quipu.Who("ana"), quipu.At(time.Now().Add(-72*time.Hour)))
		k.fails(err, quipu.ErrInvalid)
		if c := k.read("view:1", quipu.Exact()); c.Value != 0 {
			k.Fatalf("%+v", c)
		}
	})

	s.law("users that come at once are counted once"+how, func(k *kit) {
		k.define(views)
		now := time.Now()
		var mu sync.Mutex
		counted := int64(0)
		k.parallel(8, func(int) error {
			for n := range 20 {
				r, err := k.db.Add(k.ctx, "view:1", 1, quipu.Who(fmt.Sprint("u", n)), quipu.At(now))
				if err != nil {
					return err
				}
				mu.Lock()
				counted += r.Applied
				mu.Unlock()
			}
			return nil
		})
		if counted != 20 {
			k.Fatalf("%d were told that they counted", counted)
		}
		k.holds("view:1", 20)
	})
}
