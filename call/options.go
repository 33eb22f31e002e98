package call

import (
	"slices"
	"time"

	"github.com/quipudb/quipu/store"
)

// The limits of one call.
const (
	EventsMax = 100_000            // events in an AddBatch
	DimsMax   = 32                 // dimensions that an event may have a value in
	KeysMax   = store.ReadCellsMax // keys in a ReadBatch
	PageMax   = store.ScanMax      // counters in a page of List
	SumPage   = 1000               // counters that Sum reads at a time
)

// A WriteOption changes one write. Give each at most once and in any order;
// only Dim may repeat, once for each dimension. An option that does not fit the
// call is refused with ErrInvalid.
type WriteOption struct {
	kind writeKind
	text string
	n    uint64
	name string // of a dimension, or of an actor
}

type writeKind uint8

const (
	writeToken writeKind = iota + 1
	writeAt
	writeWho
	writeWant
	writeVersion
	writeFloor
	writeCeiling
	writeSaturate
	writeTTL
	writeDim
	writeBecause
	writeKinds
)

// String returns the name of the option.
func (k writeKind) String() string {
	return [writeKinds]string{"", "Token", "At", "Who", "WantValue", "IfVersion", "Floor", "Ceiling", "Saturate", "TTL", "Dim", "Because"}[k]
}

// refused returns why the option has no meaning for an Add, or for another write; "" if it
// has one.
func (k writeKind) refused(adds bool) string {
	switch k {
	case writeToken, writeWant, writeVersion:
		return ""
	case writeBecause:
		if adds {
			return "has a meaning for Set, Reset and Delete only: see Adjust"
		}
		return ""
	default:
		if adds {
			return ""
		}
		return "has a meaning for Add only"
	}
}

// Token names this write among all writes to the counter, so that a repeat
// counts once and returns the first result.
func Token(token string) WriteOption { return WriteOption{kind: writeToken, text: token} }

// At gives the time of the counted event. It selects the windows that count the
// event, up to a day ahead of the store's time. A total counts all events,
// whatever their time. The zero time means no option. At is an option of Add
// only.
func At(t time.Time) WriteOption { return WriteOption{kind: writeAt, n: uint64(t.UnixMilli())} }

// Dim gives the value of a dimension for the counted event, such as the country
// it came from. Give it once for each dimension. The definition of the counter
// declares the dimensions, and any other is refused with ErrInvalid. Dim is an
// option of Add only.
func Dim(name, value string) WriteOption {
	return WriteOption{kind: writeDim, name: name, text: value}
}

// Who names the user who caused the event. An empty name means no option. Who
// is an option of Add only.
func Who(who string) WriteOption { return WriteOption{kind: writeWho, text: who} }

// WantValue asks for the value before and after the write.
func WantValue() WriteOption { return WriteOption{kind: writeWant} }

// IfVersion applies the write only if the counter has this version. Otherwise
// it is refused with ErrChanged. Version 0 means that the counter does not
// exist.
func IfVersion(version uint64) WriteOption { return WriteOption{kind: writeVersion, n: version} }

// Floor refuses an Add that would take the counter below n, with a *BoundError.
// If the counter is below n already, it can be raised but not lowered. Floor is
// an option of Add only.
func Floor(n int64) WriteOption { return WriteOption{kind: writeFloor, n: uint64(n)} }

// Ceiling refuses an Add that would take the counter above n, with a
// *BoundError. If the counter is above n already, it can be lowered but not
// raised. Ceiling is an option of Add only.
func Ceiling(n int64) WriteOption { return WriteOption{kind: writeCeiling, n: uint64(n)} }

// Saturate makes an Add that a floor or a ceiling would refuse add as much as
// possible instead. That holds for the bounds of the call and of the counter's
// definition, and for the range of int64. The receipt says how much was
// applied. Saturate is an option of Add only.
func Saturate() WriteOption { return WriteOption{kind: writeSaturate} }

// TTL deletes the counter this long after the Add, by the clock of the store,
// to the millisecond. Each Add with a TTL sets the deadline anew, and an Add
// without one keeps it. TTL is an option of Add only.
func TTL(d time.Duration) WriteOption { return WriteOption{kind: writeTTL, n: uint64(d)} }

// Because gives the reason for a change and its actor, for the ledger of the
// counter. Either may be empty. A counter without a ledger keeps neither.
// Because is an option of Set, Reset and Delete only.
func Because(c Correction) WriteOption {
	return WriteOption{kind: writeBecause, text: c.Reason, name: c.Actor}
}

// WriteTerms are the options of a write as one struct, for a client that sends
// them to a server.
type WriteTerms struct {
	Token     string // if HasToken
	Who       string // if HasWho
	AtMS      int64  // if HasAt: Unix milliseconds
	Version   uint64 // if HasVersion
	Floor     int64  // if HasFloor
	Ceiling   int64  // if HasCeiling
	Saturate  bool
	TTL       time.Duration // if HasTTL
	WantValue bool
	Dims      []Dimension // no name twice
	Because   Correction  // if HasBecause

	HasToken, HasWho, HasAt, HasVersion, HasFloor, HasCeiling, HasTTL, HasBecause bool
}

