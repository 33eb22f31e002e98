package storetest

import (
	"fmt"
	"time"

	"github.com/quipudb/quipu/store"
)

// audits are the laws of stores that can check themselves.
func audits(s *suite) {
	s.law("a store that was used is clean", func(k *kit) {
		cs, w := k.apart(), k.enlist()
		for i, c := range cs {
			n := int64(1) << (i % 63)
			k.reply(k.numbered(w, 0, 1, add(c, n), set(c, -n), add(c, 7), once(add(c, 1), "t")))
			k.one(once(add(c, 1), "t"))
			k.one(once(add(c, 2), "t"))
			k.one(settle(c, "s"))
			k.one(set(cell(fmt.Sprint("set", i)), -1<<63))
			k.one(add(cell(fmt.Sprint("set", i)), -1))
			k.one(set(cell(fmt.Sprint("set", i)), 1<<63-1))
			k.one(del(cell(fmt.Sprint("gone", i))))
			k.one(add(cell(fmt.Sprint("gone", i)), n))
			k.one(del(cell(fmt.Sprint("gone", i))))
		}
		k.audited()
		k.retire(k.home(cs[0]), w)
		k.audited()
	})

	s.lawAt("a store is clean when cells have expired", store.Limits{}, func(k *kit, cl *clock) {
		w := k.enlist()
		for i, c := range k.apart() {
			n := int64(1) << (i % 63)
			k.reply(k.numbered(w, 0, 1, until(add(c, n), cl.ms()+10), within(add(c, 5), store.Bound{High: 3, Saturate: true})))
			k.one(until(add(cell(fmt.Sprint("gone", i)), n), cl.ms()))
			k.one(until(set(cell(fmt.Sprint("kept", i)), -n), cl.ms()+20))
			k.one(expire(cell(fmt.Sprint("kept", i)), store.ExpiryClear, 0))
			k.one(until(set(cell(fmt.Sprint("idle", i)), 1<<63-1), cl.ms()+20))
		}
		for range 4 {
			k.audited()
			cl.move(10 * time.Millisecond)
		}
		for _, c := range k.apart() {
			k.reply(k.numbered(w, 1, 2, want(add(c, 3))))
		}
		k.audited()
		k.retire(k.home(k.apart()[0]), w)
		k.audited()
	})
}

// audited checks that the store finds nothing wrong with itself, if it can
// look.
func (k *kit) audited() {
	k.Helper()
	a, ok := k.store.(store.Auditor)
	if !ok {
		return
	}
	found, err := a.Audit(k.ctx)
	if err != nil {
		k.Fatalf("Audit: %v", err)
	}
	if len(found.Drift) != 0 {
		k.Fatalf("Audit finds drift: %+v", found.Drift)
	}
}
