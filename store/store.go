// Package store is the contract between Quipu and the stores that keep its
// counts.
//
// A Store keeps cells, tokens and marks. A cell is one stored value, such as a
// counter. A token is a caller's name for one write. A mark is the number of
// the last batch that was applied from a writer. Apply is the only way to
// change them. The embedded engine, memstore and the stores over PostgreSQL and
// Redis keep the same contract, and package storetest tests it as executable
// laws. This package has words, types and limits. It does no I/O and imports no
// third party.
//
// # Writing
//
// Every write is a Batch that is given to Apply. A batch belongs to one
// partition and is atomic in it: all of its accepted deltas, its tokens and its
// mark become durable and visible together, or none does. A delta may be
// refused, because of an overflow, a token that was used for another payload,
// or a full namespace. It is refused alone: it changes nothing, and the other
// deltas of the batch are not affected. The deltas of a batch are decided in
// their order. A batch may have conditions on cells: then it is decided only if
// all of them hold.
//
// Nothing is visible before it has the durability that its batch asked for: not
// to Read, Scan or Lookup, not in a repeat, and not in a refusal.
//
// # Time
//
// A cell may have a deadline, in Unix milliseconds. From that moment on it does
// not exist: it reads as absent, and the next change to it starts from nothing.
// A delta gives the deadline itself, or a lifetime, which the store adds to its
// own time. The store's time never goes back: a cell that has expired for one
// caller has expired for all. A store removes expired cells sooner or later by
// itself. Until then they may count against the limit of the namespace, but
// they do not keep it full: a store makes room. Scan does not return them.
//
// # Layout
//
// Users of the store may spread a counter over several cells: see OpLayout. The
// store keeps a word with each cell, its layout, and knows one thing about it:
// a cell whose layout is not 0 is a part of a counter and can't decide alone.
// It accepts adds that ask for nothing back, and deltas that name its layout.
// It refuses everything else as Split, and the user that spread the counter
// first merges its parts. A cell has a deadline or a layout, never both, unless
// it is an object.
//
// # Parts and events
//
// A counter, and each of its shards, may have parts in addition to its own
// value: windows, members, lines of a ledger. A delta with an Event is a lead.
// Its riders change parts of the same cell in the same step, or not at all.
// Parts have no version and no deadline, and are not in lists of counters.
//
// # Objects
//
// A key may hold bytes instead of a count. Its cell then has the layout
// LayoutObject and the value 0, and the bytes are in its part Object. An event
// that is led by that part replaces whatever the key holds, in one step, and is
// judged by the key's own cell: whether it exists, its version, its deadline. A
// delta that is not meant for an object is refused as Split. OpGet, OpExpire
// and OpDelete are meant for both. When the cell is removed, also by its
// deadline, so are the bytes.
//
// # Exactly once
//
// Two guards make a repeat harmless. A token names one write to one cell: the
// store remembers it in the same atomic step as the count, and a repeat returns
// the first result. A writer numbers whole batches: a batch covers (Prev, Seq]
// and is applied only when the writer's mark equals Prev. So a batch may be
// sent again, unchanged, until a definite answer arrives.
//
// # Errors
//
// Apply returns an error when it can't answer for any of the batches: the store
// is closed, unavailable, or the outcome is unknown (see ErrUnknown). The error
// of one batch is in its Reply.Err: if a partition can't be reached, only the
// batches of that partition are unavailable or unknown (see Answer). The
// outcome of one delta is in its Result.Outcome. Errors match the Err… values
// of this package by errors.Is.
//
// # Cancellation
//
// A call whose context ends before its batches are frozen changes nothing and
// returns the context's error. After that it returns ErrUnknown, because the
// outcome can't be taken back. A Settle delta, or the same batch sent again,
// tells the outcome.
package store

import "context"

