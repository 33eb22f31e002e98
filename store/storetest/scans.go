package storetest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/quipudb/quipu/store"
)

// scans are the laws of finding cells by their keys.
func scans(s *suite) {
	s.law("keys come in byte order, once, with their values", func(k *kit) {
		keys := awkwardKeys()
		for i, key := range keys {
			k.outcome(k.one(set(cell(key), int64(i))), store.Applied)
		}
		k.outcome(k.one(set(store.Cell{Namespace: "other", Key: "b"}, 1)), store.Applied)
		k.outcome(k.one(set(store.Cell{Namespace: namespace + "x", Key: "b"}, 1)), store.Applied)
		got := k.scan(store.Range{Namespace: namespace}, store.ScanMax)
		sorted := slices.Sorted(slices.Values(keys))
		k.listed(got, sorted)
		for _, e := range got {
			if e.Value != k.read(cell(e.Key)) {
				k.Fatalf("scan says %q is %+v, read says %+v", e.Key, e.Value, k.read(cell(e.Key)))
			}
		}
	})

	s.law("a prefix selects the keys that start with it", func(k *kit) {
		keys := awkwardKeys()
		for _, key := range keys {
			k.outcome(k.one(add(cell(key), 1)), store.Applied)
		}
		slices.Sort(keys)
		for _, prefix := range []string{"", "a", "a/", "a/b", "ab", "é", "日", "\x00", "\x7f", "~", "zz", "%", "_", "A", "*", "a\x00", "\U0010ffff"} {
			var want []string
			for _, key := range keys {
				if strings.HasPrefix(key, prefix) {
					want = append(want, key)
				}
			}
			k.listed(k.scan(store.Range{Namespace: namespace, Prefix: prefix}, store.ScanMax), want)
		}
	})

	s.law("cursors page through all keys", func(k *kit) {
		keys := awkwardKeys()
		for _, key := range keys {
			k.outcome(k.one(add(cell(key), 1)), store.Applied)
		}
		slices.Sort(keys)
		for _, n := range []int{1, 2, 3, 7, len(keys) - 1, len(keys), len(keys) + 1} {
			k.listed(k.page(store.Range{Namespace: namespace}, n), keys)
		}
		var want []string
		for _, key := range keys {
			if strings.HasPrefix(key, "a") {
				want = append(want, key)
			}
		}
		k.listed(k.page(store.Range{Namespace: namespace, Prefix: "a"}, 2), want)
	})

	s.law("a cursor need not be a key", func(k *kit) {
		for _, key := range []string{"b", "ba", "d"} {
			k.outcome(k.one(add(cell(key), 1)), store.Applied)
		}
		f := func(prefix, after string, want ...string) {
			k.Helper()
			k.listed(k.scan(store.Range{Namespace: namespace, Prefix: prefix, After: after}, 10), want)
		}
		f("", "a", "b", "ba", "d")
		f("", "b", "ba", "d")
		f("", "b\x00", "ba", "d")
		f("", "c", "d")
		f("", "d")
		f("", "z")
		f("b", "", "b", "ba")
		f("b", "a", "b", "ba")
		f("b", "ba")
		f("b", "c")
	})

	s.law("an empty namespace has no keys", func(k *kit) {
		k.outcome(k.one(add(cell("a"), 1)), store.Applied)
		k.listed(k.scan(store.Range{Namespace: "empty"}, 10), nil)
	})

	s.law("created keys are listed at once and deleted ones are not", func(k *kit) {
		var want []string
		for i := range 20 {
			key := fmt.Sprintf("k%02d", i)
			k.outcome(k.one(add(cell(key), 1)), store.Applied)
			want = append(want, key)
			k.listed(k.scan(store.Range{Namespace: namespace}, 100), want)
		}
		for len(want) > 0 {
			i := len(want) / 2
			k.outcome(k.one(del(cell(want[i]))), store.Applied)
			want = slices.Delete(want, i, i+1)
			k.listed(k.scan(store.Range{Namespace: namespace}, 100), want)
		}
	})

	s.law("pages hold while writes go on", pagesUnderWrites)

	s.lawAt("namespaces that have a key are listed in byte order", store.Limits{}, func(k *kit, cl *clock) {
		k.namespaces()
		k.enlist() // writes to the store's own
		k.one(settle(store.Cell{Namespace: "tokens only", Key: "a"}, "t"))
		k.one(get(store.Cell{Namespace: "asked for", Key: "a"}))
		k.namespaces()
		want := []string{
			"\x00", " ", "A", "a", "a\x00", "a/b", "b", "default", "default2", "é", "日本", "\U0010ffff",
			strings.Repeat("n", store.NamespaceBytesMax),
		}
		for _, ns := range want {
			for _, key := range []string{"\x00", "a", "\U0010ffff"} {
				k.outcome(k.one(add(store.Cell{Namespace: ns, Key: key}, 0)), store.Applied)
			}
		}
		slices.Sort(want)
		k.namespaces(want...)
		for _, key := range []string{"\x00", "a", "\U0010ffff"} {
			k.namespaces(want...)
			k.one(del(store.Cell{Namespace: "default", Key: key}))
		}
		want = slices.DeleteFunc(want, func(ns string) bool { return ns == "default" })
		k.namespaces(want...)
		k.one(until(add(store.Cell{Namespace: "soon", Key: "a"}, 1), cl.ms()+1))
		cl.move(1e6)
		k.one(add(store.Cell{Namespace: "soon", Key: "b"}, 1))
		want = append(want, "soon")
		slices.Sort(want)
		k.namespaces(want...)
		if k.inst.Reopen != nil {
			k.replace(k.inst.Reopen(k.t))
			k.namespaces(want...)
		}
	})
}

