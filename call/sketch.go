package call

import (
	"time"
	"unicode/utf8"

	"github.com/quipudb/quipu/store"
)

// The limits of calls on sketches that keys hold.
const (
	ItemsMax        = 10_000 // items in an AddItems or an AskItems
	ItemBytesMax    = 4096   // bytes in an item of a filter or of frequencies
	TopItemBytesMax = 255    // bytes in an item of a top list
	MergeMax        = 64     // sketches in a MergeSketches
)

// SketchKind says what a sketch tells of its items.
type SketchKind string

// The kinds of sketches.
const (
	SketchFilter      SketchKind = "filter"      // whether an item was added: a Bloom filter
	SketchFrequencies SketchKind = "frequencies" // how often each item came: Count-Min
	SketchTop         SketchKind = "top"         // which items came most often
	SketchUniques     SketchKind = "uniques"     // how many different items there were; AddUniques makes one
)

// A Shape says what a sketch is made for. It is fixed when the sketch is made. Fields of other kinds must
// be zero.
type Shape struct {
	Kind SketchKind

	// Capacity is how many items a filter is made for, and Error which part of the items that were never added
	// it may find by mistake. The default is 0.01; it is rounded down to a power of two.
	Capacity int64
	Error    float64
	// Growth is how many times larger each further part of a full filter is, up to 255. The default is 2. A Fixed
	// filter does not grow, and refuses items that are new when it is full.
	Growth int
	Fixed  bool

	// Frequencies exceed the truth by at most Epsilon times the total with the probability Confidence. The
	// defaults are 0.001 and 0.99. Or Width counters in each of Depth rows are asked for.
	Epsilon, Confidence float64
	Width, Depth        int
	// Conservative frequencies are closer to the truth for rare items. Nothing can be taken away from them.
	Conservative bool

	// K is how many items a top list is asked for, up to 1,000.
	K int
}

// An Item is what a sketch counts: N of it. The default of N is 1. A filter takes no other N. Frequencies that are
// not conservative take an N below zero, which takes away what was counted before.
type Item struct {
	Item string
	N    int64
}

// CheckItems returns an error if items can't be added to any sketch.
func CheckItems(items []Item) error {
	if err := checkItemsLen(len(items)); err != nil {
		return err
	}
	for i := range items {
		if err := checkItem(i, items[i].Item); err != nil {
			return err
		}
	}
	return nil
}

// CheckAsked returns an error if no sketch can be asked for items.
func CheckAsked(items []string) error {
	if err := checkItemsLen(len(items)); err != nil {
		return err
	}
	for i, item := range items {
		if err := checkItem(i, item); err != nil {
			return err
		}
	}
	return nil
}

func checkItemsLen(n int) error {
	switch {
	case n == 0:
		return store.Errorf(store.KindInvalid, "no items: want 1 to %d", ItemsMax)
	case n > ItemsMax:
		return store.Errorf(store.KindTooLarge, "%d items: at most %d", n, ItemsMax)
	}
	return nil
}

func checkItem(i int, item string) error {
	switch {
	case item == "":
		return store.Errorf(store.KindInvalid, "item %d is empty", i)
	case len(item) > ItemBytesMax:
		return store.Errorf(store.KindTooLarge, "item %d has %d bytes: at most %d", i, len(item), ItemBytesMax)
	case !utf8.ValidString(item):
		return store.Errorf(store.KindInvalid, "item %d is not UTF-8", i)
	}
	return nil
}

// A SketchSource is a sketch that is merged, Weight times. The default of Weight is 1. Only frequencies have
// another one.
type SketchSource struct {
	Key    string
	Weight int64
}

// CheckSources returns an error if no sketch can be made of others.
func CheckSources(from []SketchSource) error {
	switch {
	case len(from) == 0:
		return store.Errorf(store.KindInvalid, "no sketches to merge: want 1 to %d", MergeMax)
	case len(from) > MergeMax:
		return store.Errorf(store.KindTooLarge, "%d sketches to merge: at most %d", len(from), MergeMax)
	}
	for _, f := range from {
		if err := store.CheckKey(f.Key); err != nil {
			return err
		}
		if f.Weight < 0 {
			return store.Errorf(store.KindInvalid, "weight is %d: want 1 or more", f.Weight)
		}
	}
	return nil
}

