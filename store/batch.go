package store

import (
	"math"
	"sync"
	"time"
)

// A Writer is the id of a source of numbered batches. The store issues it (see
// Enlist). A later writer has a higher id.
type Writer uint64

// A Batch is a number of deltas for one partition. It must not change after it
// was first sent.
type Batch struct {
	Partition int

	// Writer, if not zero, makes this batch the next in a numbered series: it covers
	// (Prev, Seq], and applies only if the writer's mark in this partition equals Prev
	// (0 for a writer that the partition does not know). If the mark equals Seq and
	// the batch is the same, the first results are returned. Anything else is refused
	// with ErrMark and the mark.
	Writer    Writer
	Prev, Seq uint64

	// Durability is the durability that the acknowledgement must have. If the last
	// change of a cell is still waiting for a stronger durability, a batch that
	// touches the cell waits for that. A store that can't reach the durability says so
	// in the reply.
	Durability Durability

	// If are conditions on the state before the batch. If one does not hold, the batch
	// is refused with ErrChanged. They are checked after the mark: a repeat returns
	// the first results whatever the conditions, and a refused batch leaves the mark,
	// so its numbers may be used again. Their cells are of the batch's partition.
	//
	// A batch with conditions is also refused as a whole, with ErrFull, if its deltas
	// belong together (see Together) and a namespace lacks room: for all keys that
	// they would make if each were applied, or for their tokens if all were new.
	If []Condition

	// Books are the numbers of the definitions that the batch was made under, for each
	// namespace that has definitions. A partition keeps the highest number that it has
	// seen of a namespace. It refuses a batch with ErrOutdated if a delta to a counter
	// of the namespace was made under a lower number, or none. The check comes after
	// the mark, so the numbers of a refused batch may be used again. A higher number
	// is kept in the same step, even if the batch has no deltas.
	Books []Book

	// Floors are raised in the step that applies the batch, even if it has no deltas.
	// A floor belongs to one partition and only rises: a lower one changes nothing. A
	// part below the floor of its view does not exist. A batch with an event that
	// changes such a part, by its lead or a rider, is refused with ErrLate. The check
	// comes after that of the books. The store removes parts below a floor by itself,
	// sooner or later.
	Floors []Floor

	// Apart says that the deltas need not be applied together, though still in their
	// order. Then a delta that a cell refuses as Split is refused alone. Otherwise the
	// batch is refused with ErrSplit, as if a condition did not hold: see Together.
	Apart bool

	Deltas []Delta
}

// Together reports whether a split counter must refuse the whole batch.
// Otherwise other deltas of b, or its mark, would take effect without the
// refused one.
func (b *Batch) Together() bool { return !b.Apart && (b.Writer != 0 || len(b.Deltas) > 1) }

// Changes reports whether b may change anything.
func (b *Batch) Changes() bool {
	if len(b.Books) > 0 || len(b.Floors) > 0 {
		return true
	}
	for i := range b.Deltas {
		if b.Deltas[i].Op != OpGet {
			return true
		}
	}
	return false
}

// Apart makes one call for the batches of each partition, in their order, and
// makes these calls in parallel. They are independent: see Answer.
func Apart(batches []Batch, replies []Reply, call func([]Batch, []Reply) error) error {
	rows := make(map[int][]int, 1)
	for i := range batches {
		rows[batches[i].Partition] = append(rows[batches[i].Partition], i)
	}
	if len(rows) <= 1 {
		return call(batches, replies)
	}
	errs := make([]error, len(batches))
	var wg sync.WaitGroup
	for _, row := range rows {
		wg.Go(func() {
			some, told := make([]Batch, len(row)), make([]Reply, len(row))
			for i, at := range row {
				some[i], told[i] = batches[at], replies[at]
			}
			err := call(some, told)
			for i, at := range row {
				errs[at], replies[at] = err, told[i]
			}
		})
	}
	wg.Wait()
	return Answer(errs, replies)
}

// A Book is the number of the definitions of a namespace that a server knew. It
// starts at 1 and rises with every change of the definitions.
type Book struct {
	Namespace string
	ID        int64
}

