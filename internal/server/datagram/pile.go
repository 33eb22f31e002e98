package datagram

import (
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/statsd"
)

// A rule is what the definition of some keys says of their lines.
type rule struct {
	pattern string
	dims    []string // which tags are dimensions, in their order
	unique  bool     // sets are users
}

// rules are those of a namespace, in the order of its definitions.
type rules struct {
	book int64 // whose they are
	all  []rule
}

// rulesOf returns what definitions say.
func rulesOf(book int64, definitions []definition.Definition) *rules {
	rs := &rules{book: book, all: make([]rule, len(definitions))}
	for i := range definitions {
		r := &rs.all[i]
		r.pattern, r.unique = definitions[i].Pattern, definitions[i].Unique != (definition.Unique{})
		for _, dim := range definitions[i].Dimensions {
			r.dims = append(r.dims, dim.By...)
		}
		slices.Sort(r.dims)
		r.dims = slices.Compact(r.dims)
	}
	return rs
}

// of returns the rule of a key: that of the first pattern that names it, or nil.
func (rs *rules) of(key []byte) *rule {
	if rs == nil {
		return nil
	}
	for i := range rs.all {
		prefix, open := strings.CutSuffix(rs.all[i].pattern, "*")
		if string(key) == prefix || open && len(key) > len(prefix) && string(key[:len(prefix)]) == prefix {
			return &rs.all[i]
		}
	}
	return nil
}

// An entry is what lines have in common that count alike, and their sum.
type entry struct {
	event quipu.Event
	lines int64
}

// A crowd is the different users of a counter.
type crowd struct {
	key   string
	users map[string]struct{}
	lines int64
}

// A pile is what waits to be added.
type pile struct {
	entries map[string]*entry
	crowds  map[string]*crowd // by key
	users   int               // of all crowds
	bytes   int
	room    []byte // for the name of an entry
}

func newPile() *pile { return &pile{entries: map[string]*entry{}, crowds: map[string]*crowd{}} }

func (p *pile) empty() bool { return len(p.entries) == 0 && len(p.crowds) == 0 }

// fits takes room for something new, if there is so much.
func (p *pile) fits(bytes int) bool {
	if len(p.entries)+p.users >= entriesMax || p.bytes+bytes > bytesMax {
		return false
	}
	p.bytes += bytes
	return true
}

// What becomes of a line.
type outcome uint8

const (
	taken outcome = iota
	full          // there is no room for another entry
	over          // the result does not fit into an int64
)

// entryBytes is about what an entry takes besides its text.
const entryBytes = 300

// join takes the user of a line into the crowd of its counter.
func (p *pile) join(m *statsd.Metric) outcome {
	c := p.crowds[string(m.Name)]
	if c != nil {
		if _, ok := c.users[string(m.Item)]; ok {
			c.lines++
			return taken
		}
	}
	if !p.fits(len(m.Name) + len(m.Item) + entryBytes) {
		return full
	}
	if c == nil {
		c = &crowd{key: string(m.Name), users: map[string]struct{}{}}
		p.crowds[c.key] = c
	}
	c.users[string(m.Item)] = struct{}{}
	c.lines++
	p.users++
	return taken
}

// add adds a line to its entry.
func (p *pile) add(m *statsd.Metric, n int64, r *rule) outcome {
	name := p.name(m, r)
	e := p.entries[string(name)]
	if e != nil {
		sum := e.event.Delta + n
		if (sum > e.event.Delta) != (n > 0) && n != 0 {
			return over
		}
		e.event.Delta = sum
		e.lines++
		return taken
	}
	if !p.fits(2*len(name) + entryBytes) {
		return full
	}
	e = &entry{event: quipu.Event{Key: string(m.Name), Delta: n}, lines: 1}
	if m.Time != 0 {
		e.event.At = time.Unix(m.Time, 0)
	}
	if r != nil {
		for _, dim := range r.dims {
			if value, ok := tag(m, dim); ok {
				e.event.Dims = append(e.event.Dims, quipu.Dimension{Name: dim, Value: string(value)})
			}
		}
	}
	p.entries[string(name)] = e
	return taken
}

// name returns what tells the entry of a line from others.
func (p *pile) name(m *statsd.Metric, r *rule) []byte {
	b := p.room[:0]
	text := func(s []byte) { b = append(binary.AppendUvarint(b, uint64(len(s))), s...) }
	text(m.Name)
	b = binary.AppendVarint(b, m.Time)
	if r != nil {
		for _, dim := range r.dims {
			if value, ok := tag(m, dim); ok {
				b = append(b, 1)
				text(value)
			} else {
				b = append(b, 0)
			}
		}
	}
	p.room = b
	return b
}

// tag returns the value of the first tag of a name.
func tag(m *statsd.Metric, name string) ([]byte, bool) {
	for i := range m.Tags {
		if string(m.Tags[i].Name) == name {
			return m.Tags[i].Value, true
		}
	}
	return nil, false
}
