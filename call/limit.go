package call

import (
	"time"

	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/store"
)

// AllowOptions say more of a call of Allow. The zero value says nothing.
type AllowOptions struct {
	// Limits are what is allowed, in place of the definition of the name. What a client has
	// used is kept by the names of the limits. They are at most definition.LimitsMax.
	Limits []definition.Limit

	// Away says what becomes of the call while the store can't be reached, together with
	// Limits. Without them the definition says it.
	Away definition.Away

	// Burn makes a call that is refused use up what is left, up to its cost.
	Burn bool

	// DryRun only says what the answer would be: nothing is used.
	DryRun bool

	// Token, if not empty, names this call: a repeat returns the first answer and uses
	// nothing. A call that was refused may be repeated, and is decided anew.
	Token string
}

// Check returns an error if no call can have these options.
func (o *AllowOptions) Check() error {
	if err := definition.CheckLimits(o.Limits); err != nil {
		return store.Errorf(store.KindInvalid, "%w", err)
	}
	if err := o.Away.Check(); err != nil {
		return store.Errorf(store.KindInvalid, "%w", err)
	}
	if o.Away != (definition.Away{}) && len(o.Limits) == 0 {
		return store.Errorf(store.KindInvalid, "away goes with limits: without them the definition says it")
	}
	if o.Token == "" {
		return nil
	}
	if o.DryRun {
		return store.Errorf(store.KindInvalid, "a dry run uses nothing, and has no token")
	}
	return store.CheckToken(o.Token)
}

// A Decision says whether a client may use what it asked for.
type Decision struct {
	Allowed bool

	// Policy is the name of the limit that the rest is of: the one that refuses for longest,
	// or if it is allowed the one that has the least left.
	Policy    string
	Limit     int64 // the most that it admits at once
	Remaining int64

	// RetryAfter is after how long the same call may be allowed, if nothing else is used by
	// then: 0 if it was allowed, and negative if it never is, because the cost is above Limit.
	RetryAfter time.Duration

	// ResetAfter is after how long nothing of the limit is used any more.
	ResetAfter time.Duration

	// Limits are all that were asked. They must not be changed.
	Limits []definition.Limit

	// Source is what decided: "store"; or while the store can't be reached "open", "closed" or
	// "share", as the definition says.
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

// Never is the RetryAfter of what is never allowed.
const Never time.Duration = -1

// WhoOfLimitBytesMax is how long the name of a limit's client may be.
const WhoOfLimitBytesMax = store.PartNameBytesMax
