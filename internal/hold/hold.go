// Package hold defines reservations (holds) as a store keeps them: the parts of
// a counter that they consist of, the effect of each step on these, and the ids
// of reservations.
//
// A hold is a part whose position is its amount and whose value is its
// deadline. Another part is in the order of deadlines, so that a search for
// expired holds need not look at the others. Both are made and removed in one
// step with the counter's own value, which is the available amount.
package hold

import (
	"crypto/sha256"
	"encoding/base64"
	"math"
	"time"
	"unicode/utf8"

	"github.com/quipudb/quipu/store"
)

// The limits of holds.
const (
	WhoBytesMax = 200
	NumberMax   = 100_000 // of a counter, unless its definition says otherwise
	AmountMax   = 1 << 53 // of one hold: what every JSON has exactly
	ShortestTTL = time.Millisecond
	LongestTTL  = 366 * 24 * time.Hour
)

// A Hold is an amount that was taken out of a counter for a time.
type Hold struct {
	Key    string
	Amount int64
	Name   string // NameBytes bytes of ASCII, the same for a repeat under one token
	Who    string // may be empty
}

// NameBytes is how long the name of a hold is, and rawBytes what it is the text of.
const (
	NameBytes = 16
	rawBytes  = 12
)

// NameOf returns the name of the hold that a write with a token makes.
func NameOf(namespace, key, token string) string {
	b := append(append(append(append([]byte(namespace), 0), key...), 0), token...)
	sum := sha256.Sum256(b)
	return NameFrom([rawBytes]byte(sum[:rawBytes]))
}

// NameFrom returns the name that random bytes make.
func NameFrom(raw [rawBytes]byte) string { return base64.RawURLEncoding.EncodeToString(raw[:]) }

// EndToken returns the token under which a hold ends, unless it expires: it can be looked up
// as any token of the counter can.
func (h *Hold) EndToken() string { return "end:" + h.Name }

// EndTokenAgain returns the token under which a hold ends whose counter had a deadline at the
// first attempt, which EndToken remembers.
func (h *Hold) EndTokenAgain() string { return h.EndToken() + "/2" }

// Part returns the part that is the hold. It holds the deadline, in Unix microseconds.
func (h *Hold) Part() store.Part {
	return store.PartFields{Kind: store.PartHold, Position: h.Amount, Name: h.Name + h.Who}.Part()
}

// Due returns the part that stands beside it while its deadline is what it is. It holds the
// amount.
func (h *Hold) Due(deadline int64) store.Part {
	return store.PartFields{Kind: store.PartDue, Position: deadline, Name: h.Name + h.Who}.Part()
}

// Sum and Number return the parts that hold the sum and the number of the open holds of a
// counter, or of one who.
func Sum(who string) store.Part { return held(0, who) }

// Number returns the part that holds the number of open holds: see Sum.
func Number(who string) store.Part { return held(1, who) }

func held(position int64, who string) store.Part {
	return store.PartFields{Kind: store.PartHeld, Position: position, Name: who}.Part()
}

// Of returns the hold of a counter that a part of kind PartHold or PartDue is of, and its
// deadline. The part holds n.
func Of(key string, p store.Part, n int64) (h Hold, deadline int64, ok bool) {
	f, ok := p.Fields()
	if !ok || len(f.Name) < NameBytes {
		return Hold{}, 0, false
	}
	h = Hold{Key: key, Name: f.Name[:NameBytes], Who: f.Name[NameBytes:]}
	if h.Amount, deadline = f.Position, n; f.Kind == store.PartDue {
		h.Amount, deadline = n, f.Position
	}
	return h, deadline, ok
}

// Limits are how much may be held of a counter at once.
type Limits struct {
	Number, Total       int64 // 0 is NumberMax, and no limit
	PerWho, TotalPerWho int64 // of one who; 0 is no limit
}

