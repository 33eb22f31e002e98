package pgstore

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/store"
)

// epochNone is the epoch of parts that are not kept for a time.
const epochNone = -1

// A place is where a part is stored.
type place struct {
	epoch     int64
	namespace string
	row       []byte
}

func placeOf(id store.PartCell) place {
	p := place{epoch: epochNone}
	if f, ok := id.Part.FloorOf(); ok {
		p.epoch = int64(f.Epoch)
	}
	p.namespace, p.row = store.AppendRow(nil, id.Cell, id.Part)
	return p
}

// places are those of parts as the arrays that statements take.
type places struct {
	epochs           []int64
	namespaces, rows [][]byte
	tables           []int64 // the epochs, each once
}

func placesOf(parts []store.PartCell) places {
	n := len(parts)
	ps := places{epochs: make([]int64, n), namespaces: make([][]byte, n), rows: make([][]byte, n)} // none is no null
	for i, id := range parts {
		p := placeOf(id)
		ps.epochs[i], ps.namespaces[i], ps.rows[i] = p.epoch, []byte(p.namespace), p.row
		if !slices.Contains(ps.tables, p.epoch) {
			ps.tables = append(ps.tables, p.epoch)
		}
	}
	return ps
}

// args are what statements find parts by.
func (ps *places) args() []any { return []any{ps.epochs, ps.namespaces, ps.rows, ps.tables} }

// contentOf returns what a row of a part means.
func contentOf(id store.Part, n int64, bytes []byte) store.Content {
	v := store.Content{N: n, Exists: true}
	if id.Kind().HasBytes() {
		v.Bytes = string(bytes)
	}
	return v
}

// A part is what is stored of one, and what it is to be.
type part struct{ row, now store.Content }

// readParts returns a function that reads the rows of parts into the state.
func (st *state) readParts(parts []store.PartCell) func(pgx.Rows) error {
	for _, id := range parts {
		st.parts[id] = &part{}
	}
	return func(rows pgx.Rows) error {
		var i int
		var n int64
		var bytes []byte
		_, err := pgx.ForEachRow(rows, []any{&i, &n, &bytes}, func() error {
			v := contentOf(parts[i].Part, n, bytes)
			*st.parts[parts[i]] = part{row: v, now: v}
			return nil
		})
		return err
	}
}

// Part returns a part as it is now. Where a rider is may depend on what its lead met:
// such a part could not be named before, and is read when it is asked for. Its cell is locked.
func (st *state) Part(c store.Cell, p store.Part) store.Content {
	id := store.PartCell{Cell: c, Part: p}
	st.look([]store.PartCell{id})
	return st.parts[id].now
}

// PutPart makes a part v. One that is not known is at a version that is new.
func (st *state) PutPart(c store.Cell, p store.Part, v store.Content) {
	id := store.PartCell{Cell: c, Part: p}
	at := st.parts[id]
	if at == nil {
		at = &part{}
		st.parts[id] = at
	}
	if shelf, e, ok := decide.ShelfOf(c, p); ok {
		change := decide.PartChange(c, p, uint64(v.N)-uint64(at.now.N))
		change.Merge(st.tallies[tallyID{shelf, e}])
		st.tallies[tallyID{shelf, e}] = change
	}
	at.now = v
}

// MergePart is PutPart: the row of a part is written as a whole.
func (st *state) MergePart(c store.Cell, p store.Part, v store.Content, _ []byte) {
	st.PutPart(c, p, v)
}

// Version returns the version of a step that has just left its counter absent. It is
// above all that the counter had, as if it had been given to it.
func (st *state) Version() uint64 {
	st.left.last = max(uint64(st.versions[0]), st.left.last+1)
	st.versions = st.versions[1:]
	return st.left.last
}

// Partition returns which partition a cell is of: there is one. Lanes are locked as cells are.
func (st *state) Partition(store.Cell) int { return 0 }

// outsides returns, for each cell that something is pending for, the riders of an add
// that is in no view: it is outside of all that the counter has by its book.
func (st *state) outsides() map[store.Cell][]store.Rider {
	var books, parts []store.PartCell
	for _, p := range st.pending {
		books = append(books, store.PartCell{Cell: st.order[p.cell], Part: partBook})
	}
	st.look(books)
	riders := make(map[store.Cell][]store.Rider)
	for _, id := range books {
		if book := st.parts[id].now; book.Exists && riders[id.Cell] == nil {
			part := store.PartFields{Kind: store.PartOutside, Position: book.N}.Part()
			parts = append(parts, store.PartCell{Cell: id.Cell, Part: part})
			riders[id.Cell] = []store.Rider{{Part: part, Op: store.OpAdd, Amount: store.AmountApplied}}
		}
	}
	st.look(parts)
	return riders
}

// look reads the parts that are not known. Their cells are locked.
func (st *state) look(parts []store.PartCell) {
	var unknown []store.PartCell
	for _, id := range parts {
		if st.parts[id] == nil {
			st.parts[id] = &part{}
			unknown = append(unknown, id)
		}
	}
	if len(unknown) > 0 {
		ps := placesOf(unknown)
		st.ask(st.sql.loadParts, ps.args(), st.readParts(unknown))
	}
}