// A SketchItem is what a sketch knows of an item. Fields that mean nothing to its kind are zero.
type SketchItem struct {
	Item string

	// Added tells of a filter that the item was new: it was not found before. A filter rarely takes a new item for
	// one that it has.
	Added bool

	// Found tells of a filter that the item was added. It is false only if that is certain. Listed tells of a top
	// list that the item is among the first K.
	Found, Listed bool

	// Count of frequencies and of a top list is Upper, which is never below the truth; see Sketch.Epsilon for
	// amounts that were taken away. Lower of a top list always holds; of frequencies it is right with the
	// probability Confidence.
	Count, Lower, Upper int64

	// Expelled is the item that was driven out of the first K of a top list by this one; empty if none was.
	Expelled string
}

// An Addition says what became of an AddItems.
type Addition struct {
	Key  string
	Kind SketchKind

	// Items are those of the call, in its order. Each count is the one right after its item was added. For a
	// repeat they are as the sketch has them now, and none is Added and none Expelled.
	Items []SketchItem

	Confidence float64 // of Lower, for frequencies

	// Replayed says that the call was a repeat: it has changed nothing.
	Replayed bool

	// Durability is what the acknowledgement means.
	Durability store.Durability
}

// An Asked is what a sketch knows of some items.
type Asked struct {
	Key   string
	Kind  SketchKind
	Items []SketchItem // in the order of the call

	// Exact tells that all of it is certain: the numbers of a top list whose items all have a place.
	Exact bool
	// Error tells of a filter which part of the items that were never added it finds by mistake now.
	Error      float64
	Confidence float64 // of Lower, for frequencies

	AsOf time.Time // every AddItems acknowledged before is there
}

// A Sketch says what a key holds that is one.
type Sketch struct {
	Key   string
	Shape Shape // MakeSketch would make such a one

	// Total is the sum of all amounts that were added, and taken away, for frequencies and top lists. For a filter it is how
	// many items were added that it did not find before, and of uniques how many there were.
	Total int64
	Bytes int64 // that the sketch takes

	// Exact tells that Total is exact, and of a top list that all numbers are.
	Exact bool

	Error    float64 // of a filter: which part of the items that were never added it finds by mistake now
	Capacity int64   // of a filter: how many items there is room for in the parts that there are
	Full     bool    // of a filter: some items that are new are refused by now

	// An estimate of frequencies exceeds the truth by more than Epsilon times Total at most with the probability
	// 1 - Confidence, provided that what was taken away had been counted before.
	Epsilon, Confidence float64

	Items []SketchItem // of a top list: the most frequent first
	Rest  int64        // the most that may have been counted of an item that is not in Items

	Uniques UniqueEstimate // of uniques

	ExpiresAt time.Time // zero if it has no end
	AsOf      time.Time // every write acknowledged before is there
}

// SketchTerms are what the options of a write to a sketch say.
type SketchTerms struct {
	Token string        // "" if there is none
	TTL   time.Duration // 0 if there is none
}

// SketchTermsOf returns what options say, of which a sketch takes Token, unless that is of no use, and TTL.
func SketchTermsOf(opts []WriteOption, tokens bool) (t SketchTerms, err error) {
	all, err := WriteTermsOf(opts, true)
	if err != nil {
		return t, err
	}
	for _, o := range opts {
		if o.kind != writeToken && o.kind != writeTTL || o.kind == writeToken && !tokens {
			return t, store.Errorf(store.KindInvalid, "option %s has no meaning for this call", o.kind)
		}
	}
	if all.HasToken {
		if err := store.CheckToken(all.Token); err != nil {
			return t, err
		}
	}
	if all.HasTTL && all.TTL < time.Millisecond {
		return t, store.Errorf(store.KindInvalid, "a ttl of %s: want 1ms or more", all.TTL)
	}
	return SketchTerms{all.Token, all.TTL}, nil
}
