package call

import (
	"time"

	"github.com/quipudb/quipu/store"
)

// TopOptions say which part of a top list is wanted, and of which time. The zero value is all
// that the list of all counters is asked for, of all time.
type TopOptions struct {
	// Key is the counter whose list is wanted. It is empty for a list by key, which is of all
	// counters of a pattern.
	Key string

	// K is how many items are wanted. The default is as many as the definition says, and no
	// more can be.
	K int

	// From and To are the range, with the defaults of RangeOptions. If both are zero, all time
	// is meant; of a trend, the window that has ended last.
	From, To time.Time

	// Trend has the items that rose the most come first: from the range before, which is as long,
	// to this one.
	Trend bool
}

// Check returns an error if o asks for what no list has.
func (o TopOptions) Check() error {
	if o.K < 0 {
		return store.Errorf(store.KindInvalid, "%d items: want 1 or more", o.K)
	}
	return nil
}

// A TopItem is an item of a top list, with bounds of its number that always hold.
type TopItem struct {
	Item  string
	Count int64 // the upper bound: it is never below what was counted
	Lower int64
	Upper int64

	// Of a trend: by how much more it was counted than in the range before, in the middle of
	// what the bounds say. It is below 0 if it was less.
	Rise, RiseLower, RiseUpper int64
}

// A Top is a top list: what came most often.
//
// It has what was added. Amounts below zero and corrections take nothing out of it.
type Top struct {
	Name  string
	Key   string    // the counter, or empty
	By    string    // what is listed: key, or the name of a value
	Items []TopItem // the most frequent first; of a trend, those that rose the most

	// Exact tells that all numbers are exact, and that no item is missing that belongs here.
	Exact bool
	// Rest is the most that may have been counted of an item that is not in Items. An item
	// whose Lower is above it certainly belongs here. A trend tells nothing of items that
	// neither list has.
	Rest int64
	// Total is the sum of all that was added, listed or not.
	Total int64

	Trend        bool
	Aligned      bool      // From and To are what was asked for: no window is only partly in it
	Complete     bool      // every event between From and To is there; of all time, since CompleteFrom
	CompleteFrom time.Time // from when on
	From, To     time.Time // of the windows that are counted, the same if there are none; zero for all time
	Before       time.Time // of a trend: where the windows begin that come before From
	AsOf         time.Time // every event acknowledged before is there
}
