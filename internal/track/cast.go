package track

import (
	"slices"
	"strings"
)

// PrefixesMax is how many prefixes all clients may listen to together: a key that changes
// is compared with those of each length.
const PrefixesMax = 1024

// A broadcast knows who listens to prefixes.
type broadcast struct {
	count   int
	lengths map[int]int                   // how many prefixes have a length
	spaces  map[string]map[string][]int64 // clients, by namespace and prefix
}

func newBroadcast() broadcast {
	return broadcast{lengths: map[int]int{}, spaces: map[string]map[string][]int64{}}
}

// Listen has a client, which has joined, be told of every key of a namespace that begins
// with one of the prefixes, besides those before. It reports false, and changes nothing, if
// there would be too many.
func (t *Table) Listen(id int64, space string, prefixes []string) bool {
	c := t.clients[id]
	all := slices.Clone(c.casts)
	for _, p := range prefixes {
		if !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	if t.cast.count-len(c.casts)+len(all) > PrefixesMax {
		return false
	}
	t.cast.remove(id, c)
	t.cast.add(id, c, space, all)
	return true
}

// Move has a client listen in another namespace.
func (t *Table) Move(id int64, space string) {
	if c := t.clients[id]; c != nil && len(c.casts) > 0 {
		all := c.casts
		t.cast.remove(id, c)
		t.cast.add(id, c, space, all)
	}
}

// Listened returns the prefixes of a client, sorted.
func (t *Table) Listened(id int64) []string {
	if c := t.clients[id]; c != nil {
		return slices.Sorted(slices.Values(c.casts))
	}
	return nil
}

// PrefixOf returns which of the prefixes of a client a key begins with: those of one client
// do not overlap.
func (t *Table) PrefixOf(id int64, key string) string {
	if c := t.clients[id]; c != nil {
		for _, p := range c.casts {
			if strings.HasPrefix(key, p) {
				return p
			}
		}
	}
	return ""
}

// Overlap returns two prefixes of which one begins with the other, the first of them of the
// new ones, and whether the second is new too.
func Overlap(old, more []string) (a, b string, both, found bool) {
	overlaps := func(a, b string) bool { return strings.HasPrefix(a, b) || strings.HasPrefix(b, a) }
	for i, a := range more {
		for _, b := range old {
			if overlaps(a, b) {
				return a, b, false, true
			}
		}
		for _, b := range more[i+1:] {
			if overlaps(a, b) {
				return a, b, true, true
			}
		}
	}
	return "", "", false, false
}

func (b *broadcast) add(id int64, c *client, space string, prefixes []string) {
	c.space, c.casts = space, prefixes
	b.count += len(prefixes)
	for _, p := range prefixes {
		b.lengths[len(p)]++
		if b.spaces[space] == nil {
			b.spaces[space] = map[string][]int64{}
		}
		b.spaces[space][p] = append(b.spaces[space][p], id)
	}
}

func (b *broadcast) remove(id int64, c *client) {
	b.count -= len(c.casts)
	for _, p := range c.casts {
		if b.lengths[len(p)]--; b.lengths[len(p)] == 0 {
			delete(b.lengths, len(p))
		}
		in := b.spaces[c.space]
		if in[p] = slices.DeleteFunc(in[p], func(o int64) bool { return o == id }); len(in[p]) == 0 {
			if delete(in, p); len(in) == 0 {
				delete(b.spaces, c.space)
			}
		}
	}
	c.casts = nil
}

// changed tells those who listen to a prefix of a key.
func (b *broadcast) changed(name Name, tell Tell) {
	in := b.spaces[name.Space]
	if in == nil {
		return
	}
	for n := range b.lengths {
		if n > len(name.Key) {
			continue
		}
		for _, id := range in[name.Key[:n]] {
			tell(id, name.Key, false)
		}
	}
}
