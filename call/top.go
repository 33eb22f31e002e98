package call

import (
	"time"

	"github.com/quipudb/quipu/store"
)

// TopOptions select a part of a top list, and its time. The zero value selects
// a list by key, for all time.
type TopOptions struct {
	// Key is the counter that has the list. It is empty for a list by key, which
	// covers all counters of a pattern.
	Key string

	// K is the number of items. The default and the maximum is the number in the
	// definition.
	K int

	// From and To are the range, with the defaults of RangeOptions. If both are zero,
	// the list covers all time; a trend covers the window that ended last.
	From, To time.Time

	// Trend orders the items by how much they rose, from the range of the same length
	// before to this one.
	Trend bool
}

// Check returns an error if no list can have the options.
func (o TopOptions) Check() error {
	if o.K < 0 {
		return store.Errorf(store.KindInvalid, "%d items: want 1 or more", o.K)
	}
	return nil
}

// A TopItem is an item of a top list, with bounds of its count that always
// hold.
type TopItem struct {
	Item  string
	Count int64 // the upper bound: it is never below what was counted
	Lower int64
	Upper int64

	// Rise is, for a trend, the estimated growth from the range before, and RiseLower
	// and RiseUpper bound it. It is negative if the count fell.
	Rise, RiseLower, RiseUpper int64
}

// A Top is a top list: the most frequent items. It counts additions only:
// negative amounts and corrections do not lower it.
type Top struct {
	Name  string
	Key   string    // the counter, or empty
	By    string    // what is listed: key, or the name of a value
	Items []TopItem // the most frequent first; of a trend, those that rose the most

	// Exact says that all counts are exact and that no item is missing.
	Exact bool
	// Rest is the highest count that an item outside of Items can have. An item whose
	// Lower is above Rest certainly belongs to the list. A trend says nothing about
	// items that are in neither of the two lists.
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
