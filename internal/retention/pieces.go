package retention

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/quipudb/quipu/internal/keyspace"
	"github.com/quipudb/quipu/store"
)

const (
	// piecesBytesMax is about how many bytes of sketches a round reads. The next round goes on
	// from there.
	piecesBytesMax = 16 << 20

	// piecesPage is how many rows are read at once, and removed in a step. Each may have 64 KiB.
	piecesPage = 32

	piecesTries     = 3        // to remove some of a key that others change
	piecesRowBytes  = 1 << 10  // that a row counts for besides its bytes
	piecesScanBytes = 64 << 10 // that a read counts for, so that a round has not too many of them
)

// pieces is where a walk over the pieces of large sketches is. A key that was deleted, replaced or has
// expired leaves its pieces behind, since no store knows of them; the walk removes them.
//
// A walk goes over the namespaces that ever had such a sketch, as their list in the store says. Servers put a namespace into
// the list before they make its first one. Those of before there was a list did not: so the first walk
// after a start goes over all namespaces, and adds to the list those that have pieces.
type pieces struct {
	noted sync.Map // namespaces that this server has seen in the list, or put there

	left  []string // namespaces that the walk has not finished
	row   string   // where it goes on in the first of them
	begun bool     // there was a walk since the start
	sum   int64    // pieces that are in use, as far as the walk has come

	used, removed atomic.Int64
}

// sketched is the cell that has the list of namespaces.
func sketched() store.Cell { return store.Cell{Key: "pieces"} }

func sketchedPart(namespace string) store.Part {
	return store.PartFields{Kind: store.PartDue, Name: namespace}.Part()
}

// NotePieces puts a namespace into the list of those that have sketches in pieces, once. It is
// called before one is made.
func (w *Worker) NotePieces(ctx context.Context, namespace string) error {
	if _, known := w.pieces.noted.Load(namespace); known {
		return nil
	}
	cell := sketched()
	b := store.Batch{Partition: store.PartitionOf(cell, len(w.raised)), Deltas: []store.Delta{{Cell: cell, Op: store.OpSet, N: 1, Event: &store.Event{
		Part: sketchedPart(namespace), Is: store.Met{Kind: store.MetEqual},
	}}}}
	result, err := w.one(ctx, b)
	if err != nil {
		return err
	}
	if o := result.Outcome; o != store.Applied && o != store.Unmet { // It is there.
		return o.Err()
	}
	w.pieces.noted.Store(namespace, true)
	return nil
}

// one applies a batch of one delta.
func (w *Worker) one(ctx context.Context, b store.Batch) (store.Result, error) {
	var replies [1]store.Reply
	if err := w.Store.Apply(ctx, []store.Batch{b}, replies[:]); err != nil {
		return store.Result{}, err
	}
	if err := replies[0].Err; err != nil {
		return store.Result{}, err
	}
	return replies[0].Results[0], nil
}

// Pieces removes pieces of large sketches whose keys hold something else by now, or nothing. It goes
// through all pieces around and around, some each time, and reports whether it has come to the end. It does
// not matter how many servers do this, or when: a piece is removed on condition that its key is as it was when it was found
// not to name it, and no key ever names it again. It is not to be called twice at the same time.
func (w *Worker) Pieces(ctx context.Context) (done bool, err error) {
	p := &w.pieces
	if len(p.left) == 0 {
		if p.left, err = w.sketchedNamespaces(ctx); err != nil {
			return false, err
		}
		p.row, p.sum, p.begun = "", 0, true
	}
	budget := piecesBytesMax
	for len(p.left) > 0 {
		done, err := w.piecesIn(ctx, p.left[0], &budget)
		if err == nil && !done {
			return false, nil
		}
		p.left, p.row = p.left[1:], ""
		if err != nil { // The others come next time.
			return false, err
		}
	}
	p.used.Store(p.sum)
	return true, nil
}

