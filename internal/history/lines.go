package history

import (
	"context"
	"math"
	"time"

	"github.com/quipudb/quipu/internal/ledger"
	"github.com/quipudb/quipu/internal/view"
	"github.com/quipudb/quipu/store"
)

// A mark is how far a stream has come: what is left is before it. A mark of no epoch is
// the end.
type mark struct {
	view    uint16
	shard   uint16
	epoch   store.Epoch
	version uint64
	line    uint16 // of the entry at the version, what is below is left
}

// A stream walks the lines of one shard of a counter in one view, the latest first: epoch
// by epoch, and in an epoch by version.
type stream struct {
	reader *Reader
	cell   store.Cell
	mark   mark        // of the head, if there is one
	oldest store.Epoch // where it ends
	from   int64       // lines that were recorded before are not wanted

	page []store.PartEntry
	rows store.Rows // what is left of the epoch after the page
	more bool       // there may be some

	head *entry // the next line is its last; nil is the end
}

// An entry is one that was read, with the lines that are left of it.
type entry struct {
	ledger.Entry
	part   store.PartFields
	cell   store.Cell
	n      int64 // its number
	left   int
	undone map[uint16]bool
}

// streams returns the streams of a counter: of the ledger of its definition, of those that
// it had before, and of the adjustments that are recorded without one.
func (r *Reader) streams(key string, cells []store.Cell, views *view.Views, from, to int64) []*stream {
	var all []*stream
	retired := r.Known.Book.Ledgers(key)
	for i, c := range cells {
		add := func(view uint16, newest, oldest store.Epoch) {
			s := &stream{reader: r, cell: c, oldest: oldest, from: from}
			s.mark = mark{view, uint16(i), newest, math.MaxInt64, 0}
			all = append(all, s)
		}
		add(0, store.EpochForever, store.EpochForever)
		// A line may be framed a while before it is recorded, and a floor is behind what is
		// kept.
		ledger := func(view uint16, epochs, keep time.Duration, to int64) {
			begin, end := store.EpochAt(r.Now, epochs).Span()
			first := max(from, 0)
			if keep != 0 {
				first = max(first, r.Now-keep.Milliseconds()-(end-begin))
			}
			add(view, store.EpochAt(to, epochs), store.EpochAt(first-(end-begin), epochs))
		}
		if views != nil {
			if l, ok := views.Ledger(); ok {
				ledger(l.View.ID, time.Duration(l.View.Epoch), time.Duration(l.Keep)*time.Millisecond, min(to, r.Now+hour))
			}
		}
		for _, l := range retired {
			ledger(l.ID, time.Duration(l.Epoch), time.Duration(l.Keep), min(to, l.At+hour))
		}
	}
	return all
}

const hour = int64(time.Hour / time.Millisecond)

// streamPage is how many entries are read at a time.
const streamPage = 256

// begin reads the first line that is before the mark.
func (s *stream) begin(ctx context.Context) error {
	if s.mark.epoch == 0 && s.mark.version == 0 { // It had ended.
		return nil
	}
	s.rows, s.more = s.epoch(s.mark.epoch, s.mark.version), true
	bound := s.mark
	if err := s.next(ctx); err != nil || s.head == nil {
		return err
	}
	if s.mark.epoch == bound.epoch && s.mark.version == bound.version {
		if s.head.left = min(s.head.left, int(bound.line)); s.head.left == 0 {
			return s.next(ctx)
		}
		s.mark.line = uint16(s.head.left)
	}
	return nil
}

// epoch returns the rows of an epoch up to a version, with it.
func (s *stream) epoch(e store.Epoch, version uint64) store.Rows {
	from := store.PartFields{Kind: store.PartEntries, View: s.mark.view, Epoch: e}
	to := from
	to.Position = math.MaxInt64
	if version < math.MaxInt64 {
		to.Position = int64(version) + 1
	}
	rows := store.RowsOf(s.cell, from, to)
	rows.Back = true
	return rows
}

// step goes on to the line before the head.
func (s *stream) step(ctx context.Context) error {
	if s.head.left--; s.head.left > 0 {
		s.mark.line = uint16(s.head.left)
		return nil
	}
	return s.next(ctx)
}

// next makes the next entry the head, or says that there is none.
func (s *stream) next(ctx context.Context) error {
	s.head = nil
	var undone map[uint16]bool
	for {
		if len(s.page) == 0 {
			if ok, err := s.read(ctx); err != nil || !ok {
				return err
			}
			continue
		}
		p := s.page[0]
		s.page = s.page[1:]
		f, _ := p.Part.Fields()
		if f.Name != "" { // It stands before its entry, as this goes back.
			if line, ok := ledger.Undone(f.Name); ok {
				if undone == nil {
					undone = map[uint16]bool{}
				}
				undone[line] = true
			}
			continue
		}
		e, err := ledger.ParseEntry(p.Content.Bytes)
		if err != nil {
			return err
		}
		if e.MS < s.from || len(e.Lines) == 0 { // All that follow in the epoch are earlier still.
			if undone = nil; len(e.Lines) > 0 {
				s.page, s.more = nil, false
			}
			continue
		}
		s.head = &entry{Entry: e, part: f, cell: s.cell, n: p.Content.N, left: len(e.Lines), undone: undone}
		s.mark.epoch, s.mark.version, s.mark.line = f.Epoch, uint64(f.Position), uint16(len(e.Lines))
		return nil
	}
}

// read reads the next page; ok is false at the end.
func (s *stream) read(ctx context.Context) (ok bool, err error) {
	if !s.more {
		if s.mark.epoch <= s.oldest {
			s.mark = mark{view: s.mark.view, shard: s.mark.shard}
			return false, nil
		}
		s.mark.epoch--
		s.rows, s.more = s.epoch(s.mark.epoch, math.MaxInt64), true
	}
	if s.page, err = s.reader.Store.ScanParts(ctx, s.rows, streamPage); err != nil {
		return false, err
	}
	if s.more = len(s.page) == streamPage; s.more {
		s.rows = beyond(s.rows, &s.page[len(s.page)-1])
	}
	return true, nil
}

// A merged walks several streams, the latest line first. Lines of one stream stay in their
// order.
type merged struct {
	streams []*stream
	at      *stream // whose head is the next line
}

// begin reads what comes first of each stream.
func (m *merged) begin(ctx context.Context) error {
	for _, s := range m.streams {
		if err := s.begin(ctx); err != nil {
			return err
		}
	}
	m.choose()
	return nil
}

// choose finds the latest head.
func (m *merged) choose() {
	m.at = nil
	for _, s := range m.streams {
		if s.head != nil && (m.at == nil || s.head.MS > m.at.head.MS || s.head.MS == m.at.head.MS && s.mark.version > m.at.mark.version) {
			m.at = s
		}
	}
}

// line returns the entry of the next line, and which one of its lines that is; nil is the
// end.
func (m *merged) line() (e *entry, line int) {
	if m.at == nil {
		return nil, 0
	}
	return m.at.head, m.at.head.left - 1
}

// step goes on to the next line.
func (m *merged) step(ctx context.Context) error {
	if err := m.at.step(ctx); err != nil {
		return err
	}
	m.choose()
	return nil
}
