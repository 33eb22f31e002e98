package book

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/calendar"
	"github.com/quipudb/quipu/store"
)

// Ahead is how far in the future an event may be, in milliseconds.
const Ahead = int64(24 * time.Hour / time.Millisecond)

// A Proposal is what a book is asked to become.
type Proposal struct {
	Definitions []definition.Definition
	Now         int64 // the store's time, in Unix milliseconds
	InForce     int64 // since when the book that is followed is in force
	Holds       bool  // there may be reservations from now on, if there were none before

	// Zone returns the time zone of a name.
	Zone func(name string) (*calendar.Zone, error)
}

// Next returns the book that follows b, or b itself if nothing would change. An earlier
// book must be in force before the next one comes: otherwise nobody could say since when
// its views are complete.
//
// A view goes on if the same pattern has it, and names no key that it did not name
// before: such a key would have events that the view lacks. Otherwise it begins anew,
// with a new id.
func (b *Book) Next(p Proposal) (*Book, error) {
	if b.ID != 0 && p.InForce == 0 {
		return nil, store.Errorf(store.KindUnavailable, "the definitions of book %d are not in force yet: try again", b.ID)
	}
	n := &Book{Format: format, ID: b.ID + 1, Views: b.Views, Entries: []Entry{}, Former: []string{}, Retired: []Retired{}, Forces: []Force{}, Holds: b.Holds || p.Holds}
	var err error
	if n.Zones, err = b.zones(p); err != nil {
		return nil, err
	}
	live := map[uint16]bool{}
	for i, d := range p.Definitions {
		if err := d.Check(); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(p.Definitions[:i], func(e definition.Definition) bool { return covers(e.Pattern, d.Pattern) }) {
			return nil, store.Errorf(store.KindInvalid, "pattern %q: an earlier pattern matches all of its keys: move it before that pattern", d.Pattern)
		}
		entry, err := b.entry(n, p.Definitions, i)
		if err != nil {
			return nil, err
		}
		for _, v := range entry.Views {
			live[v.ID] = true
		}
		n.Entries = append(n.Entries, entry)
	}
	if err := n.choose(b); err != nil {
		return nil, err
	}
	n.former(b)
	n.retire(b, live, p.Now)
	n.force(append(slices.Clone(b.Forces), Force{b.ID, p.InForce}))
	if err := n.check(); err != nil {
		return nil, err
	}
	n, err = Parse(n.Bytes()) // as all others will have it, and nothing shared with p
	if err == nil && b.Holds == n.Holds && sameEntries(b.Entries, n.Entries) && maps.EqualFunc(b.Zones, n.Zones, (*calendar.Zone).Same) {
		return b, nil
	}
	return n, err
}

// zones returns the tables that definitions need. A table that the book has is replaced
// only if that moves no window that may have been counted: by events up to a day ahead.
func (b *Book) zones(p Proposal) (map[string]*calendar.Zone, error) {
	zones := map[string]*calendar.Zone{}
	for _, d := range p.Definitions {
		for _, w := range d.Clocks() {
			if w.Zone == "" || zones[w.Zone] != nil {
				continue
			}
			old := b.Zones[w.Zone]
			fresh, err := p.Zone(w.Zone)
			switch {
			case old != nil && (err != nil || old.Agree(fresh) <= p.Now+Ahead):
				fresh = old
			case err != nil:
				return nil, store.Errorf(store.KindInvalid, "pattern %q: windows of %s: unknown time zone %q: %w", d.Pattern, w.Every, w.Zone, err)
			}
			zones[w.Zone] = fresh
		}
	}
	return zones, b.limitZones(p, zones)
}

// entry returns the entry of definition i in n, with the views of b that go on.
func (b *Book) entry(n *Book, definitions []definition.Definition, i int) (Entry, error) {
	e := Entry{Definition: definitions[i], Views: []View{}}
	had := map[string]View{}
	if old := b.find(e.Definition.Pattern); old != nil && !b.gains(definitions, i) {
		for j, s := range Slots(&old.Definition) {
			had[s.Name(&old.Definition)] = old.Views[j]
		}
	}
	for _, s := range Slots(&e.Definition) {
		keep := s.Keep(&e.Definition)
		v, ok := had[s.Name(&e.Definition)]
		if !ok || !near(v.Epoch, keep) {
			if n.Views == ViewsMax {
				return e, store.Errorf(store.KindTooLarge, "pattern %q: the namespace has used all %d ids of views, and none can be reused", e.Definition.Pattern, ViewsMax)
			}
			n.Views++
			v = View{uint16(n.Views), n.ID, keep}
		}
		e.Views = append(e.Views, v)
	}
	return e, nil
}

