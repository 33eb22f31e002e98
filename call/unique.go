package call

import (
	"time"

	"github.com/quipudb/quipu/store"
)

// UniquesMax is the maximum number of users in one call.
const UniquesMax = 10_000

// CheckUniques returns an error if users can't be added to the users of a
// counter.
func CheckUniques(users []string) error {
	if len(users) == 0 {
		return store.Errorf(store.KindInvalid, "no users: want 1 to %d", UniquesMax)
	}
	if len(users) > UniquesMax {
		return store.Errorf(store.KindTooLarge, "%d users: at most %d", len(users), UniquesMax)
	}
	for _, user := range users {
		if err := CheckUser(user); err != nil {
			return err
		}
	}
	return nil
}

// UniqueOptions select the time and the dimension of a number of distinct
// users. The zero value is all time.
type UniqueOptions struct {
	// From and To are the range, with the defaults of RangeOptions. If both are zero,
	// all time is covered, including users whose windows were removed.
	From, To time.Time

	// By is a dimension: the users of each of its values are counted too.
	By string

	// Top is the number of values to return, those with the most users. The default is
	// all.
	Top int

	// With is another counter, whose users in the same time are compared with these.
	With string
}

// A UniqueEstimate is a number of distinct users, with bounds.
type UniqueEstimate struct {
	Count int64

	// Lower and Upper are bounds that hold in 95 of 100 cases. StandardError is the
	// distance from the truth that Count keeps in 68 of 100 cases. If Exact is set,
	// the count is exact and equals both bounds.
	Lower, Upper  int64
	StandardError float64
	Exact         bool
}

// Uniques is the number of distinct users of a counter.
type Uniques struct {
	Key string
	UniqueEstimate

	By     string
	Values []UniqueValue  // of By, the most users first
	Other  UniqueEstimate // users of all values that are not in Values

	Overlap *UniqueOverlap // with another counter, if one was asked for

	Aligned      bool      // From and To are what was asked for: no window is only partly in it
	Complete     bool      // every event of a user between From and To is there; of all time, since CompleteFrom
	CompleteFrom time.Time // from when on
	From, To     time.Time // of the windows that are counted, the same if there are none; zero for all time
	AsOf         time.Time // every event acknowledged before is there
}

// A UniqueValue is the number of distinct users of a value of a dimension.
type UniqueValue struct {
	Value  string   // empty for events that brought none
	Values []string // for a dimension of several names, in their order; then Value is empty
	UniqueEstimate
}

// A UniqueOverlap compares the users of two counters.
type UniqueOverlap struct {
	With string

	Only   UniqueEstimate // who are not with the other one
	Others UniqueEstimate // who are with the other one alone
	Both   UniqueEstimate
}
