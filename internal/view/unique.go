package view

import (
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/sketch"
	"github.com/quipudb/quipu/store"
)

// precision returns that of the sketches of users; 0 if there are none.
func precision(u definition.Unique) int {
	switch {
	case u.Of == "":
		return 0
	case u.Error == 0:
		return sketch.PrecisionDefault
	}
	const many = 1e9
	for p := sketch.PrecisionMin; p < sketch.PrecisionPlain; p++ {
		if sketch.UniqueError(p, many) <= float64(u.Error)/1e6 {
			return p
		}
	}
	return sketch.PrecisionPlain
}

// Unique returns the precision of the sketches that have the users of events; 0 if the
// counter has none.
func (v *Views) Unique() int {
	if v == nil {
		return 0
	}
	return v.unique
}

// NoUnique returns the error of a question about users, if the definition of their counter
// does not have them counted.
func NoUnique(key string) error {
	return store.Errorf(store.KindInvalid, "no definition counts the users of %q: define it first, such as {pattern: \"%s\", unique: who}", key, key)
}

// NotUniques returns the error of a call about the items of a key that has no definition, and holds no sketch of uniques.
func NotUniques(key string) error {
	return store.Errorf(store.KindInvalid, "%q holds a count, or something other than a sketch of users: to count its users too, define {pattern: \"%s\", unique: who}", key, key)
}

// UniqueOf returns the view that has the users of all time, of dimension i or of NoDimension,
// if there is one.
func (v *Views) UniqueOf(i int) (s Shown, ok bool) {
	for _, s := range v.All() {
		if s.Kind == store.PartSketch && s.Dimension == i && s.Top == 0 {
			return s, true
		}
	}
	return Shown{}, false
}

// Unite returns the plan of what takes users into the sketches of a time and counts no
// event. Its lead is the sketch of all time.
func (v *Views) Unite(at, now int64, names []string) (*Plan, error) {
	p, err := v.Plan(at, now, names)
	if err != nil {
		return nil, err
	}
	riders := v.bases()
	var lead store.Part
	for i := range p.Event.Len() {
		if r := *p.Event.Rider(i); r.Op != store.OpMerge || r.N > 1 {
			continue
		} else if lead == "" {
			lead = r.Part
		} else {
			r.N = 0 // The event asks nothing else.
			riders = append(riders, r)
		}
	}
	p.Event = planned(riders)
	p.Event.Part = lead
	return p, nil
}

// Unite returns what v.Unite returns, for always the same v.
func (c *Plans) Unite(v *Views, at, now int64, names []string) (*Plan, error) {
	return c.of(v, kindUnite, at, now, names, func() (*Plan, error) { return v.Unite(at, now, names) })
}

// kindUnite is of plans that take users in: no reaction has it.
const kindUnite = 1 << 63
