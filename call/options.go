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

// A WriteOption changes what one write means. Give each at most once, in any
// order, but a Dim for each dimension. An option that has no meaning for a call is refused with ErrInvalid.
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

// At says when the counted event happened; the zero time says nothing. It picks the
// windows that count the event, up to a day ahead of the store's time; a total counts all
// events, whenever they happened. It has a meaning for Add only.
func At(t time.Time) WriteOption { return WriteOption{kind: writeAt, n: uint64(t.UnixMilli())} }

// Dim says which value the counted event has in a dimension, such as the country it came
// from. The definition of the counter declares the dimensions; another one is refused with
// ErrInvalid. Give it once for each dimension. It has a meaning for Add only.
func Dim(name, value string) WriteOption {
	return WriteOption{kind: writeDim, name: name, text: value}
}

// Who says who did what is counted; "" says nothing. It has a meaning for Add
// only.
func Who(who string) WriteOption { return WriteOption{kind: writeWho, text: who} }

// WantValue asks for the value before and after the write.
func WantValue() WriteOption { return WriteOption{kind: writeWant} }

// IfVersion applies the write only if the counter is at this version, and
// refuses it with ErrChanged otherwise. Version 0 is a counter that does not
// exist.
func IfVersion(version uint64) WriteOption { return WriteOption{kind: writeVersion, n: version} }

// Floor refuses an Add that would take the counter below n, with a *BoundError. A
// counter that is below it already can be added to, but not taken from. It has a
// meaning for Add only.
func Floor(n int64) WriteOption { return WriteOption{kind: writeFloor, n: uint64(n)} }

// Ceiling refuses an Add that would take the counter above n, with a *BoundError.
// A counter that is above it already can be taken from, but not added to. It has a
// meaning for Add only.
func Ceiling(n int64) WriteOption { return WriteOption{kind: writeCeiling, n: uint64(n)} }

// Saturate makes an Add that a floor or a ceiling would refuse go as far as that,
// whether it is the call's own or that of the counter's definition; with neither, as
// far as int64 goes. The receipt says how much was applied. It has a meaning for
// Add only.
func Saturate() WriteOption { return WriteOption{kind: writeSaturate} }

// TTL makes the counter not exist any more so long after the Add, by the clock of
// the store, to the millisecond. Each Add with a TTL sets it anew; one without
// leaves it as it is. It has a meaning for Add only.
func TTL(d time.Duration) WriteOption { return WriteOption{kind: writeTTL, n: uint64(d)} }

// Because says why a counter is set, reset or deleted, and by whom, for the line in its
// ledger. Either may be empty. A counter without a ledger has no line, and keeps neither. It
// has a meaning for Set, Reset and Delete only.
func Because(c Correction) WriteOption {
	return WriteOption{kind: writeBecause, text: c.Reason, name: c.Actor}
}

// WriteTerms are what the options of a write say together, for a client that
// sends them over a wire.
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

// A ReadOption says what a reader needs of the answer. Give them in any order:
// the answer meets all of them.
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

// Exact asks for the value that counts every write acknowledged before the
// read began.
func Exact() ReadOption { return ReadOption{kind: readExact} }

// Session asks for a value that counts the write whose Receipt had this
// session, and all that the writer had seen by then. If the store has lost that
// write the read returns ErrSessionLost: drop the session, and read again without
// it.
func Session(session string) ReadOption { return ReadOption{kind: readSession, text: session} }

// MaxStaleness asks for a value that counts every write acknowledged d before
// the read began.
func MaxStaleness(d time.Duration) ReadOption {
	return ReadOption{kind: readStaleness, n: int64(d)}
}

// MaxError asks for a value that is proved to be at most n away from the exact
// one.
func MaxError(n int64) ReadOption { return ReadOption{kind: readError, n: n} }

// AsOf asks for the total that the counter had at a time, by the times of its events. It
// needs windows, and is exact only as far as these, and the ledger of what was set, can
// prove it. A counter whose windows do not begin at that time is told as of the next time
// at which they do: see Count.AsOf. It goes with no other option, and with Read alone.
func AsOf(t time.Time) ReadOption { return ReadOption{kind: readAsOf, n: t.UnixMilli()} }

// ReadTerms are what the options of a read say together, for a client that sends
// them over a wire.
type ReadTerms struct {
	Exact        bool
	Sessions     []string
	MaxStaleness time.Duration // if HasStaleness: the least of those given
	MaxError     int64         // if HasError: the least of those given
	AsOfMS       int64         // if HasAsOf: Unix milliseconds

	HasStaleness, HasError, HasAsOf bool
}

// ReadTermsOf returns what options say, or ErrInvalid if one is none.
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
				return ReadTerms{}, store.Errorf(store.KindInvalid, "a read as of a time goes with no other option")
			}
			t.HasAsOf, t.AsOfMS = true, o.n
		default:
			return ReadTerms{}, store.Errorf(store.KindInvalid, "unknown read option")
		}
	}
	return t, nil
}
