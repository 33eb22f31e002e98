package node

import (
	"context"
	"math/bits"

	"github.com/quipudb/quipu/store"
)

// ReadParts fills contents[i] with what parts[i] holds durably.
func (n *Node) ReadParts(ctx context.Context, parts []store.PartCell, contents []store.Content) error {
	var cells []store.Cell
	own := make([]store.PartCell, len(parts))
	for i, p := range parts {
		if i == 0 || p.Cell != parts[i-1].Cell {
			cells = append(cells, p.Cell)
		}
		own[i] = store.PartCell{Cell: p.Cell, Part: coarsePart(p.Part)}
	}
	if len(parts) == 0 {
		return n.under.ReadParts(ctx, parts, contents)
	}
	n.looked(ctx, len(parts))
	ctx, span := n.span(ctx, "read parts")
	err := n.read(cells, func() error { return n.under.ReadParts(ctx, own, contents) })
	end(span, err)
	return err
}

// ScanParts returns up to count parts of a range of rows in their order.
func (n *Node) ScanParts(ctx context.Context, r store.Rows, count int) (found []store.PartEntry, err error) {
	r.From, r.To = coarseRow(r.Namespace, r.From), coarseRow(r.Namespace, r.To)
	ctx, span := n.span(ctx, "scan parts")
	err = n.read(nil, func() error {
		found, err = n.under.ScanParts(ctx, r, count)
		return err
	})
	end(span, err)
	for i := range found {
		found[i].Part = finePart(found[i].Part)
	}
	return found, err
}

// An entry of the ledger is at the version of the step that wrote it. Callers know that
// by the version that they were told, so the positions of entries are finer too. What is
// at a position that no step can have is kept apart from all others: the bits that are
// lost are turned to the other end.

// finePart returns what callers call a part of the store.
func finePart(p store.Part) store.Part { return turned(p, versionBits) }

// coarsePart returns what the store calls a part.
func coarsePart(p store.Part) store.Part { return turned(p, -versionBits) }

func turned(p store.Part, by int) store.Part {
	if p.Kind() != store.PartEntries {
		return p
	}
	f, ok := p.Fields()
	if !ok {
		return p
	}
	return p.At(int64(bits.RotateLeft64(uint64(f.Position), by)))
}

// coarseRow returns the first row of the store that is not before one that a caller names.
func coarseRow(namespace, row string) string {
	c, p, ok := store.PartOfRow(namespace, []byte(row))
	if !ok || p.Kind() != store.PartEntries { // or it ends before the position
		return row
	}
	f, _ := p.Fields()
	at := f.Position >> versionBits
	if at<<versionBits != f.Position {
		at, f.Name = at+1, ""
	}
	f.Position = at
	_, own := store.AppendRow(nil, c, f.Part())
	return string(own)
}
