package history

import (
	"context"
	"encoding/base64"
	"time"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/internal/ledger"
	"github.com/quipudb/quipu/internal/view"
	"github.com/quipudb/quipu/store"
)

// erasePage is how many entries are read at a time: one may have 64 KiB. Of members, which
// are small, more are.
const (
	erasePage  = 256
	eraseNames = 1000
)

// eraseKinds are the kinds of parts that may have someone's name, in the order in which they
// are walked over: what is taken back from members writes lines without a name.
var eraseKinds = []store.PartKind{store.PartMember, store.PartEntries, store.PartOnce}

// Erase takes someone's name out of the namespace: out of all lines of its ledgers, where
// counts stay, and out of reactions, which are taken back. It walks over every entry, also
// over those that no definition asks for any more. If ctx has a deadline it stops in time,
// and says where to go on. It may be repeated.
func (r *Reader) Erase(ctx context.Context, who, cursor string) (call.Erasure, error) {
	w := &eraser{reader: r, who: who, done: call.Erasure{Next: cursor}, counters: map[string]bool{}}
	if err := call.CheckWho(who); err != nil || who == "" {
		if err == nil {
			err = store.Errorf(store.KindInvalid, "who is empty")
		}
		return w.done, err
	}
	after, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil {
		return w.done, store.Errorf(store.KindInvalid, "cursor %.40q does not belong to this call: want the cursor of the call before", cursor)
	}
	if end, ok := ctx.Deadline(); ok {
		w.until = time.Now().Add(time.Until(end) * 3 / 4)
	}
	for _, kind := range eraseKinds {
		if len(after) > 0 && after[0] > byte(kind) {
			continue
		}
		if more, err := w.walk(ctx, kind, string(after)); err != nil || more {
			return w.done, err
		}
		after = nil
	}
	w.done.Complete, w.done.Next = true, ""
	return w.done, nil
}

// An eraser is one Erase.
type eraser struct {
	reader   *Reader
	who      string
	until    time.Time // zero if there is time enough
	done     call.Erasure
	counters map[string]bool // that had the name
}

// walk walks over all parts of a kind that come after a row, and reports whether it had to
// stop before the end.
func (w *eraser) walk(ctx context.Context, kind store.PartKind, after string) (more bool, err error) {
	rows := store.Rows{Namespace: w.reader.Known.Namespace, From: string([]byte{byte(kind)}), To: string([]byte{byte(kind) + 1})}
	rows.From = max(rows.From, after)
	size := eraseNames
	if kind == store.PartEntries {
		size = erasePage
	}
	for {
		page, err := w.reader.Store.ScanParts(ctx, rows, size)
		if err != nil {
			return true, err
		}
		for i := range page {
			if err := w.erase(ctx, &page[i]); err != nil {
				return true, err
			}
		}
		w.done.Counters = int64(len(w.counters))
		if len(page) < size {
			return false, nil
		}
		if rows, err = w.next(ctx, rows, &page[0], &page[len(page)-1]); err != nil {
			return true, err
		}
		w.done.Next = base64.RawURLEncoding.EncodeToString([]byte(rows.From))
		if !w.until.IsZero() && time.Now().After(w.until) {
			return true, nil
		}
	}
}

// next returns what is left of rows after a page. If all of it is of one set of names, the
// rest of that has one at most, which is looked up, and the walk goes on behind it: a post
// may have millions.
func (w *eraser) next(ctx context.Context, rows store.Rows, first, last *store.PartEntry) (store.Rows, error) {
	f, _ := first.Part.Fields()
	l, _ := last.Part.Fields()
	left := beyond(rows, last)
	if f.Kind == store.PartEntries || first.Cell != last.Cell || f.View != l.View || f.Epoch != l.Epoch || f.Position != l.Position {
		return left, nil
	}
	if l.Name < w.who {
		l.Name = w.who
		at := store.PartEntry{PartCell: store.PartCell{Cell: last.Cell, Part: l.Part()}}
		var is [1]store.Content
		if err := w.reader.Store.ReadParts(ctx, []store.PartCell{at.PartCell}, is[:]); err != nil {
			return left, err
		}
		if at.Content = is[0]; at.Content.Exists {
			if err := w.erase(ctx, &at); err != nil {
				return left, err
			}
		}
	}
	l.Position, l.Name = l.Position+1, ""
	_, row := store.AppendRow(nil, last.Cell, l.Part())
	left.From = string(row)
	return left, nil
}

// counterOf returns the counter that a cell is, or is a shard of.
func counterOf(c store.Cell) store.Cell {
	if of, _, ok := store.ShardOf(c); ok {
		return of
	}
	return c
}

// erase takes the name out of a part.
func (w *eraser) erase(ctx context.Context, p *store.PartEntry) error {
	w.done.Looked++
	f, _ := p.Part.Fields()
	had := true
	switch {
	case f.Kind == store.PartEntries:
		n, err := w.lines(ctx, p)
		if err != nil {
			return err
		}
		w.done.Lines, had = w.done.Lines+int64(n), n > 0
	case f.Name != w.who:
		return nil
	case f.Kind == store.PartMember:
		if unreact := w.reader.Unreact; unreact != nil {
			was, err := unreact(ctx, counterOf(p.Cell).Key, w.who)
			if err != nil && store.KindOf(err) != store.KindInvalid { // Its definition may have no choices any more.
				return err
			}
			if was {
				w.done.Reactions++
			}
		}
		if err := w.remove(ctx, p.PartCell); err != nil { // if it is still there, from before a reset
			return err
		}
	default:
		if err := w.remove(ctx, p.PartCell); err != nil {
			return err
		}
		w.done.Windows++
	}
	if had {
		w.counters[counterOf(p.Cell).Key] = true
	}
	return nil
}

