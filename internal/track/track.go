// Package track knows which clients have read which keys, so that they can be
// told when a key changes. Redis calls this client-side caching. It does no
// I/O: the user of a Table reports reads and changes, and gets the clients to
// notify.
//
// A client that has read a key is told of the next change that the Table learns
// of. It may be told too often, but never too rarely. Memory has a limit,
// beyond which clients are told to forget keys that have not changed.
package track

import (
	"container/heap"
	"slices"

	"github.com/quipudb/quipu/store"
)

// A Name is the address of a counter.
type Name struct{ Space, Key string }

// A Seen is what a key was when somebody looked. The zero value says that nobody could:
// it is like no other, not even itself.
type Seen struct {
	known      bool
	exists     bool
	n          int64
	version    uint64
	deadlineMS int64
}

// Look returns what a value says.
func Look(v store.Value) Seen {
	return Seen{known: true, exists: v.Exists, n: v.N, version: v.Version, deadlineMS: v.DeadlineMS}
}

// same reports whether nothing has changed between two looks. A total that is kept for
// readers, and a counter that is split, may have no version, and are judged by what they
// are worth.
func (s Seen) same(o Seen) bool {
	return s.known && o.known && s.exists == o.exists && s.n == o.n && s.deadlineMS == o.deadlineMS &&
		(s.version == o.version || s.version == 0 || o.version == 0)
}

// A Tell is told that a client has to forget a key, or if all is set everything that it
// has read.
type Tell func(client int64, key string, all bool)

// Limits of a table. Those of one client are a share of the whole, so that one that
// reads a million keys pushes out its own.
const (
	// itemsEach is how many clients may have read a key, on average, when the table
	// is full.
	itemsEach = 4
	// shareMax is the part of the table's keys that one client may have.
	shareMax = 2
)

// A Table is not safe for concurrent use.
type Table struct {
	max     int // keys
	spaces  map[string]map[string]*entry
	ring    []*entry
	evicts  int // where in the ring the next key to go is looked for
	looks   int // where the next look begins
	items   int // clients of all keys
	due     deadlines
	clients map[int64]*client
	lives   uint64
	cast    broadcast
	evicted uint64
}

// A client is one that tracks.
type client struct {
	life  uint64 // no other has the same; what it has read in an earlier one does not count
	items int
	space string   // that it works in, if prefixes are set
	casts []string // prefixes
}

// An entry is a key that somebody has read.
type entry struct {
	name    Name
	readers []reader
	seen    Seen
	ring    int // where it is in the ring
	due     int // where it is among the deadlines; -1 if it is not
}

type reader struct {
	client int64
	life   uint64
}

// New returns a table of up to so many keys.
func New(keys int) *Table {
	return &Table{max: keys, spaces: map[string]map[string]*entry{}, clients: map[int64]*client{}, cast: newBroadcast()}
}

// Join has a client track. One that does already stays as it is.
func (t *Table) Join(id int64) {
	if t.clients[id] == nil {
		t.lives++
		t.clients[id] = &client{life: t.lives}
	}
}

// Leave has a client track no more. What it has read is let go of as it is come across.
func (t *Table) Leave(id int64) {
	if c := t.clients[id]; c != nil {
		t.cast.remove(id, c)
		t.items -= c.items
		delete(t.clients, id)
	}
}

// Resize sets how many keys there may be.
func (t *Table) Resize(keys int, tell Tell) {
	t.max = keys
	t.sweep()
	t.shrink(tell)
}

// Has reports whether a key is there, with what it was when somebody looked.
func (t *Table) Has(space string, key []byte) bool { return t.spaces[space][string(key)] != nil }

// Read notes that a client is about to read a key. What the key is must have been looked
// at before, and counts if the table does not have it. If there are too many keys some go,
// and those who have read them are told.
func (t *Table) Read(id int64, name Name, seen Seen, tell Tell) {
	c := t.clients[id]
	if c == nil {
		return
	}
	e := t.spaces[name.Space][name.Key]
	if e == nil {
		e = t.add(name, seen)
	}
	for i := range e.readers {
		if r := &e.readers[i]; r.client == id {
			if r.life != c.life {
				r.life = c.life
				c.items++
				t.items++
			}
			return
		}
	}
	if len(e.readers) == cap(e.readers) { // before it grows: many may have left
		t.living(e)
	}
	e.readers = append(e.readers, reader{id, c.life})
	c.items++
	t.items++
	if c.items > max(t.max/shareMax, 1) {
		t.forget(c)
		e.readers[len(e.readers)-1].life = c.life // this one it is about to read
		c.items, t.items = 1, t.items+1
		tell(id, "", true)
		t.evicted++
	}
	t.shrink(tell)
}

// forget lets go of all that a client has read.
func (t *Table) forget(c *client) {
	t.items -= c.items
	c.items = 0
	t.lives++
	c.life = t.lives
}

// Flushed notes that all keys of a namespace are about to go. Those who work in it are told
// at once to forget everything; who reads one of the keys after that is told by itself.
func (t *Table) Flushed(worksIn func(id int64) bool, tell Tell) {
	for id, c := range t.clients {
		if worksIn(id) {
			t.forget(c)
			tell(id, "", true)
		}
	}
	t.sweep()
}

