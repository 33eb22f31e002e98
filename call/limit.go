package call

import (
	"time"

	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/store"
)

// AllowOptions change a call of Allow. The zero value changes nothing.
type AllowOptions struct {
	// Limits replace those of the definition of the name. The usage of a client is
	// kept under the names of the limits. There are at most definition.LimitsMax.
	Limits []definition.Limit

	// Away says how the call is decided while the store can't be reached. It is for
	// calls with Limits; otherwise the definition says it.
	Away definition.Away

	// Burn makes a refused call use up what is left, up to its cost.
	Burn bool

	// DryRun returns the answer and uses nothing.
	DryRun bool

	// Token, if not empty, names this call: a repeat returns the first answer and uses
	// nothing. A refused call may be repeated, and is decided again.
	Token string
}

// Check returns an error if the options contradict each other.
func (o *AllowOptions) Check() error {
	if err := definition.CheckLimits(o.Limits); err != nil {
		return store.Errorf(store.KindInvalid, "%w", err)
	}
	if err := o.Away.Check(); err != nil {
		return store.Errorf(store.KindInvalid, "%w", err)
	}
	if o.Away != (definition.Away{}) && len(o.Limits) == 0 {
		return store.Errorf(store.KindInvalid, "away needs limits in the call: without them the definition applies")
	}
	if o.Token == "" {
		return nil
	}
	if o.DryRun {
		return store.Errorf(store.KindInvalid, "a dry run uses nothing, so it takes no token")
	}
	return store.CheckToken(o.Token)
}

// A Decision says whether a client may use what it asked for.
type Decision struct {
	Allowed bool

	// Policy is the name of the limit that the fields below describe. If the call was
	// refused, it is the limit that refuses for longest; otherwise the limit that has
	// the least left.
	Policy    string
	Limit     int64 // the most that it admits at once
	Remaining int64

	// RetryAfter is the time after which the same call may be allowed, if nothing else
	// is used until then. It is 0 if the call was allowed, and negative if the cost is
	// above Limit, so that the call is never allowed.
	RetryAfter time.Duration

	// ResetAfter is the time after which nothing of the limit is used any more.
	ResetAfter time.Duration

	// Limits are all limits that were checked. They must not be changed.
	Limits []definition.Limit

	// Source says what decided: "store", or, if the store could not be reached,
	// "open", "closed" or "share", as the definition says.
	Source string

	Replayed bool // the call is a repeat, and this is the first answer
}

// The sources of a Decision.
const (
	SourceStore  = "store"
	SourceOpen   = "open"
	SourceClosed = "closed"
	SourceShare  = "share"
)

// Never is the RetryAfter of a call that is never allowed.
const Never time.Duration = -1

// WhoOfLimitBytesMax is the maximum length of the name of a limit's client.
const WhoOfLimitBytesMax = store.PartNameBytesMax
