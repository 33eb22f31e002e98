package due

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/quipudb/quipu/internal/hold"
	"github.com/quipudb/quipu/store"
)

const (
	verifyTries = 8    // how often a counter is read that is written to meanwhile
	driftsMax   = 1000 // that are told
)

// Verify evaluates the equations of reservations: for each counter, and for each who, what
// is held is the sum and the number of the holds there are, and each stands once in the order
// of deadlines. What it finds is added to an audit.
func (w *Worker) Verify(ctx context.Context, a *store.Audit) error {
	if err := w.look(ctx); err != nil {
		return err
	}
	v := &verifier{Worker: w, audit: a}
	for _, namespace := range slices.Sorted(maps.Keys(*w.used.Load())) {
		for _, kind := range []store.PartKind{store.PartHold, store.PartHeld, store.PartDue} {
			var last store.Cell
			if err := w.walk(ctx, namespace, kind, func(ctx context.Context, page []store.PartEntry) error {
				for i := range page {
					if c := page[i].Cell; c != last && page[i].Content.N != 0 {
						last = c
						if err := v.counter(ctx, c, kind); err != nil {
							return err
						}
					}
				}
				return nil
			}); err != nil {
				return err
			}
		}
	}
	if v.restless > 0 {
		a.Unproved = append(a.Unproved, fmt.Sprintf("%d counters were written to each time that their reservations were compared", v.restless))
	}
	if v.more > 0 {
		a.Unproved = append(a.Unproved, fmt.Sprintf("%d further differences of reservations", v.more))
	}
	return nil
}

type verifier struct {
	*Worker
	audit                  *store.Audit
	restless, drifts, more int
}

// reserved is what one counter has: what is held of it by who, and what that should be.
type reserved struct {
	have, want [2]map[string]int64 // sums, numbers
	due        map[store.Part]int64
	holds      map[store.Part]int64 // as they stand in the order of deadlines
	parts      int64
}

// counter verifies one counter, unless it was verified for a kind of parts before this one.
func (v *verifier) counter(ctx context.Context, c store.Cell, kind store.PartKind) error {
	for range verifyTries {
		var before, after [1]store.Value
		if err := v.Store.Read(ctx, []store.Cell{c}, before[:]); err != nil {
			return err
		}
		r, err := v.read(ctx, c)
		if err != nil {
			return err
		}
		if kind != store.PartHold && len(r.holds) > 0 || kind == store.PartDue && len(r.have[1]) > 0 {
			return nil
		}
		if err := v.Store.Read(ctx, []store.Cell{c}, after[:]); err != nil {
			return err
		}
		if before[0].Version != after[0].Version {
			continue
		}
		v.audit.Cells += r.parts
		v.judge(c, r)
		return nil
	}
	v.restless++
	return nil
}

// read reads all parts of a counter that reservations have.
func (v *verifier) read(ctx context.Context, c store.Cell) (*reserved, error) {
	r := &reserved{due: map[store.Part]int64{}, holds: map[store.Part]int64{}}
	for i := range r.have {
		r.have[i], r.want[i] = map[string]int64{}, map[string]int64{}
	}
	for _, kind := range []store.PartKind{store.PartHold, store.PartHeld, store.PartDue} {
		rows := hold.RowsOfKind(c, kind)
		for {
			page, err := v.Store.ScanParts(ctx, rows, laneRows)
			if err != nil {
				return nil, err
			}
			for i := range page {
				r.take(c, &page[i])
			}
			if len(page) < laneRows {
				break
			}
			_, row := store.AppendRow(nil, c, page[len(page)-1].Part)
			rows.From = string(row) + "\x00"
		}
	}
	return r, nil
}

func (r *reserved) take(c store.Cell, e *store.PartEntry) {
	r.parts++
	f, _ := e.Part.Fields()
	switch f.Kind {
	case store.PartHeld:
		if e.Content.N != 0 && (f.Position == 0 || f.Position == 1) {
			r.have[f.Position][f.Name] = e.Content.N
		}
	case store.PartDue:
		r.due[e.Part] = e.Content.N
	default:
		h, deadline, ok := hold.Of(c.Key, e.Part, e.Content.N)
		if !ok {
			return
		}
		r.holds[h.Due(deadline)] = h.Amount
		whose := []string{""}
		if h.Who != "" {
			whose = append(whose, h.Who)
		}
		for _, who := range whose {
			r.want[0][who] += h.Amount
			r.want[1][who]++
		}
	}
}

// judge compares what a counter has.
func (v *verifier) judge(c store.Cell, r *reserved) {
	for i, what := range []string{"what is reserved", "how many reservations are open"} {
		all := maps.Clone(r.want[i])
		maps.Copy(all, r.have[i])
		for _, who := range slices.Sorted(maps.Keys(all)) {
			of := what
			if who != "" {
				of += fmt.Sprintf(" for %q", who)
			}
			if have, want := r.have[i][who], r.want[i][who]; have != want {
				v.drift(c, of, have, want)
			}
		}
	}
	if !maps.Equal(r.due, r.holds) {
		v.drift(c, "reservations in the order of their deadlines", int64(len(r.due)), int64(len(r.holds)))
	}
}

func (v *verifier) drift(c store.Cell, what string, have, want int64) {
	if v.drifts++; v.drifts > driftsMax {
		v.more++
		return
	}
	v.audit.Drift = append(v.audit.Drift, store.Drift{
		What: fmt.Sprintf("counter %q of namespace %q: %s", c.Key, c.Namespace, what),
		Have: strconv.FormatInt(have, 10), Want: strconv.FormatInt(want, 10),
	})
}