// remove removes a part that has the name. Of members, there is one less then: those of
// counters that were reset, or have no choices any more, are still counted somewhere.
func (w *eraser) remove(ctx context.Context, p store.PartCell) error {
	e := &store.Event{Part: p.Part}
	if f, _ := p.Part.Fields(); f.Kind == store.PartMember {
		e.Riders = []store.Rider{{
			Part: view.Members(f.Position, 0), Place: store.PlaceMet, Op: store.OpAdd, N: -1, When: store.Met{Kind: store.MetNot},
		}}
	}
	for {
		var is [1]store.Content
		if err := w.reader.Store.ReadParts(ctx, []store.PartCell{p}, is[:]); err != nil || !is[0].Exists {
			return err
		}
		switch outcome, err := w.reader.change(ctx, p, store.Delta{Op: store.OpDelete, Event: e}); {
		case store.KindOf(err) == store.KindLate:
			return nil
		case store.KindOf(err) == store.KindChanged:
		case err != nil:
			return err
		case outcome == store.Split:
			if err := w.reader.fold(ctx, counterOf(p.Cell)); err != nil {
				return err
			}
		default:
			return outcome.Err()
		}
	}
}

// lines takes the name out of an entry, and returns out of how many lines.
func (w *eraser) lines(ctx context.Context, p *store.PartEntry) (lines int, err error) {
	r := w.reader
	if f, _ := p.Part.Fields(); f.Name != "" {
		return 0, nil // It only says that a line was taken back.
	}
	content := []store.Content{p.Content}
	for {
		e, err := ledger.ParseEntry(content[0].Bytes)
		if err != nil {
			return 0, err
		}
		n := 0
		for i := range e.Lines {
			if l := &e.Lines[i]; l.Actor == w.who {
				l.Actor, l.Erased = "", true
				n++
			}
		}
		if n == 0 {
			return 0, nil
		}
		b, err := e.Append(nil)
		if err != nil {
			return 0, err
		}
		switch outcome, err := r.replace(ctx, p.PartCell, content[0].N, b); {
		case store.KindOf(err) == store.KindLate: // It is gone as a whole.
			return 0, nil
		case store.KindOf(err) == store.KindChanged: // The counter came into being, or went.
		case err != nil:
			return 0, err
		case outcome == store.Applied:
			return n, nil
		case outcome == store.Split:
			if err := r.fold(ctx, counterOf(p.Cell)); err != nil {
				return 0, err
			}
		case outcome != store.Unmet:
			return 0, outcome.Err()
		}
		if err := r.Store.ReadParts(ctx, []store.PartCell{p.PartCell}, content); err != nil {
			return 0, err
		}
		if !content[0].Exists {
			return 0, nil
		}
	}
}

// replace puts other bytes into a part, if it still is what was read.
func (r *Reader) replace(ctx context.Context, p store.PartCell, is int64, b []byte) (store.Outcome, error) {
	return r.change(ctx, p, store.Delta{Op: store.OpPut, Event: &store.Event{Part: p.Part, Bytes: b, Is: store.Met{Kind: store.MetEqual, N: is}}})
}

// change changes a part. An event makes its counter exist, so a counter that was deleted is
// deleted again in the same step.
func (r *Reader) change(ctx context.Context, p store.PartCell, d store.Delta) (store.Outcome, error) {
	values := make([]store.Value, 1)
	if err := r.Store.Read(ctx, []store.Cell{p.Cell}, values); err != nil {
		return 0, err
	}
	d.Cell = p.Cell
	batch := store.Batch{Deltas: []store.Delta{d}}
	if !values[0].Exists {
		batch.If = []store.Condition{{Cell: p.Cell}}
		batch.Deltas = append(batch.Deltas, store.Delta{Cell: p.Cell, Op: store.OpDelete})
	}
	return r.apply(ctx, batch)
}

// fold makes a split counter one cell: a write that wants its value does.
func (r *Reader) fold(ctx context.Context, c store.Cell) error {
	d := store.Delta{Cell: c, Op: store.OpAdd, Want: true}
	if k := r.Known.Of(c.Key); k != nil {
		d.Event = k.Touch
	}
	outcome, err := r.apply(ctx, store.Batch{Deltas: []store.Delta{d}})
	if err == nil {
		err = outcome.Err()
	}
	return err
}

// apply applies a batch of one cell, and returns what became of its first delta.
func (r *Reader) apply(ctx context.Context, b store.Batch) (store.Outcome, error) {
	b.Partition = store.PartitionOf(b.Deltas[0].Cell, r.Store.Traits().Partitions)
	b.Books = r.Known.Fence
	var replies [1]store.Reply
	if err := r.Store.Apply(ctx, []store.Batch{b}, replies[:]); err != nil {
		return 0, err
	}
	if replies[0].Err != nil {
		return 0, replies[0].Err
	}
	return replies[0].Results[0].Outcome, nil
}
