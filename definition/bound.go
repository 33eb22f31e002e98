package definition

import "github.com/quipudb/quipu/store"

// Bound returns the floor and the ceiling of d, or nil.
func (d *Definition) Bound() *store.Bound {
	if d.Floor == nil && d.Ceiling == nil {
		return nil
	}
	b := store.Unbounded()
	if d.Floor != nil {
		b.Low = *d.Floor
	}
	if d.Ceiling != nil {
		b.High = *d.Ceiling
	}
	return &b
}
