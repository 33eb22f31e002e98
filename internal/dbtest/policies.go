package dbtest

import "github.com/quipudb/quipu"

// policies are the laws of what a policy changes.
func policies(s *suite) {
	o := quipu.Options{Policies: []quipu.Policy{
		{Pattern: "views:home", Durability: quipu.Written},
		{Pattern: "views:*", Durability: quipu.Memory},
		{Namespace: "fast", Pattern: "*", Durability: quipu.Memory},
		{Pattern: "stock:*"},
	}}
	s.lawOf("a receipt says how durable the write is", o, func(k *kit) {
		fast := k.with(k.tb, "fast")
		// Without a policy a write gets the strongest the store has. With one,
		// it gets that or, if the policy asks for less, at least what it asks.
		strongest := k.add("likes", 1).Durability
		f := func(k *kit, key string, asked quipu.Durability) {
			k.Helper()
			least := min(asked, strongest)
			for _, r := range []quipu.Receipt{
				k.add(key, 1),
				k.add(key, 1, quipu.WantValue(), quipu.Token("t")),
				k.add(key, 1, quipu.WantValue(), quipu.Token("t")),
				k.addBatch(quipu.Event{Key: "likes", Delta: 1}, quipu.Event{Key: key, Delta: 1})[1],
				k.set(key, 1),
				k.reset(key),
				k.delete(key),
				k.lookup(key, "t").Receipt,
			} {
				if r.Durability < least || r.Durability > strongest {
					k.Fatalf("%q is %v, want at least %v and at most %v", key, r.Durability, least, strongest)
				}
			}
		}
		f(k, "likes", quipu.Synced)
		f(k, "stock:1", quipu.Synced)
		f(k, "views:", quipu.Memory)
		f(k, "views:1", quipu.Memory)
		f(k, "views:home", quipu.Written)
		f(k, "views", quipu.Synced)
		f(k, "views:home2", quipu.Memory)
		f(fast, "anything", quipu.Memory)
		f(fast, "views:home", quipu.Written)
	})

	s.lawOf("a policy changes no answer", o, func(k *kit) {
		keys := []string{"likes", "views:1", "views:home", "stock:1"}
		var events []quipu.Event
		for i := range 80 {
			events = append(events, quipu.Event{Key: keys[i%4], Delta: 1, WantValue: true})
		}
		for i, r := range k.addBatch(events...) {
			k.moved(r, int64(i/4), int64(i/4+1))
		}
		for _, key := range keys {
			k.holds(key, 20)
		}
	})
}
