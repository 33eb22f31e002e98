package book

import (
	"bytes"
	"encoding/json"

	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/calendar"
	"github.com/quipudb/quipu/store"
)

// format is that of the bytes.
const format = 1

// Bytes returns b as it is stored: JSON, which people can read with the tools of their
// store. Equal books have equal bytes.
func (b *Book) Bytes() []byte {
	raw, err := json.Marshal(b)
	if err != nil {
		panic(err) // nothing in a book can fail
	}
	return raw
}

// Parse returns the book that Bytes made. It takes no other bytes.
func Parse(raw []byte) (*Book, error) {
	corrupt := func(format string, args ...any) error {
		return store.Errorf(store.KindCorrupt, "definitions in the store: "+format, args...)
	}
	var head struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return nil, corrupt("%w", err)
	}
	if head.Format > format {
		return nil, store.Newer("the book of definitions", head.Format, format)
	}
	b := &Book{}
	tables := struct {
		*Book
		Zones map[string]string `json:"zones"`
	}{Book: b}
	if err := json.Unmarshal(raw, &tables); err != nil {
		return nil, corrupt("%w", err)
	}
	b.Zones = map[string]*calendar.Zone{}
	for name, table := range tables.Zones {
		zone, err := calendar.ParseZone(name, []byte(table))
		if err != nil {
			return nil, corrupt("%w", err)
		}
		b.Zones[name] = zone
	}
	if err := b.check(); err != nil {
		return nil, corrupt("%w", err)
	}
	if !bytes.Equal(b.Bytes(), raw) {
		return nil, corrupt("they are not as they were written")
	}
	return b, nil
}

// check returns an error if b is over a limit, or contradicts itself.
func (b *Book) check() error {
	if n := len(b.Entries) + len(b.Former); n > PatternsMax {
		return store.Errorf(store.KindTooLarge, "%d patterns, including earlier ones: at most %d", n, PatternsMax)
	}
	if n := len(b.Bytes()); n > BytesMax {
		return store.Errorf(store.KindTooLarge, "definitions of %d bytes: at most %d", n, BytesMax)
	}
	seen, lists := map[uint16]bool{}, map[string]bool{}
	for _, e := range b.Entries {
		if err := e.Definition.Check(); err != nil {
			return err
		}
		if len(e.Views) != len(Slots(&e.Definition)) {
			return store.Errorf(store.KindInvalid, "pattern %q has %d views", e.Definition.Pattern, len(e.Views))
		}
		for _, v := range e.Views {
			if v.ID == 0 || int(v.ID) > b.Views || v.Book == 0 || v.Book > b.ID || seen[v.ID] {
				return store.Errorf(store.KindInvalid, "pattern %q has view %d of book %d", e.Definition.Pattern, v.ID, v.Book)
			}
			seen[v.ID] = true
		}
		for _, t := range e.Definition.Tops {
			if t.By != definition.ByKey {
				continue
			}
			if lists[t.Name] {
				return store.Errorf(store.KindInvalid, "pattern %q: another definition has a top list %s by key: the lists of a namespace have different names", e.Definition.Pattern, t.Name)
			}
			lists[t.Name] = true
		}
		for _, w := range e.Definition.Clocks() {
			if w.Zone != "" && b.Zones[w.Zone] == nil {
				return store.Errorf(store.KindInvalid, "pattern %q: no table of %s", e.Definition.Pattern, w.Zone)
			}
		}
		if err := b.checkLimits(&e.Definition); err != nil {
			return err
		}
	}
	return nil
}