// sketchedNamespaces returns the namespaces that may have pieces.
func (w *Worker) sketchedNamespaces(ctx context.Context) (all []string, err error) {
	rows := store.RowsOf(sketched(), store.PartFields{Kind: store.PartDue}, store.PartFields{Kind: store.PartDue, Position: 1})
	listed := make(map[string]bool)
	for full := true; full; {
		found, err := w.Store.ScanParts(ctx, rows, gonePage)
		if err != nil {
			return nil, err
		}
		for i := range found {
			f, _ := found[i].Part.Fields()
			listed[f.Name] = true
			all = append(all, f.Name)
			w.pieces.noted.Store(f.Name, true)
		}
		if full = len(found) == gonePage; full {
			rows.From = rowAfter(&found[len(found)-1])
		}
	}
	w.pieces.noted.Range(func(namespace, _ any) bool {
		if !listed[namespace.(string)] { // The store has lost it.
			w.pieces.noted.Delete(namespace)
			all = append(all, namespace.(string))
		}
		return true
	})
	if names, ok := w.Store.(store.Namespacer); ok && !w.pieces.begun {
		for after, full := "", true; full; {
			found, err := names.Namespaces(ctx, after, store.ScanMax)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
			if full = len(found) == store.ScanMax; full {
				after = found[len(found)-1]
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

func rowAfter(e *store.PartEntry) string {
	_, row := store.AppendRow(nil, e.Cell, e.Part)
	return string(row) + "\x00"
}

// piecesIn goes on with a namespace, and reports whether it has come to its end.
func (w *Worker) piecesIn(ctx context.Context, namespace string, budget *int) (done bool, err error) {
	rows := store.RowsUnder(namespace, store.PartFields{Kind: store.PartSketch}, "")
	for {
		if w.pieces.row != "" {
			rows.From = w.pieces.row
		}
		if *budget <= 0 {
			return false, nil
		}
		page, err := w.Store.ScanParts(ctx, rows, piecesPage)
		if err != nil {
			return false, err
		}
		*budget -= piecesScanBytes
		for i := range page {
			*budget -= len(page[i].Content.Bytes) + piecesRowBytes
		}
		var errs []error
		for rest := page; len(rest) > 0; {
			n := 1
			for n < len(rest) && rest[n].Cell == rest[0].Cell {
				n++
			}
			errs = append(errs, w.piecesOf(ctx, slices.DeleteFunc(slices.Clone(rest[:n]), notPiece)))
			rest = rest[n:]
		}
		if err := errors.Join(errs...); err != nil || len(page) < piecesPage {
			return err == nil, err
		}
		last := &page[len(page)-1]
		if w.pieces.row = rowAfter(last); notPiece(*last) { // Nor are those after it of the same counter.
			lead, _ := last.Part.Row()
			_, owner := store.AppendRowOwner([]byte(lead), last.Cell)
			w.pieces.row = string(owner) + "\xff\xff"
		}
	}
}

// notPiece reports whether a part is a sketch of a view, which has a number.
func notPiece(e store.PartEntry) bool {
	f, _ := e.Part.Fields()
	return f.View != 0 || f.Name == ""
}

// piecesOf removes those of some pieces of one key that it does not name.
func (w *Worker) piecesOf(ctx context.Context, found []store.PartEntry) error {
	if len(found) == 0 {
		return nil
	}
	c := found[0].Cell
	if err := w.NotePieces(ctx, c.Namespace); err != nil {
		return err
	}
	known, err := w.Books.Get(ctx, c.Namespace)
	if err != nil {
		return err
	}
	for range piecesTries { // Others may change the key meanwhile. If they do all the time, its pieces go another time.
		v, held, name, err := w.headOf(ctx, c)
		if err != nil || name == unknownName {
			return err
		}
		dead := slices.DeleteFunc(slices.Clone(found), func(e store.PartEntry) bool {
			f, _ := e.Part.Fields()
			return f.Name == name
		})
		if len(dead) == 0 {
			w.pieces.sum += int64(len(found))
			return nil
		}
		b := store.Batch{Partition: store.PartitionOf(c, len(w.raised)), Books: known.Fence, Apart: true, Durability: store.Memory}
		b.Deltas = []store.Delta{dropping(c, v, held, dead)}
		result, err := w.one(ctx, b)
		if err != nil {
			if store.KindOf(err) == store.KindOutdated { // The next time with the next book.
				err = nil
			}
			return err
		}
		if result.Outcome == store.Applied {
			w.pieces.removed.Add(int64(len(dead)))
			w.pieces.sum += int64(len(found) - len(dead))
			return nil
		}
	}
	return nil
}

// unknownName is that of the pieces of a sketch that a later server has made.
const unknownName = "?"

// headOf returns what a key is, the bytes that it holds, and the name of its pieces, if it has any. The
// bytes are of that version of the key, or of a later one.
func (w *Worker) headOf(ctx context.Context, c store.Cell) (v store.Value, held, name string, err error) {
	var own [1]store.Value
	if err := w.Store.Read(ctx, []store.Cell{c}, own[:]); err != nil || !own[0].IsObject() {
		return own[0], "", "", err
	}
	var bytes [1]store.Content
	if err := w.Store.ReadParts(ctx, []store.PartCell{{Cell: c, Part: store.Object}}, bytes[:]); err != nil {
		return v, "", "", err
	}
	held = bytes[0].Bytes
	if _, ok := keyspace.Hold(held); !ok {
		return own[0], held, unknownName, nil
	}
	name, _, _ = keyspace.PiecesOf(held)
	return own[0], held, name, nil
}

// dropping returns the delta that removes pieces of a key which is at a version, and leaves what the key holds
// as it is: it becomes what it was.
func dropping(c store.Cell, v store.Value, held string, pieces []store.PartEntry) store.Delta {
	d := store.Delta{Cell: c, Guard: store.Guard{Match: true, Version: v.Version}, Event: &store.Event{}}
	switch {
	case !v.Exists:
		d.Op, d.Guard = store.OpDelete, store.Guard{Exists: store.ExistsNot}
	case v.IsObject():
		d.Op, d.Event.Part, d.Event.Bytes = store.OpPut, store.Object, []byte(held)
	case v.DeadlineMS != 0: // It has no views.
		d.Op, d.N, d.Event.Part = store.OpSet, v.N, store.Object
	default:
		d.Op, d.Guard.Laid, d.Guard.Layout = store.OpAdd, v.Layout != 0, v.Layout
	}
	for i := range pieces {
		d.Event.Riders = append(d.Event.Riders, store.Rider{Part: pieces[i].Part, Op: store.OpDelete})
	}
	return d
}
