package dbtest

import (
	"errors"

	"github.com/quipudb/quipu"
)

// versions are the laws of compare-and-set.
func versions(s *suite) {
	s.law("a version rises with every change and is what the next read has", func(k *kit) {
		last := uint64(0)
		for _, write := range []func() quipu.Receipt{
			func() quipu.Receipt { return k.add("a", 1) },
			func() quipu.Receipt { return k.add("a", 0) },
			func() quipu.Receipt { return k.set("a", 1, quipu.WantValue()) },
			func() quipu.Receipt { return k.reset("a") },
			func() quipu.Receipt { k.delete("a"); return k.add("a", 1) },
		} {
			r := write()
			if r.Version <= last {
				k.Fatalf("version %d follows %d", r.Version, last)
			}
			last = r.Version
			if c := k.read("a"); c.Version != last {
				k.Fatalf("read has version %d, the write before it %d", c.Version, last)
			}
		}
	})

	s.law("every verb is a compare-and-set on request", func(k *kit) {
		verbs := map[string]func(version uint64) error{
			"Add":    func(v uint64) error { _, err := k.db.Add(k.ctx, "a", 1, quipu.IfVersion(v)); return err },
			"Set":    func(v uint64) error { _, err := k.db.Set(k.ctx, "a", 9, quipu.IfVersion(v)); return err },
			"Reset":  func(v uint64) error { _, err := k.db.Reset(k.ctx, "a", quipu.IfVersion(v)); return err },
			"Delete": func(v uint64) error { _, err := k.db.Delete(k.ctx, "a", quipu.IfVersion(v)); return err },
		}
		for name, verb := range verbs {
			old := k.set("a", 4).Version
			now := k.set("a", 5).Version
			for _, v := range []uint64{0, old, now + 1} {
				k.fails(verb(v), quipu.ErrChanged)
				if c := k.read("a"); c.Value != 5 || c.Version != now {
					k.Fatalf("%s at version %d was refused, yet the counter went from version %d to %+v", name, v, now, c)
				}
			}
			if err := verb(now); err != nil {
				k.Fatalf("%s at the present version %d: %v", name, now, err)
			}
			if c := k.read("a"); c.Version == now {
				k.Fatalf("%s at the present version changed nothing", name)
			}
		}
	})

	s.law("version 0 is a counter that does not exist", func(k *kit) {
		k.set("a", 1, quipu.IfVersion(0))
		_, err := k.db.Set(k.ctx, "a", 2, quipu.IfVersion(0))
		k.fails(err, quipu.ErrChanged)
		k.holds("a", 1)
		k.delete("a")
		k.add("a", 3, quipu.IfVersion(0))
		k.holds("a", 3)
	})

	s.law("a version never comes back with a new counter of the same key", func(k *kit) {
		old := k.set("a", 1).Version
		k.delete("a")
		k.set("a", 1)
		_, err := k.db.Set(k.ctx, "a", 2, quipu.IfVersion(old))
		k.fails(err, quipu.ErrChanged)
		k.holds("a", 1)
	})

	s.law("increments by compare-and-set under contention end exact", func(k *kit) {
		const workers, each = 4, 25
		k.parallel(workers, func(int) error {
			for range each {
				if err := increment(k); err != nil {
					return err
				}
			}
			return nil
		})
		k.holds("a", workers*each)
	})
}

// increment adds one to a counter the way a caller without Add would.
func increment(k *kit) error {
	for {
		c, err := k.db.Read(k.ctx, "a", quipu.Exact())
		if err != nil {
			return err
		}
		_, err = k.db.Set(k.ctx, "a", c.Value+1, quipu.IfVersion(c.Version))
		if !errors.Is(err, quipu.ErrChanged) {
			return err
		}
	}
}