// A Store keeps cells, tokens and marks. It is safe for concurrent use.
type Store interface {
	// Apply applies each batch and fills replies[i] for batches[i]; the two
	// slices have the same length. Result slices in replies are reused when
	// they have room. The store keeps no reference to its arguments.
	//
	// A nil error means that every batch without a Reply.Err has at least the
	// durability that Reply.Durability names.
	Apply(ctx context.Context, batches []Batch, replies []Reply) error

	// Read fills values[i] with the durable value of cells[i]. Cells of one
	// partition are read at one moment. A cell that does not exist reads as
	// the zero Value.
	Read(ctx context.Context, cells []Cell, values []Value) error

	// Scan returns up to n cells of a namespace in the byte order of their
	// keys, as they are now. A result shorter than n is the end.
	Scan(ctx context.Context, r Range, n int) ([]Entry, error)

	// ReadParts fills contents[i] with what parts[i] holds durably. Parts of one
	// partition are read at one moment. A part that does not exist, or is below a
	// floor, reads as the zero Content.
	ReadParts(ctx context.Context, parts []PartCell, contents []Content) error

	// ScanParts returns up to n parts of a range of rows in their order, as they are
	// now. A result shorter than n is the end.
	ScanParts(ctx context.Context, r Rows, n int) ([]PartEntry, error)

	// Lookup reports what is known of a token now. It changes nothing: a
	// write with the token may still be on its way. A Settle delta is final.
	Lookup(ctx context.Context, c Cell, token string) (Fate, error)

	// Traits says what kind of store this is. They never change while it is
	// open.
	Traits() Traits

	// Close releases the store after the calls under way. Later calls return
	// ErrClosed; a second Close returns nil.
	Close() error
}

// Traits describes a store.
type Traits struct {
	Name       string     // "embedded", "memory", …
	Partitions int        // fixed when the store was created, at least 1
	Durability Durability // the strongest it offers
	Limits     Limits     // the limits in force
	Layouts    bool       // it takes OpLayout
	Shared     bool       // others may change it too, by stores of their own
}

// A Cell is the address of the smallest stored thing. Namespace "" is the
// store's own (see Enlist); callers of Quipu never reach it.
type Cell struct {
	Namespace string
	Key       string
}

// A Value is the content of a cell.
type Value struct {
	N       int64
	Version uint64 // changes with every change of the cell, and only rises; 0 if absent
	Exists  bool

	// DeadlineMS is from when on the cell does not exist, in Unix milliseconds;
	// 0 is never.
	DeadlineMS int64

	// Layout is not 0 if the cell is a part of a counter: see OpLayout.
	Layout int64

	// AsOfMS is not 0 if the store may lack the latest changes, such as a replica that
	// is behind. Every change acknowledged before it, in Unix milliseconds, is counted.
	// A cell that does not exist has it too.
	AsOfMS int64
}

// An Entry is a cell that Scan returns.
type Entry struct {
	Key   string
	Value Value
}

// A Range selects the keys of a namespace that start with Prefix and are
// greater than After.
type Range struct {
	Namespace string
	Prefix    string
	After     string
}

// Durability says what an acknowledged write survives.
type Durability uint8

// The durability words, weakest first. The zero value asks for Synced.
const (
	DurabilityDefault Durability = iota
	Memory                       // acknowledged at once, flushed soon: a crash of the process may lose it
	Written                      // handed to the operating system: survives kill -9, not power loss
	Synced                       // on stable storage: survives power loss
)

// String returns the word for d.
func (d Durability) String() string {
	switch d {
	case Memory:
		return "memory"
	case Written:
		return "written"
	default:
		return "synced"
	}
}

// MarshalText returns the word for d, for JSON and logs.
func (d Durability) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText takes what MarshalText returns.
func (d *Durability) UnmarshalText(text []byte) (err error) {
	*d, err = ParseDurability(string(text))
	return err
}

// ParseDurability returns the durability that a word names; "" is Synced.
func ParseDurability(word string) (Durability, error) {
	switch word {
	case "memory":
		return Memory, nil
	case "written":
		return Written, nil
	case "synced", "":
		return Synced, nil
	}
	return 0, Errorf(KindInvalid, "unknown durability %q: want synced, written or memory", word)
}
