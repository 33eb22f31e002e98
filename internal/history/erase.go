package history

import (
	"context"
	"encoding/base64"
	"time"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/internal/ledger"
	"github.com/quipudb/quipu/store"
)

// erasePage is how many entries are read at a time: one may have 64 KiB.
const erasePage = 256

// Erase takes someone's name out of all lines of the namespace's ledgers; counts stay. It
// walks over every entry, also over those that no definition asks for any more. If ctx has
// a deadline it stops in time, and says where to go on. It may be repeated.
func (r *Reader) Erase(ctx context.Context, who, cursor string) (call.Erasure, error) {
	done := call.Erasure{Next: cursor}
	if err := call.CheckWho(who); err != nil || who == "" {
		if err == nil {
			err = store.Errorf(store.KindInvalid, "who is empty")
		}
		return done, err
	}
	after, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil {
		return done, store.Errorf(store.KindInvalid, "cursor %.40q is not of this list: want what the call before gave", cursor)
	}
	rows := store.Rows{Namespace: r.Known.Namespace, From: string([]byte{byte(store.PartEntries)}), To: string([]byte{byte(store.PartEntries) + 1})}
	rows.From = max(rows.From, string(after))
	until := time.Time{}
	if end, ok := ctx.Deadline(); ok {
		until = time.Now().Add(time.Until(end) * 3 / 4)
	}
	counters := map[string]bool{}
	for !done.Complete {
		page, err := r.Store.ScanParts(ctx, rows, erasePage)
		if err != nil {
			return done, err
		}
		for i := range page {
			n, err := r.erase(ctx, &page[i], who)
			if err != nil {
				return done, err
			}
			if n > 0 {
				counters[counterOf(page[i].Cell).Key] = true
			}
			done.Lines, done.Looked = done.Lines+int64(n), done.Looked+1
		}
		done.Counters = int64(len(counters))
		if done.Complete = len(page) < erasePage; done.Complete {
			done.Next = ""
			break
		}
		rows = beyond(rows, &page[len(page)-1])
		done.Next = base64.RawURLEncoding.EncodeToString([]byte(rows.From))
		if !until.IsZero() && time.Now().After(until) {
			break
		}
	}
	return done, nil
}

// counterOf returns the counter that a cell is, or is a shard of.
func counterOf(c store.Cell) store.Cell {
	if of, _, ok := store.ShardOf(c); ok {
		return of
	}
	return c
}

// erase takes a name out of an entry, and returns out of how many lines.
func (r *Reader) erase(ctx context.Context, p *store.PartEntry, who string) (lines int, err error) {
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
			if l := &e.Lines[i]; l.Actor == who {
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

// replace puts other bytes into a part, if it still is what was read. An event makes its
// counter exist, so a counter that was deleted is deleted again in the same step.
func (r *Reader) replace(ctx context.Context, p store.PartCell, is int64, b []byte) (store.Outcome, error) {
	values := make([]store.Value, 1)
	if err := r.Store.Read(ctx, []store.Cell{p.Cell}, values); err != nil {
		return 0, err
	}
	put := store.Delta{Cell: p.Cell, Op: store.OpPut, Event: &store.Event{Part: p.Part, Bytes: b, Is: store.Met{Kind: store.MetEqual, N: is}}}
	batch := store.Batch{Deltas: []store.Delta{put}}
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
