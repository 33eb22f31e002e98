package port

import (
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/sketch"
	"github.com/quipudb/quipu/store"
)

// listed returns what an add asks of the sketches of its counter: first what it asks of those of
// users, then what it asks of each top list; nil if that is nothing.
func listed(user []byte, d *store.Delta, fact *Fact, tops []definition.Top) ([]byte, error) {
	if b := d.Guard.Bound; b != nil && b.Saturate {
		return nil, store.Errorf(store.KindInvalid, "the counter has a top list, which can't count an add that may be cut short: leave out saturate")
	}
	some := user != nil
	asks := make([][]byte, 1, 1+len(tops))
	asks[0] = user
	for _, t := range tops {
		item := d.Cell.Key
		if t.By != definition.ByKey {
			item = fact.value(t.By)
		}
		var ask []byte
		if item != "" {
			if len(item) > sketch.TopItemBytesMax {
				return nil, store.Errorf(store.KindTooLarge, "a key of %d bytes can't be in top list %s: at most %d", len(item), t.Name, sketch.TopItemBytesMax)
			}
			var err error
			if ask, err = sketch.AppendTopRequest(nil, t.Items(), []sketch.Amount{{Item: item, N: d.N}}); err != nil {
				return nil, store.Errorf(store.KindInvalid, "top list %s: %w", t.Name, err)
			}
			some = true
		}
		asks = append(asks, ask)
	}
	if !some {
		return nil, nil
	}
	return store.AppendAsks(nil, asks...), nil
}

// value returns the value of a name that an event brings, or "".
func (f *Fact) value(name string) string {
	if f == nil {
		return ""
	}
	for i := range f.Dims {
		if f.Dims[i].Name == name {
			return f.Dims[i].Value
		}
	}
	return ""
}
