package redisstore

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/store"
)

// A drawer is the parts of a partition that are in one hash: those of a kind, or, of a
// kind that is kept for a time, those of a view in one epoch. Their rows begin with the
// same bytes, its lead. What follows those is the name of a part in the drawer.
type drawer struct{ namespace, lead string }

// drawerOf returns where a part of a cell is, and its name there.
func drawerOf(c store.Cell, p store.Part) (d drawer, field string) {
	namespace, row := store.AppendRow(make([]byte, 0, len(p)+len(c.Key)+3), c, p)
	n, text := leadBytes(p.Kind()), string(row)
	return drawer{namespace, text[:n]}, text[n:]
}

// How long leads are.
var (
	keptLead     = len(store.RowsUnder("", store.PartFields{Kind: store.PartOutside}, "").From)
	retainedLead = len(store.RowsUnder("", store.PartFields{Kind: store.PartWindow}, "").From)
)

func leadBytes(k store.PartKind) int {
	if k&store.PartRetained != 0 {
		return retainedLead
	}
	return keptLead
}

// kind returns what kind of parts are in the drawer.
func (d drawer) kind() store.PartKind { return store.PartKind(d.lead[0]) }

// shelf returns what the drawer has its floor by, and its epoch; ok is false if it is not
// kept for a time.
func (d drawer) shelf() (s decide.Shelf, e store.Epoch, ok bool) {
	f, ok := store.Part(d.lead + "\x80\x00\x00\x00\x00\x00\x00\x00").FloorOf()
	return decide.Shelf{Namespace: d.namespace, Kind: f.Kind, View: f.View}, f.Epoch, ok
}

// name is that of the drawer among all of a partition. Namespaces are UTF-8, which has
// no byte ff.
func (d drawer) name() string { return d.namespace + "\xff" + d.lead }

// String names the drawer for people.
func (d drawer) String() string {
	if s, epoch, ok := d.shelf(); ok {
		return fmt.Sprintf("kind %#x, view %d, epoch %#x of namespace %q", uint8(s.Kind), s.View, uint32(epoch), d.namespace)
	}
	return fmt.Sprintf("kind %#x of namespace %q", uint8(d.kind()), d.namespace)
}

// drawerNamed returns the drawer that has a name.
func drawerNamed(name string) (drawer, error) {
	namespace, lead, ok := strings.Cut(name, "\xff")
	if !ok || lead == "" || len(lead) != leadBytes(store.PartKind(lead[0])) {
		return drawer{}, store.Errorf(store.KindCorrupt, "parts in %q", name)
	}
	return drawer{namespace, lead}, nil
}

// part returns the address of a part by its name in the drawer.
func (d drawer) part(field string) (store.PartCell, error) {
	c, p, ok := store.PartOfRow(d.namespace, []byte(d.lead+field))
	if !ok {
		return store.PartCell{}, store.Errorf(store.KindCorrupt, "part %q in %q", field, d.name())
	}
	return store.PartCell{Cell: c, Part: p}, nil
}

// contents and order are the keys of a drawer: name → content, and the names in the
// order of their bytes.
func (p *partition) contents(d drawer) string {
	return p.prefix + "p:" + hex.EncodeToString([]byte(d.lead)) + ":" + d.namespace
}

func (p *partition) order(d drawer) string {
	return p.prefix + "o:" + hex.EncodeToString([]byte(d.lead)) + ":" + d.namespace
}

// contentText is what is stored of a content; one that does not exist is "".
func contentText(k store.PartKind, v store.Content) string {
	switch {
	case !v.Exists:
		return ""
	case k.HasBytes():
		return "=" + v.Bytes
	}
	return strconv.FormatInt(v.N, 10)
}

// parseContent returns what a stored content says.
func parseContent(k store.PartKind, text string) (store.Content, error) {
	if text == "" {
		return store.Content{}, nil
	}
	if !k.HasBytes() {
		d := decoder{}
		return store.Content{N: d.int(text), Exists: true}, d.err
	}
	bytes, ok := strings.CutPrefix(text, "=")
	if !ok {
		return store.Content{}, store.Errorf(store.KindCorrupt, "bytes %q", text)
	}
	return store.Content{N: k.Number([]byte(bytes)), Bytes: bytes, Exists: true}, nil
}

// parseTally returns what is stored of the changes in an epoch: halves of the sum, and of
// the check sum.
func parseTally(text string) (decide.Record, error) {
	if text == "" {
		return decide.Record{}, nil
	}
	f := strings.Fields(text)
	if len(f) != 4 {
		return decide.Record{}, store.Errorf(store.KindCorrupt, "tally %q", text)
	}
	d := decoder{}
	return decide.Record{Sum: d.uint(f[0])<<32 + d.uint(f[1]), Check: d.uint(f[2])<<32 + d.uint(f[3])}, d.err
}

// Fields of a head: the highest book that was seen of a namespace, and the floor of a view.

func bookField(namespace string) string { return "b:" + namespace }

func floorField(s decide.Shelf) string {
	return fmt.Sprintf("f:%02x%04x:%s", uint8(s.Kind), s.View, s.Namespace)
}