// sweep lets go of keys that nobody has read who is still there.
func (t *Table) sweep() {
	for _, e := range slices.Backward(t.ring) { // removing one moves the last, which was looked at
		if t.living(e); len(e.readers) == 0 {
			t.remove(e)
		}
	}
}

// Changed notes that a key has changed.
func (t *Table) Changed(name Name, tell Tell) {
	if e := t.spaces[name.Space][name.Key]; e != nil {
		t.gone(e, tell)
	}
	t.cast.changed(name, tell)
}

// Judge notes what a key was when somebody looked, and tells if that is not what it was.
func (t *Table) Judge(name Name, seen Seen, tell Tell) {
	e := t.spaces[name.Space][name.Key]
	switch {
	case e == nil:
	case !e.seen.same(seen):
		t.gone(e, tell)
	case e.seen.deadlineMS != 0 && e.due < 0: // it is not over after all
		heap.Push(&t.due, e)
	}
}

// Next returns some keys to look at: first those whose deadline has passed, by the clock
// that is asked, but no more than half of n: the store may not think so yet, and others would
// not have their turn. Then as many as make n, in turns.
func (t *Table) Next(n int, nowMS func(Name) int64) (names []Name) {
	for len(t.due) > 0 && len(names) < (n+1)/2 {
		if e := t.due[0]; e.seen.deadlineMS > nowMS(e.name) {
			break
		}
		names = append(names, heap.Pop(&t.due).(*entry).name)
	}
	for range min(n-len(names), len(t.ring)) {
		if t.looks >= len(t.ring) {
			t.looks = 0
			if len(t.ring) == 0 {
				break
			}
		}
		e := t.ring[t.looks]
		if t.living(e); len(e.readers) == 0 {
			t.remove(e)
			continue
		}
		names = append(names, e.name)
		t.looks++
	}
	return names
}

// living lets go of the readers that have left, or have been told to forget all.
func (t *Table) living(e *entry) {
	kept := e.readers[:0]
	for _, r := range e.readers {
		if c := t.clients[r.client]; c != nil && c.life == r.life {
			kept = append(kept, r)
		}
	}
	e.readers = kept
}

// add adds a key that nobody has read.
func (t *Table) add(name Name, seen Seen) *entry {
	e := &entry{name: name, seen: seen, ring: len(t.ring), due: -1}
	keys := t.spaces[name.Space]
	if keys == nil {
		keys = map[string]*entry{}
		t.spaces[name.Space] = keys
	}
	keys[name.Key] = e
	t.ring = append(t.ring, e)
	if seen.deadlineMS != 0 {
		heap.Push(&t.due, e)
	}
	return e
}

// gone tells the readers of a key, and lets go of it.
func (t *Table) gone(e *entry, tell Tell) {
	t.living(e)
	t.remove(e)
	for _, r := range e.readers {
		tell(r.client, e.name.Key, false)
	}
}

// remove lets go of a key.
func (t *Table) remove(e *entry) {
	for _, r := range e.readers {
		if c := t.clients[r.client]; c != nil && c.life == r.life {
			c.items--
			t.items--
		}
	}
	keys := t.spaces[e.name.Space]
	if delete(keys, e.name.Key); len(keys) == 0 {
		delete(t.spaces, e.name.Space)
	}
	last := len(t.ring) - 1
	t.ring[e.ring] = t.ring[last]
	t.ring[e.ring].ring = e.ring
	t.ring[last] = nil
	t.ring = t.ring[:last]
	if e.due >= 0 {
		heap.Remove(&t.due, e.due)
	}
}

// shrink lets go of keys while there are too many, or too many readers of them.
func (t *Table) shrink(tell Tell) {
	for len(t.ring) > t.max || t.items > itemsEach*t.max && len(t.ring) > 1 {
		if t.evicts >= len(t.ring)-1 { // the last is the newest
			t.evicts = 0
		}
		t.gone(t.ring[t.evicts], tell)
		t.evicts++
		t.evicted++
	}
}

// Keys returns how many keys there are, Items how many readers they have together, and
// Prefixes how many prefixes are listened to.
func (t *Table) Keys() int { return len(t.ring) }

// Items returns how many readers all keys have together.
func (t *Table) Items() int { return t.items }

// Prefixes returns how many prefixes are listened to.
func (t *Table) Prefixes() int { return t.cast.count }

// Evicted returns how often somebody was told to forget what has not changed, for want of
// room.
func (t *Table) Evicted() uint64 { return t.evicted }

// deadlines are entries in the order of their deadlines.
type deadlines []*entry

// Len returns how many there are.
func (d deadlines) Len() int { return len(d) }

// Less reports which of two is due first.
func (d deadlines) Less(i, j int) bool { return d[i].seen.deadlineMS < d[j].seen.deadlineMS }

// Swap swaps two.
func (d deadlines) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].due, d[j].due = i, j
}

// Push appends one.
func (d *deadlines) Push(x any) {
	e := x.(*entry)
	e.due = len(*d)
	*d = append(*d, e)
}

// Pop takes the last one.
func (d *deadlines) Pop() any {
	last := len(*d) - 1
	e := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	e.due = -1
	return e
}
