package storetest

import (
	"fmt"
	"time"

	"github.com/quipudb/quipu/store"
)

// losses are the laws of a store that can tell what it has lost.
func losses(s *suite) {
	if _, ok := s.probe().Store.(store.Witness); !ok {
		return
	}
	s.law("what was done is not lost, whatever becomes of the cell", func(k *kit) {
		cs := k.together(2)
		c := cs[0]
		var told []uint64
		note := func(rs ...store.Result) {
			k.Helper()
			for _, r := range rs {
				k.outcome(r, store.Applied)
				if r.Version != 0 {
					told = append(told, r.Version)
				}
			}
			k.lost(false, c, told...)
		}
		note(k.one(add(c, 1)))
		note(k.one(want(set(c, 9))))
		note(k.do(add(c, 1), add(c, 2), want(add(c, 3)))...)
		note(k.one(del(c)))
		note(k.one(add(cs[1], 1)))
		note(k.one(add(c, 1)))
		if k.store.Traits().Layouts {
			note(k.one(layout(c, 0, 5)))
			note(k.one(add(c, 1)))
			note(k.one(laid(del(c), 5)))
		}
	})

	s.lawAt("what has expired is not lost", store.Limits{}, func(k *kit, cl *clock) {
		c := cell("a")
		version := k.one(until(add(c, 1), cl.ms()+1000)).Version
		k.lost(false, c, version)
		cl.move(time.Second)
		k.absent(c)
		k.lost(false, c, version)
	})

	s.law("what no change was ever told is lost", func(k *kit) {
		cs := k.together(2)
		k.one(add(cs[0], 1))
		above := k.one(add(cs[1], 1)).Version + 1<<40
		k.lost(true, cs[0], above)
		k.one(del(cs[0]))
		k.lost(true, cs[0], above)
		if k.store.Traits().Layouts {
			k.one(layout(cs[1], 0, 5))
			k.lost(true, cs[1], above)
		}
	})

	s.kept("what is not lost", func(k *kit, _ *clock, again func()) {
		c, gone := cell("a"), cell("gone")
		first, deleted := k.one(add(c, 1)).Version, k.one(add(gone, 1)).Version
		k.one(del(gone))
		for range 3 {
			again()
			k.one(add(c, 1))
			k.lost(false, c, first)
			k.lost(false, gone, deleted)
		}
	})

	if s.probe().Crash != nil {
		s.law("after a crash what is missing is lost, and nothing else", crashLost)
	}
}

// crashLost makes cells with a durability that a crash may undo, over several
// crashes.
func crashLost(k *kit) {
	type made struct {
		cell    store.Cell
		version uint64
	}
	var kept []made
	for life := range 4 {
		var all []made
		for i := range 10 {
			c := cell(fmt.Sprint(life, "/", i))
			b := k.batch(add(c, 1))
			if b.Durability = store.Memory; i == life {
				b.Durability = store.Synced
			}
			all = append(all, made{c, k.reply(b).Results[0].Version})
		}
		k.replace(k.inst.Crash(k.t))
		for _, m := range all {
			is := k.read(m.cell).Exists
			k.lost(!is, m.cell, m.version)
			if is {
				kept = append(kept, m)
			}
		}
		for _, m := range kept {
			k.lost(false, m.cell, m.version)
		}
	}
}

// lost checks whether changes of a cell are lost.
func (k *kit) lost(want bool, c store.Cell, versions ...uint64) {
	k.Helper()
	v := k.read(c)
	for _, version := range versions {
		lost, err := k.store.(store.Witness).Lost(k.ctx, c, version, v)
		if err != nil {
			k.Fatalf("Lost: %v", err)
		}
		if lost != want {
			k.Fatalf("version %d of %q, which reads %+v: lost is %v, want %v", version, c.Key, v, lost, want)
		}
	}
}