// A Floor is the first epoch of a view that is kept. All parts with a lower
// epoch are gone.
type Floor struct {
	Namespace string
	Kind      PartKind // one that has PartRetained
	View      uint16
	Epoch     Epoch
}

// A Condition requires that a cell has a version; 0 means that it is absent.
type Condition struct {
	Cell    Cell
	Version uint64
}

// Op is the operation of a delta on its cell.
type Op uint8

// The operations. They are stored and sent: append only.
const (
	OpAdd    Op = iota + 1 // add N; the cell exists afterwards
	OpSet                  // make the value N; the cell exists afterwards
	OpDelete               // make the cell absent
	OpSettle               // decide a token that did not arrive: it never will
	OpRetire               // forget the marks of writers up to N, and refuse those writers
	OpExpire               // change nothing but the deadline; Unmet if the cell is absent
	OpGet                  // change nothing: with Want it tells what the cell is at its place in the batch
	OpLayout               // make the layout N, 0 or more; it needs Guard.Laid. The cell exists afterwards; Unmet if it has a deadline
	OpMax                  // make a part N, if it is absent or lower
	OpPut                  // make a part Event.Bytes
	OpMerge                // make a part what its kind makes of its bytes, of Event.Bytes and of the store's time: see Event
)

// A Delta is one change to one cell.
//
// A delta that wants its value, or has a guard, or is not an OpAdd, is decided:
// its result depends on the present state. Any other delta is blind.
type Delta struct {
	Cell   Cell
	Op     Op
	Want   bool // fill Before, After, Existed and DeadlineMS of the result
	Expiry Expiry
	N      int64
	Guard  Guard // conditions; the zero Guard has none

	// DeadlineMS is the deadline that Expiry sets, in Unix milliseconds, above 0;
	// with ExpiryAfter, the lifetime that it gives, in milliseconds. A deadline
	// that has passed makes the cell absent as soon as the change is made: After is
	// the value that was made, Version and DeadlineMS of the result are 0, and a
	// new key needs room as always.
	DeadlineMS int64

	// A store has no use for these two: how many writes of callers are in this
	// one, 0 is one; and what picks a shard for it, 0 leaves that open.
	Writes, Lot uint32

	Event *Event // what else the delta does in its step; nil is nothing
}

// Expiry says what a delta does to the deadline of its cell. It is one of the
// first three, or ExpirySet with some of the conditions. The deadline is set if
// all conditions hold. Otherwise an OpExpire is refused as Unmet, and any other
// change is made without touching the deadline.
//
// A new cell has no deadline. A deleted cell loses it.
type Expiry uint8

// A write does one of these to a deadline. They are stored and sent: append only.
const (
	ExpiryKeep     Expiry = 0  // it stays
	ExpiryClear    Expiry = 1  // it goes; an OpExpire of a cell that has none is Unmet
	ExpirySet      Expiry = 2  // it becomes DeadlineMS
	ExpiryIfNone   Expiry = 4  // only if there is none
	ExpiryIfSome   Expiry = 8  // only if there is one
	ExpiryIfLater  Expiry = 16 // only if the new one is later than the one there is; none is the latest
	ExpiryIfSooner Expiry = 32 // only if the new one is sooner than the one there is, or there is none

	// ExpiryAfter makes the new deadline the store's time plus DeadlineMS: the
	// store adds them up in the step that applies the delta, so the clocks of
	// servers and callers do not matter. Stores keep and tell the deadline, never
	// the lifetime, and a repeat does not move it.
	ExpiryAfter Expiry = 64
)

// Deadline returns the deadline that d gives a cell whose deadline is old, 0 for
// none, when the store's time is nowMS; and whether the conditions on it hold.
// A deadline beyond int64 is the last one.
func (d *Delta) Deadline(old, nowMS int64) (ms int64, met bool) {
	if d.Expiry == ExpiryKeep {
		return old, true
	}
	if d.Expiry == ExpiryClear {
		return 0, old != 0
	}
	ms = d.DeadlineMS
	if d.Expiry&ExpiryAfter != 0 {
		ms = nowMS + min(ms, math.MaxInt64-nowMS)
	}
	switch {
	case d.Expiry&ExpiryIfNone != 0 && old != 0,
		d.Expiry&ExpiryIfSome != 0 && old == 0,
		d.Expiry&ExpiryIfLater != 0 && (old == 0 || ms <= old),
		d.Expiry&ExpiryIfSooner != 0 && old != 0 && ms >= old:
		return old, false
	}
	return ms, true
}

