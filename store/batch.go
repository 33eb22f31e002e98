package store

// A Writer is a source of numbered batches. Its id is issued by the store
// (see Enlist) and is its epoch: a later writer has a higher id.
type Writer uint64

// A Batch is what Apply takes: deltas for one partition, frozen before it is
// sent.
type Batch struct {
	Partition int

	// Writer, if not zero, makes this batch the next of a numbered row: it
	// covers (Prev, Seq], and applies only if the writer's mark in this
	// partition equals Prev (0 for a writer the partition does not know). If
	// the mark equals Seq and the batch is the same, the first results are
	// returned. Anything else is refused with ErrMark and the mark.
	Writer    Writer
	Prev, Seq uint64

	// Durability is what the acknowledgement must mean. A batch that touches
	// a cell whose last change is still on its way to a stronger durability
	// waits for that one. Stores that can't give it say so in the reply.
	Durability Durability

	Deltas []Delta
}

// Op is what a delta does to its cell.
type Op uint8

// The operations. They are stored and sent: append only.
const (
	OpAdd    Op = iota + 1 // add N; the cell exists afterwards
	OpSet                  // make the value N; the cell exists afterwards
	OpDelete               // make the cell absent
	OpSettle               // decide a token that did not arrive: it never will
	OpRetire               // forget the marks of writers up to N, and refuse those writers
)

// A Delta is one change to one cell.
//
// A delta that wants its value, or has a guard, or is not an OpAdd, is
// decided: it depends on the state it meets. Any other is blind.
type Delta struct {
	Cell  Cell
	Op    Op
	N     int64
	Want  bool  // fill Before and After of the result
	Guard Guard // conditions; the zero Guard has none
}

// A Guard is the condition on a delta.
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
}

// A Reply is what Apply says of one batch.
type Reply struct {
	Err        error      // the batch as a whole was refused and changed nothing
	Mark       uint64     // the writer's mark after this call; with ErrMark, the mark that refused it
	Replayed   bool       // the mark had it already: Results are the first ones
	Durability Durability // what this acknowledgement means
	Results    []Result   // one for each delta, in order
}

// A Result is what became of one delta.
type Result struct {
	Outcome  Outcome
	Replayed bool   // decided earlier, under the same token or the same mark
	Before   int64  // with Want, or a repeat of it
	After    int64  // with Want, or a repeat of it
	Version  uint64 // of the cell after the change; 0 after a delete or if refused
}

// Outcome is the decision on one delta.
type Outcome uint8

// The outcomes. They are stored and sent: append only.
const (
	Applied  Outcome = iota + 1 // done. For OpSettle: the token's write was applied, and this is its result
	Settled                     // the token was settled before its write arrived: it never will be applied
	Overflow                    // the sum would leave int64
	Mismatch                    // the token was used for another payload
	Expired                     // the token is older than the window
	Changed                     // the version did not match
	Full                        // the namespace holds as many keys, or tokens, as it may, or it would be one too many
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
	default:
		return Errorf(KindCorrupt, "unknown outcome %d", o)
	}
}

// A Fate is what is known of a token.
type Fate struct {
	State TokenState
	AtMS  int64 // when it was decided, Unix milliseconds; 0 if unknown

	// With TokenApplied: what the write was, and its first result.
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
	TokenExpired                   // it is older than the window: refused, whatever it was
)

// String returns the word for s.
func (s TokenState) String() string {
	switch s {
	case TokenApplied:
		return "applied"
	case TokenSettled:
		return "settled"
	case TokenExpired:
		return "expired"
	default:
		return "unknown"
	}
}