// Reserve returns the riders of what takes a hold out of the counter's own value.
func (h *Hold) Reserve(deadline int64, l Limits) []store.Rider {
	if l.Number == 0 {
		l.Number = NumberMax
	}
	riders := []store.Rider{
		{Part: h.Part(), Op: store.OpSet, N: deadline, Is: store.Met{Kind: store.MetEqual}},
		{Part: h.Due(deadline), Op: store.OpSet, N: h.Amount},
		within(Number(""), 1, l.Number),
		within(Sum(""), h.Amount, l.Total),
	}
	if h.Who != "" {
		riders = append(riders, within(Number(h.Who), 1, l.PerWho), within(Sum(h.Who), h.Amount, l.TotalPerWho))
	}
	return riders
}

// within returns the rider of an add that a limit bounds; 0 is no limit.
func within(p store.Part, n, limit int64) store.Rider {
	r := store.Rider{Part: p, Op: store.OpAdd, N: n}
	if limit != 0 {
		r.Bound = &store.Bound{Low: math.MinInt64, High: limit, Inward: true}
	}
	return r
}

// End returns the riders of what ends a hold: back is how much of it becomes available
// again.
func (h *Hold) End(deadline, back int64) []store.Rider {
	riders := []store.Rider{
		{Part: h.Due(deadline), Op: store.OpDelete},
		{Part: Number(""), Op: store.OpAdd, N: -1},
		{Part: Sum(""), Op: store.OpAdd, N: -h.Amount},
		{Op: store.OpAdd, N: back},
	}
	if h.Who != "" {
		riders = append(riders, store.Rider{Part: Number(h.Who), Op: store.OpAdd, N: -1}, store.Rider{Part: Sum(h.Who), Op: store.OpAdd, N: -h.Amount})
	}
	return riders
}

// Extend returns the riders of what gives a hold another deadline.
func (h *Hold) Extend(deadline, next int64) []store.Rider {
	return []store.Rider{
		{Part: h.Due(deadline), Op: store.OpDelete},
		{Part: h.Due(next), Op: store.OpSet, N: h.Amount},
	}
}

// NoneOpen returns the rider of what is refused while holds are open.
func NoneOpen() store.Rider {
	return store.Rider{Part: Number(""), Op: store.OpGet, Is: store.Met{Kind: store.MetEqual}}
}

// Clean returns the riders that remove what is left of somebody who has no hold any more.
func Clean(who string) []store.Rider {
	zero := store.Met{Kind: store.MetEqual}
	return []store.Rider{
		{Part: Number(who), Op: store.OpDelete, Is: zero},
		{Part: Sum(who), Op: store.OpDelete, Is: zero},
	}
}

// RowsOf returns the rows of a counter's holds, by amount and name.
func RowsOf(c store.Cell) store.Rows { return RowsOfKind(c, store.PartHold) }

// RowsOfKind returns the rows of a counter's parts of a kind that reservations have.
func RowsOfKind(c store.Cell, kind store.PartKind) store.Rows {
	return store.RowsOf(c, store.PartFields{Kind: kind, Position: math.MinInt64}, store.PartFields{Kind: kind, Position: math.MaxInt64})
}

// DueRows returns the rows of what ends up to a deadline, the earliest first.
func DueRows(c store.Cell, until int64) store.Rows {
	return store.RowsOf(c, store.PartFields{Kind: store.PartDue, Position: math.MinInt64}, store.PartFields{Kind: store.PartDue, Position: until + 1})
}

// Check returns an error if there can be no such hold.
func (h *Hold) Check() error {
	switch {
	case h.Amount < 1 || h.Amount > AmountMax:
		return store.Errorf(store.KindInvalid, "reservation of %d: want an amount from 1 to %d", h.Amount, int64(AmountMax))
	case len(h.Who) > WhoBytesMax:
		return store.Errorf(store.KindTooLarge, "who of %d bytes: at most %d", len(h.Who), WhoBytesMax)
	}
	if !utf8.ValidString(h.Who) {
		return store.Errorf(store.KindInvalid, "who is not UTF-8")
	}
	return store.CheckKey(h.Key)
}

// CheckTTL returns an error if no hold can last that long; max is what the definition
// allows, 0 is LongestTTL.
func CheckTTL(ttl, longest time.Duration) error {
	if longest == 0 {
		longest = LongestTTL
	}
	if ttl < ShortestTTL || ttl > longest {
		return store.Errorf(store.KindInvalid, "reservation for %s: want from %s to %s", ttl, ShortestTTL, longest)
	}
	return nil
}
