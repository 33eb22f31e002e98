package dbtest

import (
	"strings"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/store"
)

// namespaces are the laws of keeping tenants apart.
func namespaces(s *suite) {
	s.law("namespaces share nothing", func(k *kit) {
		a, b := k.with(k.tb, "a"), k.with(k.tb, "b")
		k.add("x", 1)
		a.add("x", 2)
		b.add("x", 3)
		a.add("bx", 4)
		k.holds("x", 1)
		a.holds("x", 2)
		b.holds("x", 3)
		a.reset("x")
		b.holds("x", 3)
		b.delete("x")
		a.holds("x", 0)
		b.absent("x")
		counts, err := a.db.ReadBatch(k.ctx, []string{"x", "bx"})
		if err != nil || counts[0].Value != 0 || counts[1].Value != 4 {
			k.Fatalf("ReadBatch: %+v, %v", counts, err)
		}
		a.listed(a.walk("", 1), []string{"bx", "x"})
		b.listed(b.walk("", 1), nil)
		k.listed(k.walk("", 1), []string{"x"})
	})

	s.law("two views of a namespace are one", func(k *kit) {
		k.with(k.tb, "a").add("x", 1)
		k.with(k.tb, "a").holds("x", 1)
		k.with(k.tb, "default").add("y", 1)
		k.holds("y", 1)
	})

	s.law("a namespace is told from a key", func(k *kit) {
		k.with(k.tb, "ab").add("c", 1)
		k.with(k.tb, "a").add("bc", 2)
		k.with(k.tb, "ab").holds("c", 1)
		k.with(k.tb, "a").holds("bc", 2)
		k.with(k.tb, "a").absent("c")
	})

	s.law("a bad namespace is refused by every call", func(k *kit) {
		for namespace, want := range map[string]error{
			"": quipu.ErrInvalid, "a/b": quipu.ErrInvalid, "a\nb": quipu.ErrInvalid, "\x7f": quipu.ErrInvalid,
			"\xff": quipu.ErrInvalid, "a\u0085": quipu.ErrInvalid, strings.Repeat("n", 65): quipu.ErrTooLarge,
		} {
			for _, c := range calls(k, k.in(namespace)) {
				if err := c.do(k.ctx); store.KindOf(err) != store.KindOf(want) {
					k.Fatalf("%s in namespace %q: %v, want %v", c.name, namespace, err, want)
				}
			}
		}
		for _, namespace := range []string{strings.Repeat("n", 64), "日本", "a b", "..", "%2F", "namespaces"} {
			v := k.with(k.tb, namespace)
			v.add("x", 1)
			v.holds("x", 1)
		}
	})
}
