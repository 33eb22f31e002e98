package due

import (
	"context"
	"time"

	"github.com/quipudb/quipu/internal/hold"
	"github.com/quipudb/quipu/store"
)

// Hint makes sure that somebody looks at a counter when a hold of it is due, before the hold
// is made: as durable as that is to be.
func (w *Worker) Hint(ctx context.Context, c store.Cell, deadline int64, d store.Durability) error {
	if err := w.mark(ctx, c.Namespace); err != nil {
		return err
	}
	h := hold.HintOf(c, deadline)
	for {
		w.mu.Lock()
		g := w.hinted[h]
		first := g == nil
		if first {
			g = &hinting{done: make(chan struct{})}
			w.forget()
			w.hinted[h] = g
		}
		w.mu.Unlock()
		if first {
			g.err = w.plant(ctx, h, d)
			if g.err != nil {
				w.mu.Lock()
				delete(w.hinted, h)
				w.mu.Unlock()
			}
			close(g.done)
			return g.err
		}
		select {
		case <-g.done:
			if g.err == nil {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// forget makes room for a hint: those that have passed go first.
func (w *Worker) forget() {
	if len(w.hinted) < hintedMax {
		return
	}
	now := w.NowMS(w.lanes[0]) * 1000
	for h := range w.hinted {
		if h.At < now {
			delete(w.hinted, h)
		}
	}
	if len(w.hinted) > hintedMax/2 { // What is put twice is there once.
		clear(w.hinted)
	}
}

// plant puts a hint into the store.
func (w *Worker) plant(ctx context.Context, h hold.Hint, d store.Durability) error {
	lane := w.lanes[h.Lane(len(w.lanes))]
	if err := w.put(ctx, lane, []store.Delta{planted(lane, h)}, d); err != nil {
		return err
	}
	w.hints.Add(1)
	w.expect(h.At)
	return nil
}

func planted(lane store.Cell, h hold.Hint) store.Delta {
	part, n := h.Part()
	return store.Delta{Cell: lane, Op: store.OpMax, N: n, Event: &store.Event{Part: part}}
}

// expect has the worker look at a time, if it would not before.
func (w *Worker) expect(at int64) {
	if w.shared {
		return // It looks all the time.
	}
	if next := w.next.Load(); next != 0 && next <= at {
		return
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// mark writes down, once, that a namespace has holds.
func (w *Worker) mark(ctx context.Context, namespace string) error {
	if w.Uses(namespace) {
		return nil
	}
	d := store.Delta{Cell: hold.Used(), Op: store.OpSet, N: 1, Event: &store.Event{
		Part: hold.UsedPart(namespace), Is: store.Met{Kind: store.MetEqual},
		Riders: []store.Rider{{Part: hold.UsedNumber(), Op: store.OpAdd, N: 1}},
	}}
	if err := w.put(ctx, hold.Used(), []store.Delta{d}, store.DurabilityDefault); err != nil {
		return err
	}
	w.use(namespace)
	return nil
}

// Walk looks at all holds, counts them, and puts back hints that are missing. It removes what is
// left of those who have no hold any more.
func (w *Worker) Walk(ctx context.Context) error {
	for namespace := range *w.used.Load() {
		open := int64(0)
		if err := w.walk(ctx, namespace, store.PartDue, func(ctx context.Context, page []store.PartEntry) error {
			open += int64(len(page))
			return w.rehint(ctx, page)
		}); err != nil {
			return err
		}
		w.mu.Lock()
		w.open[namespace] = open
		w.mu.Unlock()
		if err := w.walk(ctx, namespace, store.PartHeld, w.clean); err != nil {
			return err
		}
	}
	return nil
}

// walk calls f for all parts of a kind, page by page.
func (w *Worker) walk(ctx context.Context, namespace string, kind store.PartKind, f func(context.Context, []store.PartEntry) error) error {
	rows := store.RowsUnder(namespace, store.PartFields{Kind: kind}, "")
	for {
		page, err := w.Store.ScanParts(ctx, rows, laneRows)
		if err == nil && len(page) > 0 {
			err = f(ctx, page)
		}
		if err != nil || len(page) < laneRows {
			return err
		}
		last := &page[len(page)-1]
		_, row := store.AppendRow(nil, last.Cell, last.Part)
		rows.From = string(row) + "\x00"
	}
}

// rehint puts back the hints of holds that are missing.
func (w *Worker) rehint(ctx context.Context, page []store.PartEntry) error {
	seen := map[hold.Hint]bool{}
	var hints []hold.Hint
	var parts []store.PartCell
	for i := range page {
		f, _ := page[i].Part.Fields()
		h := hold.HintOf(page[i].Cell, f.Position)
		if seen[h] {
			continue
		}
		seen[h] = true
		part, _ := h.Part()
		hints, parts = append(hints, h), append(parts, store.PartCell{Cell: w.lanes[h.Lane(len(w.lanes))], Part: part})
	}
	contents := make([]store.Content, len(parts))
	if err := w.Store.ReadParts(ctx, parts, contents); err != nil {
		return err
	}
	deltas := make(map[store.Cell][]store.Delta)
	soonest := int64(0)
	for i, h := range hints {
		if lane := parts[i].Cell; !contents[i].Exists {
			deltas[lane] = append(deltas[lane], planted(lane, h))
			soonest = earlier(soonest, h.At)
		}
	}
	for lane, ds := range deltas {
		if err := w.put(ctx, lane, ds, store.DurabilityDefault); err != nil {
			return err
		}
		w.hints.Add(uint64(len(ds)))
	}
	if soonest != 0 {
		w.expect(soonest)
	}
	return nil
}

// clean removes the counts of those who hold nothing.
func (w *Worker) clean(ctx context.Context, page []store.PartEntry) error {
	who := map[store.Cell][]string{}
	for i := range page {
		if f, _ := page[i].Part.Fields(); f.Name != "" && f.Position == 1 && page[i].Content.N == 0 {
			who[page[i].Cell] = append(who[page[i].Cell], f.Name)
		}
	}
	for cell, names := range who {
		if err := w.Clean(ctx, cell, names); err != nil {
			return err
		}
	}
	return nil
}

// lateAfter is how long after its deadline a hold is given back at the latest.
const lateAfter = time.Second

// Late reports whether what was due at a deadline is given back late.
func Late(deadline, nowMS int64) bool { return nowMS*1000-deadline > int64(lateAfter/time.Microsecond) }
