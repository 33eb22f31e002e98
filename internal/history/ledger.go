package history

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"hash/fnv"
	"io"
	"time"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/internal/ledger"
	"github.com/quipudb/quipu/internal/view"
	"github.com/quipudb/quipu/store"
)

const (
	linesDefault = 100
	linesLooked  = 20_000 // lines that are looked at for one page, if few match
)

// Ledger returns a page of the ledger of a counter, the latest line first. Every counter
// has one of its adjustments, whatever its definition.
func (r *Reader) Ledger(ctx context.Context, key string, o call.LedgerOptions) (call.LedgerPage, error) {
	if err := store.CheckKey(key); err != nil {
		return call.LedgerPage{}, err
	}
	switch {
	case o.Limit < 0:
		return call.LedgerPage{}, store.Errorf(store.KindInvalid, "limit %d is negative", o.Limit)
	case o.Limit > call.LedgerMax:
		return call.LedgerPage{}, store.Errorf(store.KindTooLarge, "page of %d lines: at most %d", o.Limit, call.LedgerMax)
	case o.Limit == 0:
		o.Limit = linesDefault
	}
	var page call.LedgerPage
	var views *view.Views
	if k := r.Known.Of(key); k != nil {
		views = k.Views
		if l, ok := views.Ledger(); ok {
			page.CompleteFrom = r.completeFrom(l)
		}
	}
	m, err := r.lines(ctx, key, views, o)
	if err != nil {
		return call.LedgerPage{}, err
	}
	from, to := between(o)
	for looked := 0; ; looked++ {
		e, line := m.line()
		if e == nil {
			return page, nil
		}
		if len(page.Lines) == o.Limit || looked == linesLooked {
			page.Next = r.cursor(key, o, m)
			return page, nil
		}
		l := &e.Lines[line]
		if (o.Actor == "" || l.Actor == o.Actor) && (o.Token == "" || l.Token == o.Token) && e.MS >= from && e.MS < to {
			page.Lines = append(page.Lines, e.line(line, m.at.mark))
		}
		if err := m.step(ctx); err != nil {
			return call.LedgerPage{}, err
		}
	}
}

// completeFrom returns from when on a ledger has every line.
func (r *Reader) completeFrom(l view.Shown) time.Time {
	at, ok := r.Known.Since(l.View)
	if !ok {
		return time.Time{}
	}
	if l.Keep != 0 {
		at = max(at, r.Now-l.Keep)
	}
	return time.UnixMilli(at)
}

// between returns the times that lines must be recorded at.
func between(o call.LedgerOptions) (from, to int64) {
	to = 1 << 62
	if !o.From.IsZero() {
		from = o.From.UnixMilli()
	}
	if !o.To.IsZero() {
		to = o.To.UnixMilli()
	}
	return from, to
}

// lines returns the lines of a counter from where a page begins.
func (r *Reader) lines(ctx context.Context, key string, views *view.Views, o call.LedgerOptions) (*merged, error) {
	cells, err := r.shards(ctx, key)
	if err != nil {
		return nil, err
	}
	from, to := between(o)
	m := &merged{streams: r.streams(key, cells, views, from, to)}
	if o.Cursor != "" {
		if err := r.resume(key, o, m); err != nil {
			return nil, err
		}
	}
	return m, m.begin(ctx)
}

// line returns a line as people see it.
func (e *entry) line(i int, at mark) call.Line {
	l := &e.Lines[i]
	out := call.Line{
		Position: ledger.Position{Version: at.version, Line: uint16(i), Shard: at.shard}.String(), Kind: l.Kind.String(),
		At: time.UnixMilli(l.AtMS), Recorded: time.UnixMilli(e.MS), Token: l.Token, Actor: l.Actor, Reason: l.Reason, Source: l.Source,
		Erased: l.Erased, Undone: e.undone[uint16(i)], Dims: l.Dims,
	}
	out.Delta, out.DeltaKnown = e.Delta(i)
	if l.AtMS == 0 {
		out.At = out.Recorded
	}
	if l.Undoes != (ledger.Position{}) {
		out.Undoes = l.Undoes.String()
	}
	if i == len(e.Lines)-1 { // Of a step of several lines, the value is that after the last.
		out.Value, out.ValueKnown = e.Value, e.Known
	}
	return out
}

// A cursor is a hash of what the list is of, and the mark of each stream.

// cursor returns where the next page begins.
func (r *Reader) cursor(key string, o call.LedgerOptions, m *merged) string {
	b := binary.BigEndian.AppendUint32(nil, r.listOf(key, o))
	for _, s := range m.streams {
		k := s.mark
		for _, n := range []uint64{uint64(k.view), uint64(k.shard), uint64(k.epoch), k.version, uint64(k.line)} {
			b = binary.AppendUvarint(b, n)
		}
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// resume puts streams where a cursor says. Those that it does not have are of a shard, or a
// definition, that came later: what they have is later too.
func (r *Reader) resume(key string, o call.LedgerOptions, m *merged) error {
	bad := func() error {
		return store.Errorf(store.KindInvalid, "cursor %.40q does not belong to this ledger: want the cursor of the page before, with the same options", o.Cursor)
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(o.Cursor)
	if err != nil || len(raw) < 4 || binary.BigEndian.Uint32(raw) != r.listOf(key, o) {
		return bad()
	}
	raw = raw[4:]
	marks := map[[2]uint16]mark{}
	for len(raw) > 0 {
		var n [5]uint64
		for i := range n {
			var w int
			if n[i], w = binary.Uvarint(raw); w <= 0 {
				return bad()
			}
			raw = raw[w:]
		}
		k := mark{uint16(n[0]), uint16(n[1]), store.Epoch(n[2]), n[3], uint16(n[4])}
		marks[[2]uint16{k.view, k.shard}] = k
	}
	for _, s := range m.streams {
		k, ok := marks[[2]uint16{s.mark.view, s.mark.shard}]
		if k.epoch > s.mark.epoch {
			return bad() // It would take years to walk from there.
		}
		if !ok || k.epoch < s.oldest {
			k = mark{view: s.mark.view, shard: s.mark.shard}
		}
		s.mark = k
	}
	return nil
}

// listOf stands for the list that a cursor is of.
func (r *Reader) listOf(key string, o call.LedgerOptions) uint32 {
	h := fnv.New32a()
	for _, part := range []string{r.Known.Namespace, key, o.Actor, o.Token, o.From.UTC().String(), o.To.UTC().String()} {
		_, _ = io.WriteString(h, part) // It never fails.
		_, _ = h.Write([]byte{0xff})   // No text has it.
	}
	return h.Sum32()
}
