package history

import (
	"context"
	"fmt"
	"slices"

	"github.com/quipudb/quipu/internal/view"
	"github.com/quipudb/quipu/store"
)

// shared verifies the top lists that the counters of an entry share.
//
// They are added to while they are read, and no counter's version vouches for them. So they are
// read again until two reads find the same differences. An event changes all windows of a list
// in one step, and totals only rise: totals that are the same in both reads were all there at the
// moment between the two.
func (v *verifier) shared(ctx context.Context, q *equations) error {
	if !slices.ContainsFunc(q.views, func(s view.Shown) bool { return s.Kind.Shared() }) {
		return nil
	}
	var before []finding
	for try := range verifyTries {
		c, err := v.reader.inLanes(ctx, q)
		if err != nil {
			return err
		}
		if try == 0 {
			v.audit.Cells += c.parts
		}
		found := q.among(c)
		if try > 0 && slices.Equal(found, before) || len(found) == 0 {
			for _, f := range found {
				if f.sure {
					v.drift(fmt.Sprintf("namespace %q: ", v.reader.Known.Namespace), f)
				} else {
					v.rebooked++
				}
			}
			return nil
		}
		before = found
	}
	v.relisted++
	return nil
}

// inLanes returns what the lists in all lanes have. The lists of all time are read last: they
// have whatever the windows have.
func (r *Reader) inLanes(ctx context.Context, q *equations) (*counted, error) {
	c := &counted{}
	c.reset(len(q.views))
	take := func(p *store.PartEntry) error {
		f, _ := p.Part.Fields()
		return c.take(0, &f, &p.Content, q)
	}
	var sets []store.PartFields
	for i := range q.views {
		if q.views[i].Kind.Shared() {
			r.needed(q, i, func(f store.PartFields, _ int) { sets = append(sets, f) })
		}
	}
	for _, f := range append(sets, store.PartFields{Kind: store.PartShared}) {
		if err := r.scanBy(ctx, store.RowsUnder(r.Known.Namespace, f, ""), sketchPage, take); err != nil {
			return nil, err
		}
	}
	return c, nil
}