// near reports whether epochs that were chosen for one time of keeping do for another. Up
// to 4 times more or less make some 2 to 132 epochs of it.
func near(a, b definition.Keep) bool {
	const factor = 4
	return a == b || a != 0 && b != 0 && a/factor <= b && b/factor <= a
}

// find returns the entry with a pattern, or nil.
func (b *Book) find(pattern string) *Entry {
	i := slices.IndexFunc(b.Entries, func(e Entry) bool { return e.Definition.Pattern == pattern })
	if i < 0 {
		return nil
	}
	return &b.Entries[i]
}

// gains reports whether definition i may name keys that its pattern did not name in b:
// those of an earlier pattern that is not before it any more.
func (b *Book) gains(definitions []definition.Definition, i int) bool {
	for _, e := range b.Entries {
		pattern := e.Definition.Pattern
		if pattern == definitions[i].Pattern {
			return false
		}
		before := slices.ContainsFunc(definitions[:i], func(d definition.Definition) bool { return d.Pattern == pattern })
		if !before && overlap(pattern, definitions[i].Pattern) {
			return true
		}
	}
	return false
}

// sameEntries reports whether all definitions, and so all views, are the same.
func sameEntries(a, b []Entry) bool {
	return slices.EqualFunc(a, b, func(x, y Entry) bool { return reflect.DeepEqual(x, y) })
}

// former takes over the patterns that b has no more, unless another names their keys.
func (b *Book) former(old *Book) {
	all := slices.Clone(old.Former)
	for _, e := range old.Entries {
		all = append(all, e.Definition.Pattern)
	}
	slices.SortFunc(all, func(x, y string) int { return strings.Compare(strings.TrimSuffix(x, "*"), strings.TrimSuffix(y, "*")) })
	for _, pattern := range all {
		covered := func(by string) bool { return covers(by, pattern) }
		if slices.ContainsFunc(b.Former, covered) || slices.ContainsFunc(b.Entries, func(e Entry) bool { return covered(e.Definition.Pattern) }) {
			continue
		}
		b.Former = append(slices.DeleteFunc(b.Former, func(f string) bool { return covers(pattern, f) }), pattern)
	}
}

// retire takes over the views that are not counted any more, until nothing of them is
// kept. The last window may be a day ahead; itself, its epoch and the lag of dropping it
// are together less than three times what it is kept for, and a day.
func (b *Book) retire(old *Book, live map[uint16]bool, now int64) {
	for _, r := range old.Retired {
		if r.Keep == 0 || now < r.At+3*time.Duration(r.Keep).Milliseconds()+2*Ahead {
			b.Retired = append(b.Retired, r)
		}
	}
	for _, e := range old.Entries {
		for i, s := range Slots(&e.Definition) {
			v := e.Views[i]
			if live[v.ID] {
				continue
			}
			r := Retired{ID: v.ID, Keep: s.Keep(&e.Definition), At: now}
			if s.Ledger {
				r.Pattern, r.Epoch = e.Definition.Pattern, v.Epoch
			}
			b.Retired = append(b.Retired, r)
		}
	}
}

// force keeps the times of the books that brought a view.
func (b *Book) force(forces []Force) {
	for _, f := range forces {
		brought := func(v View) bool { return v.Book == f.Book }
		if slices.ContainsFunc(b.Entries, func(e Entry) bool { return slices.ContainsFunc(e.Views, brought) }) {
			b.Forces = append(b.Forces, f)
		}
	}
}