// A Guard is the condition of a delta. The checks are made in this order:
// token, version, layout, existence and deadline, room for a key, sum.
type Guard struct {
	// Token, if not empty, names this write among all writes to the cell:
	// once. Digest stands for the caller's whole payload: the token with
	// another digest is refused.
	Token  string
	Digest uint64

	// Match applies the delta only if the cell's version is Version; 0 is an
	// absent cell.
	Match   bool
	Version uint64

	// Laid applies the delta only if the cell's layout is Layout; that of an
	// absent cell is 0. Otherwise it is Unmet. Such a delta has no Expiry.
	Laid   bool
	Layout int64

	// Exists applies the delta only if the cell exists, or only if it does not.
	// Otherwise it is Unmet.
	Exists Existence

	// Bound, if not nil, applies an OpAdd only if the sum is within it, an OpSet
	// only if its N is, and an OpLayout only if the value is. Otherwise it is
	// Bounded, whether the sum leaves the bound or int64.
	Bound *Bound
}

// Existence is a condition on whether a cell exists.
type Existence uint8

// The conditions on existence. They are stored and sent: append only.
const (
	ExistsAny  Existence = iota // no condition
	ExistsMust                  // it exists
	ExistsNot                   // it does not
)

// A Bound is the range in which a sum must stay, including both limits. If Low
// is above High, no sum is within it.
type Bound struct {
	Low, High int64

	// Saturate, which is for an OpAdd alone, takes the limit nearest to the sum
	// instead of refusing. Only if the difference to the value before is not an
	// int64, it is refused nevertheless, as Overflow.
	Saturate bool

	// Inward makes each limit hold only against adds that move towards it: Low
	// against negative ones, High against positive ones. So a value that is outside
	// already can come back step by step. If it would go farther out instead, it is
	// refused; saturated, it stays where it is.
	Inward bool
}

// Unbounded returns a bound that is only limited by int64, for the caller to
// narrow.
func Unbounded() Bound { return Bound{Low: math.MinInt64, High: math.MaxInt64, Inward: true} }

// Limits returns between which limits, both included, the sum of a value and n
// must be.
func (b *Bound) Limits(value, n int64) (low, high int64) {
	low, high = b.Low, b.High
	if !b.Inward {
		return low, high
	}
	if b.Saturate {
		low, high = min(low, value), max(high, value)
	}
	if n >= 0 {
		low = math.MinInt64
	}
	if n <= 0 {
		high = math.MaxInt64
	}
	return low, high
}

// Has reports whether a value is within the limits.
func (b *Bound) Has(value int64) bool { return value >= b.Low && value <= b.High }

// A Reply is the answer of Apply to one batch.
type Reply struct {
	Err        error      // the batch as a whole was refused and changed nothing; only after ErrUnknown it may have
	Mark       uint64     // the writer's mark after this call; with ErrMark, the mark that refused it
	Replayed   bool       // the mark had it already: Results are the first ones
	Durability Durability // what this acknowledgement means
	Results    []Result   // one for each delta, in order

	// Waited is how much of the call was waiting for others who change the same
	// cells, as far as the store can tell.
	Waited time.Duration

	// Retries is how often the batch was decided again because others had changed
	// the same cells meanwhile, as far as the store can tell.
	Retries int
}

