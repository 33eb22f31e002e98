package port

import (
	"context"
	"encoding/base64"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/internal/hold"
	"github.com/quipudb/quipu/store"
)

// listLooks is how many holds are looked at for a page of one who.
const listLooks = 10_000

// Reservations returns open reservations of a counter.
func (p *Port) Reservations(ctx context.Context, key string, o call.ReservationOptions) (page call.ReservationPage, err error) {
	if o, err = o.Check(); err != nil {
		return page, err
	}
	page.Key = key
	if page.Stock, err = p.Stock(ctx, key); err != nil {
		return page, err
	}
	cell := p.Cell(key)
	rows := hold.RowsOf(cell)
	if o.Cursor != "" {
		after, err := afterCursor(cell, o.Cursor)
		if err != nil {
			return page, err
		}
		rows.From = after
	}
	for looked := 0; looked < listLooks; {
		n := o.Limit - len(page.Reservations)
		if o.Who != "" {
			n = max(n, 1000)
		}
		found, err := p.store.ScanParts(ctx, rows, n)
		if err != nil {
			return page, err
		}
		for i := range found {
			h, deadline, ok := hold.Of(key, found[i].Part, found[i].Content.N)
			if !ok || o.Who != "" && h.Who != o.Who {
				continue
			}
			r := p.told(&h, deadline, call.HoldOpen)
			if p.NowMS(cell)*1000 > deadline {
				r.State = call.HoldExpired
			}
			if page.Reservations = append(page.Reservations, r); len(page.Reservations) == o.Limit {
				page.Next = cursorOf(found[i].Part)
				return page, nil
			}
		}
		if len(found) < n {
			page.Next = ""
			return page, nil
		}
		last := &found[len(found)-1]
		page.Next = cursorOf(last.Part)
		_, row := store.AppendRow(nil, cell, last.Part)
		rows.From = string(row) + "\x00"
		looked += n
	}
	return page, nil
}

// cursorOf returns the cursor of what comes after a hold.
func cursorOf(part store.Part) string { return base64.RawURLEncoding.EncodeToString([]byte(part)) }

// afterCursor returns the row that a page begins at.
func afterCursor(cell store.Cell, cursor string) (string, error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	part := store.Part(raw)
	if f, ok := part.Fields(); err != nil || !ok || f.Kind != store.PartHold || f.View != 0 {
		return "", store.Errorf(store.KindInvalid, "cursor %.40q does not belong to a list of reservations: want the cursor of the page before", cursor)
	}
	_, row := store.AppendRow(nil, cell, part)
	return string(row) + "\x00", nil
}