// Changes says, for people, which views a later book begins, begins anew, ends, or keeps
// for another time, and what else it does to events.
func (b *Book) Changes(n *Book) []string {
	type seen struct {
		view View
		keep definition.Keep
	}
	var changes []string
	add := func(pattern, format string, args ...any) {
		changes = append(changes, fmt.Sprintf("%s: ", pattern)+fmt.Sprintf(format, args...))
	}
	views := func(e *Entry) (order []string, all map[string]seen) {
		all = map[string]seen{}
		if e != nil {
			for i, s := range Slots(&e.Definition) {
				name := s.Name(&e.Definition)
				order, all[name] = append(order, name), seen{e.Views[i], s.Keep(&e.Definition)}
			}
		}
		return order, all
	}
	for i := range n.Entries {
		e := &n.Entries[i]
		pattern := e.Definition.Pattern
		oldOrder, old := views(b.find(pattern))
		order, now := views(e)
		for _, name := range order {
			switch was, had := old[name]; {
			case !had:
				add(pattern, "%s %s now", name, verb(name, "begin"))
			case was.view.ID != now[name].view.ID && name == reactions:
				add(pattern, "other keys come to have reactions")
			case was.view.ID != now[name].view.ID:
				add(pattern, "%s %s anew: earlier counts are not shown any more", name, verb(name, "begin"))
			case was.keep != now[name].keep:
				add(pattern, "%s: kept for %s, not %s", name, now[name].keep, was.keep)
			}
		}
		if was := b.find(pattern); was != nil {
			for _, by := range e.Definition.Dimensions {
				i := slices.IndexFunc(was.Definition.Dimensions, func(d definition.Dimension) bool { return d.Name() == by.Name() })
				if i >= 0 && was.Definition.Dimensions[i].Values() != by.Values() {
					add(pattern, "dimension %s tells %d values apart, not %d", by.Name(), by.Values(), was.Definition.Dimensions[i].Values())
				}
			}
			if is, had := e.Definition.Choices, was.Definition.Choices; len(is) > len(had) && len(had) > 0 {
				add(pattern, "choices are %s, not %s", strings.Join(is, ", "), strings.Join(had, ", "))
			}
			if is, had := max(1, e.Definition.Shards), max(1, was.Definition.Shards); is != had && len(e.Definition.Choices) > 0 && len(was.Definition.Choices) > 0 {
				add(pattern, "shards are %d, not %d: for counters that have no users yet", is, had)
			}
			if is, was := e.Definition.Unique, was.Definition.Unique; is.Of != "" && was.Of != "" && is != was {
				add(pattern, "unique is %s, not %s", is, was)
			}
			if is, was := e.Definition.Late, was.Definition.Late; is != was {
				add(pattern, "late is %s, not %s", is, was)
			}
			if is, was := reservations(e), reservations(was); is != was {
				add(pattern, "reservations are %s, not %s", is, was)
			}
		}
		was := definition.Definition{}
		if old := b.find(pattern); old != nil {
			was = old.Definition
		}
		limit := func(name string, was, is *int64) {
			switch {
			case is != nil && was == nil:
				add(pattern, "%s of %d begins now", name, *is)
			case is == nil && was != nil:
				add(pattern, "%s of %d ends", name, *was)
			case is != nil && *is != *was:
				add(pattern, "%s is %d, not %d", name, *is, *was)
			}
		}
		limit("floor", was.Floor, e.Definition.Floor)
		limit("ceiling", was.Ceiling, e.Definition.Ceiling)
		for _, text := range limitChanges(b.find(pattern), e) {
			add(pattern, "%s", text)
		}
		for _, name := range oldOrder {
			if _, stays := now[name]; !stays {
				add(pattern, "%s %s", name, verb(name, "end"))
			}
		}
	}
	for i := range b.Entries {
		if pattern := b.Entries[i].Definition.Pattern; n.find(pattern) == nil {
			add(pattern, "ends")
		}
	}
	return changes
}

// reservations returns the limits of an entry, for people.
func reservations(e *Entry) string {
	if r := e.Definition.Reservations; r != nil {
		return "limited to " + r.String()
	}
	return "without limits of their own"
}

// verb returns what the views of a name do: windows are several.
func verb(name, do string) string {
	if strings.Contains(name, "windows") || strings.HasPrefix(name, "users") || strings.HasPrefix(name, uniques) || name == reactions {
		return do
	}
	return do + "s"
}