// A Result is the outcome of one delta.
type Result struct {
	Outcome  Outcome
	Replayed bool   // decided earlier, under the same token or the same mark
	Shard    uint16 // which part of its counter took it; a store knows nothing of that and leaves it 0

	Refused   uint8 // of an event: which rider refused it, from 1 on, 0 if the lead did
	Forgotten bool  // there was no room for its token to remember that it was refused
	Once      bool  // of an event: it changed nothing, because its user was counted in the window before; a store knows nothing of that and leaves it false
	Late      bool  // some views do without it, or it was counted as later than it was; a store knows nothing of that and leaves it false

	Before  int64  // with Want, or a repeat of it; 0 for an absent cell
	After   int64  // with Want, or a repeat of it
	Version uint64 // of the cell after the change; 0 after a delete or if refused, or of an absent cell

	// With Want, and not in a repeat under a token or a Fate: whether the cell existed
	// before, and its deadline after, 0 if it has none. A delta that is refused
	// as Unmet or Bounded has these, and Before and After, as the cell is.
	Existed    bool
	DeadlineMS int64
}

// Outcome is the decision on one delta.
type Outcome uint8

// The outcomes. They are stored and sent: append only. Unavailable, Unknown, Outdated,
// Late, Barred and NotCount are never decided by a store: all but the last two are for deltas of one
// batch that go to different partitions.
const (
	Applied     Outcome = iota + 1 // done. For OpSettle: the token's write was applied, and this is its result
	Settled                        // the token was settled before its write arrived: it never will be applied
	Overflow                       // the result does not fit into an int64
	Mismatch                       // the token was used for another payload
	Expired                        // the token is older than the window, or made as far ahead
	Changed                        // the version did not match
	Full                           // the namespace holds as many keys, or tokens, as it may, or it would be one too many
	Unmet                          // a condition on existence, layout or deadline was not met
	Bounded                        // the sum would leave the bound
	Split                          // the cell is a part of a counter, and can't decide this
	Unavailable                    // the partition that should have taken it can't be reached, and nothing changed
	Unknown                        // that partition did not answer: nobody knows
	Untimely                       // the store's time is not between Event.NotBefore and NotAfter, or an OpMerge was refused by it
	Outdated                       // the partition that should have taken it knows a higher book, and nothing changed
	Late                           // that partition does not keep a part any more, and nothing changed
	Barred                         // the definition of the counter does not allow it
	NotCount                       // the key holds bytes, and no count: what a Split by an object means
)

// Err returns nil for Applied, and otherwise an error that names the refusal.
// For an OpSettle, Settled is the success; its callers look at the outcome.
func (o Outcome) Err() error {
	switch o {
	case Applied:
		return nil
	case Settled:
		return ErrSettled
	case Overflow:
		return ErrOverflow
	case Mismatch:
		return ErrToken
	case Expired:
		return ErrExpired
	case Changed:
		return ErrChanged
	case Full:
		return ErrFull
	case Unmet:
		return ErrUnmet
	case Bounded:
		return ErrBound
	case Split:
		return ErrSplit
	case Unavailable:
		return ErrUnavailable
	case Unknown:
		return ErrUnknown
	case Untimely:
		return ErrUntimely
	case Outdated:
		return ErrOutdated
	case Late:
		return ErrLate
	case NotCount:
		return ErrNotCount
	case Barred:
		return Errorf(KindInvalid, "the definition of the counter does not allow it")
	default:
		return Errorf(KindCorrupt, "unknown outcome %d", o)
	}
}

// A Fate says what is known of a token.
type Fate struct {
	State TokenState
	AtMS  int64 // when it was decided, Unix milliseconds; 0 if unknown

	// With TokenApplied or TokenRefused: what the write was, and its first result.
	Op     Op
	N      int64
	Want   bool
	Result Result
}

// TokenState is the state of a token.
type TokenState uint8

// The states of a token.
const (
	TokenUnknown TokenState = iota // nothing is known: not applied, not settled, may still arrive
	TokenApplied                   // its write was applied
	TokenSettled                   // it was settled first, and never will be applied
	TokenExpired                   // it is older than the window, or made as far ahead: refused, whatever it was
	TokenRefused                   // its write was refused as Bounded, or its event as Unmet: a repeat is refused alike
)

// MarshalText returns the word for s, for JSON and logs.
func (s TokenState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// String returns the word for s.
func (s TokenState) String() string {
	switch s {
	case TokenApplied:
		return "applied"
	case TokenSettled:
		return "settled"
	case TokenExpired:
		return "expired"
	case TokenRefused:
		return "refused"
	default:
		return "unknown"
	}
}