// saveParts writes the parts that have changed.
func (s *Store) saveParts(q *pgx.Batch, st *state) {
	var put, drop []store.PartCell
	for id, at := range st.parts {
		switch {
		case at.now == at.row:
		case at.now.Exists:
			put = append(put, id)
		default:
			drop = append(drop, id)
		}
	}
	if len(put) > 0 {
		ps, values, bytes := placesOf(put), make([]int64, len(put)), make([][]byte, len(put))
		for i, id := range put {
			v := st.parts[id].now
			if values[i] = v.N; id.Part.Kind().HasBytes() {
				bytes[i] = []byte(v.Bytes)
			}
		}
		q.Queue(s.sql.putParts, ps.epochs, ps.namespaces, ps.rows, values, bytes)
	}
	if len(drop) > 0 {
		ps := placesOf(drop)
		q.Queue(s.sql.dropParts, ps.args()...)
	}
}

// A tallyID names the record of what was changed in an epoch.
type tallyID struct {
	decide.Shelf
	epoch store.Epoch
}

// tallies are records of epochs as the arrays that statements take.
func talliesOf(records map[tallyID]decide.Record) []any {
	n := len(records)
	order := slices.SortedFunc(maps.Keys(records), tallyID.compare)
	namespaces, kinds, views := make([][]byte, n), make([]int16, n), make([]int32, n)
	epochs, totals, proofs := make([]int64, n), make([]int64, n), make([]int64, n)
	for i, id := range order {
		t := tallyOf(records[id])
		namespaces[i], kinds[i], views[i] = []byte(id.Namespace), int16(id.Kind), int32(id.View)
		epochs[i], totals[i], proofs[i] = int64(id.epoch), t.total, t.proof
	}
	return []any{namespaces, kinds, views, epochs, totals, proofs}
}

// ReadParts fills contents[i] with what parts[i] holds, all at one moment, in one
// statement.
func (s *Store) ReadParts(ctx context.Context, parts []store.PartCell, contents []store.Content) error {
	if err := store.CheckReadParts(parts, contents); err != nil {
		return err
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	clear(contents)
	if len(parts) == 0 {
		return nil
	}
	s.meters.reads.Add(1)
	ps := placesOf(parts)
	var i int
	var n, nowMS int64
	var bytes []byte
	asked := s.heard.Ask()
	err := s.query(ctx, s.sql.readParts, ps.args(), []any{&i, &n, &bytes, &nowMS}, func(int64) {
		contents[i] = contentOf(parts[i].Part, n, bytes)
	})
	if s.now != nil {
		nowMS = s.now().UnixMilli()
	}
	if err == nil && nowMS != 0 { // There was one.
		s.time(nowMS, asked)
	}
	return err
}

// ScanParts returns up to n parts in the order of their rows.
func (s *Store) ScanParts(ctx context.Context, r store.Rows, n int) ([]store.PartEntry, error) {
	if n < 1 || n > store.ScanMax {
		return nil, store.Errorf(store.KindInvalid, "scan of %d parts: want 1 to %d", n, store.ScanMax)
	}
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	s.meters.reads.Add(1)
	way := 0
	if r.Back {
		way = 1
	}
	sql, epoch := s.sql.scanParts[way], epochOf(r)
	if epoch != nil {
		sql = s.sql.scanEpoch[way]
	}
	var to []byte
	if r.To != "" {
		to = []byte(r.To)
	}
	var found []store.PartEntry
	var bad error
	var row, bytes []byte
	var value int64
	err := s.query(ctx, sql, []any{[]byte(r.Namespace), []byte(r.From), to, n, epoch}, []any{&row, &value, &bytes}, func(int64) {
		c, p, ok := store.PartOfRow(r.Namespace, row)
		if !ok {
			bad = store.Errorf(store.KindCorrupt, "no part of namespace %q is at %x", r.Namespace, row)
			return
		}
		found = append(found, store.PartEntry{PartCell: store.PartCell{Cell: c, Part: p}, Content: contentOf(p, value, bytes)})
	})
	if err == nil {
		err = bad
	}
	return found, err
}

// epochOf returns the only epoch that has rows of a range, nil if there may be several.
func epochOf(r store.Rows) *int64 {
	const lead = 1 + 2 + 4 // of the rows of an epoch
	if r.From == "" || r.To == "" {
		return nil
	}
	epoch := int64(epochNone)
	if store.PartKind(r.From[0])&store.PartRetained == 0 {
		if r.To <= string([]byte{byte(store.PartRetained)}) {
			return &epoch
		}
		return nil
	}
	if len(r.From) < lead {
		return nil
	}
	if end := prefixEnd(r.From[:lead]); !strings.HasPrefix(r.To, r.From[:lead]) && r.To > string(end) {
		return nil
	}
	f, _ := store.Part(r.From[:lead] + strings.Repeat("\x00", 8)).FloorOf()
	epoch = int64(f.Epoch)
	return &epoch
}
