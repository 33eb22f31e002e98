package decide

import "github.com/quipudb/quipu/store"

// Fences are the highest books that a partition has seen, by namespace.
type Fences map[string]int64

// Judge returns an error if a delta of the batch was made under a lower book than the
// partition has seen of its namespace.
func (f Fences) Judge(b *store.Batch) error {
	if len(f) == 0 {
		return nil
	}
	for i := range b.Deltas {
		d := &b.Deltas[i]
		if d.Op == store.OpRetire {
			continue
		}
		namespace := store.SpaceOf(d.Cell)
		if has := idOf(b, namespace); has < f[namespace] {
			return store.Errorf(store.KindOutdated, "delta %d was made under book %d of namespace %q, which is at %d",
				i, has, namespace, f[namespace])
		}
	}
	return nil
}

// Raise keeps the books of a batch that is applied.
func (f Fences) Raise(b *store.Batch) {
	for _, book := range b.Books {
		f[book.Namespace] = max(f[book.Namespace], book.ID)
	}
}

// idOf returns the book of a namespace that a batch was made under; 0 is none.
func idOf(b *store.Batch, namespace string) int64 {
	for i := range b.Books {
		if b.Books[i].Namespace == namespace {
			return b.Books[i].ID
		}
	}
	return 0
}