// WriteTermsOf returns what the options of an Add, or of another write, say. It
// returns ErrInvalid if one is given twice, is none, or has no meaning.
func WriteTermsOf(opts []WriteOption, adds bool) (t WriteTerms, err error) {
	for i := range opts {
		o := &opts[i]
		var given *bool
		switch o.kind {
		case writeToken:
			given, t.Token = &t.HasToken, o.text
		case writeAt:
			given, t.AtMS = &t.HasAt, int64(o.n)
		case writeWho:
			given, t.Who = &t.HasWho, o.text
		case writeWant:
			given = &t.WantValue
		case writeVersion:
			given, t.Version = &t.HasVersion, o.n
		case writeFloor:
			given, t.Floor = &t.HasFloor, int64(o.n)
		case writeCeiling:
			given, t.Ceiling = &t.HasCeiling, int64(o.n)
		case writeSaturate:
			given = &t.Saturate
		case writeTTL:
			given, t.TTL = &t.HasTTL, time.Duration(o.n)
		case writeDim:
			twice := slices.ContainsFunc(t.Dims, func(d Dimension) bool { return d.Name == o.name })
			given, t.Dims = &twice, append(t.Dims, Dimension{o.name, o.text})
		case writeBecause:
			given, t.Because = &t.HasBecause, Correction{Reason: o.text, Actor: o.name}
		default:
			return WriteTerms{}, store.Errorf(store.KindInvalid, "unknown write option")
		}
		if why := o.kind.refused(adds); why != "" {
			return WriteTerms{}, store.Errorf(store.KindInvalid, "option %s %s", o.kind, why)
		}
		if *given {
			return WriteTerms{}, store.Errorf(store.KindInvalid, "option %s is given twice", o.kind)
		}
		*given = true
	}
	return t, nil
}

// A ReadOption says what the reader needs. The answer meets all options, in any
// order.
type ReadOption struct {
	kind readKind
	text string
	n    int64
}

type readKind uint8

const (
	readExact readKind = iota + 1
	readSession
	readStaleness
	readError
	readAsOf
)

// Exact asks for a value that includes every write acknowledged before the read
// began.
func Exact() ReadOption { return ReadOption{kind: readExact} }

// Session asks for a value that includes the write whose Receipt had this
// session, and all that its writer had seen by then. If the store has lost that
// write, the read returns ErrSessionLost: drop the session, and read again
// without it.
func Session(session string) ReadOption { return ReadOption{kind: readSession, text: session} }

// MaxStaleness asks for a value that includes every write acknowledged more
// than d before the read began.
func MaxStaleness(d time.Duration) ReadOption {
	return ReadOption{kind: readStaleness, n: int64(d)}
}

// MaxError asks for a value that is proved to differ from the exact one by at
// most n.
func MaxError(n int64) ReadOption { return ReadOption{kind: readError, n: n} }

// AsOf asks for the total that the counter had at a time, by the times of its
// events. The counter needs windows. The answer is exact as far as the windows
// and the ledger can prove it. If no window begins at that time, the answer is
// for the next time at which one does: see Count.AsOf. AsOf can't be combined
// with other options, and only Read accepts it.
func AsOf(t time.Time) ReadOption { return ReadOption{kind: readAsOf, n: t.UnixMilli()} }

// ReadTerms are the options of a read as one struct, for a client that sends
// them to a server.
type ReadTerms struct {
	Exact        bool
	Sessions     []string
	MaxStaleness time.Duration // if HasStaleness: the least of those given
	MaxError     int64         // if HasError: the least of those given
	AsOfMS       int64         // if HasAsOf: Unix milliseconds

	HasStaleness, HasError, HasAsOf bool
}

// ReadTermsOf returns the options as one struct, or ErrInvalid if one is not
// valid.
func ReadTermsOf(opts []ReadOption) (t ReadTerms, err error) {
	for _, o := range opts {
		switch o.kind {
		case readExact:
			t.Exact = true
		case readSession:
			t.Sessions = append(t.Sessions, o.text)
		case readStaleness:
			if d := time.Duration(o.n); !t.HasStaleness || d < t.MaxStaleness {
				t.HasStaleness, t.MaxStaleness = true, d
			}
		case readError:
			if !t.HasError || o.n < t.MaxError {
				t.HasError, t.MaxError = true, o.n
			}
		case readAsOf:
			if len(opts) > 1 {
				return ReadTerms{}, store.Errorf(store.KindInvalid, "a read as of a time can't be combined with other options")
			}
			t.HasAsOf, t.AsOfMS = true, o.n
		default:
			return ReadTerms{}, store.Errorf(store.KindInvalid, "unknown read option")
		}
	}
	return t, nil
}