// namespaces checks which there are, if the store knows, whatever the size of a
// page.
func (k *kit) namespaces(want ...string) {
	k.Helper()
	s, ok := k.store.(store.Namespacer)
	if !ok {
		return
	}
	for _, n := range []int{1, 3, max(len(want), 1), store.ScanMax} {
		var got []string
		for after := ""; ; after = got[len(got)-1] {
			some, err := s.Namespaces(k.ctx, after, n)
			if err != nil || len(some) > n {
				k.Fatalf("Namespaces: %d of %d, %v", len(some), n, err)
			}
			if got = append(got, some...); len(some) < n {
				break
			}
		}
		if !slices.Equal(got, want) {
			k.Fatalf("the namespaces are\n  %q, want\n  %q", got, want)
		}
	}
}

// awkwardKeys are keys that a careless encoding, collation or pattern gets
// wrong: prefixes of each other, control bytes, both cases, wildcards, and the
// ends of UTF-8's byte range.
func awkwardKeys() []string {
	return []string{
		"a", "a\x00", "a\x00b", "a/", "a/b", "a/b/c", "a0", "aa", "ab", "abc", "a\x7f", "aé", "a\U0010ffff",
		"A", "B", "b", "Z", "z", "_", "%", "%a", "*", "?", "[a]", "\\", "'", "\"", " ", " a", "-", "~", "~~",
		"\x00", "\x01", "\x7f", "\x7f\x7f", "é", "éa", "e\u0301", "日", "日本", "\uffff", "\U00010000", "\U0010ffff",
		"1", "10", "2", strings.Repeat("k", store.KeyBytesMax),
	}
}

// page reads a range n keys at a time until the end.
func (k *kit) page(r store.Range, n int) []store.Entry {
	k.Helper()
	var all []store.Entry
	for {
		es := k.scan(r, n)
		all = append(all, es...)
		if len(es) < n {
			return all
		}
		if es[n-1].Key <= r.After {
			k.Fatalf("a page after %q ends with %q", r.After, es[n-1].Key)
		}
		r.After = es[n-1].Key
	}
}

// listed checks the keys of what a scan returned, and that they exist.
func (k *kit) listed(got []store.Entry, want []string) {
	k.Helper()
	keys := make([]string, len(got))
	for i, e := range got {
		keys[i] = e.Key
		if !e.Value.Exists || e.Value.Version == 0 {
			k.Fatalf("scan lists %q with value %+v", e.Key, e.Value)
		}
	}
	if !slices.Equal(keys, want) {
		k.Fatalf("scan lists\n  %q, want\n  %q", keys, want)
	}
}

// pagesUnderWrites pages through keys while others are created, changed and
// deleted: every key that was there all the time is listed once, in order, and
// nothing that never was.
func pagesUnderWrites(k *kit) {
	const stable, rounds = 40, 60
	for i := range stable {
		k.outcome(k.one(add(cell(fmt.Sprintf("s%03d", i)), 1)), store.Applied)
	}
	done := make(chan struct{})
	k.parallel(2, func(i int) error {
		if i == 0 {
			defer close(done)
			for n := range rounds {
				flip := cell(fmt.Sprintf("s%03d+", n%stable))
				for _, d := range []store.Delta{add(flip, 1), add(cell(fmt.Sprintf("s%03d", n%stable)), 1), del(flip)} {
					if _, err := k.try(k.batch(d)); err != nil {
						return err
					}
				}
			}
			return nil
		}
		for more := true; more; {
			select {
			case <-done:
				more = false // once more, when all is quiet
			default:
			}
			if err := k.pageOnce(stable); err != nil {
				return err
			}
		}
		return nil
	})
}

func (k *kit) pageOnce(stable int) error {
	r := store.Range{Namespace: namespace, Prefix: "s"}
	next := 0
	for {
		es, err := k.store.Scan(k.ctx, r, 7)
		if err != nil {
			return err
		}
		for _, e := range es {
			if e.Key <= r.After {
				return fmt.Errorf("key %q after %q", e.Key, r.After)
			}
			r.After = e.Key
			if strings.HasSuffix(e.Key, "+") {
				continue
			}
			if want := fmt.Sprintf("s%03d", next); e.Key != want {
				return fmt.Errorf("key %q, want %q", e.Key, want)
			}
			next++
		}
		if len(es) < 7 {
			break
		}
	}
	if next != stable {
		return fmt.Errorf("%d keys listed, want %d", next, stable)
	}
	return nil
}

func sortedKeys(cs ...store.Cell) []string {
	var keys []string
	for _, c := range cs {
		keys = append(keys, c.Key)
	}
	slices.Sort(keys)
	return keys
}
