package call

import (
	"time"

	"github.com/quipudb/quipu/store"
)

// The limits of one call.
const (
	EventsMax = 100_000            // events in an AddBatch
	KeysMax   = store.ReadCellsMax // keys in a ReadBatch
	PageMax   = store.ScanMax      // counters in a page of List
)

// A WriteOption changes what one write means. Give each at most once, in any
// order. An option that has no meaning for a call is refused with ErrInvalid.
type WriteOption struct {
	kind writeKind
	text string
	n    uint64
}

type writeKind uint8

const (
	writeToken writeKind = iota + 1
	writeAt
	writeWho
	writeWant
	writeVersion
	writeKinds
)

// String returns the name of the option.
func (k writeKind) String() string {
	return [writeKinds]string{"", "Token", "At", "Who", "WantValue", "IfVersion"}[k]
}

// Token names this write among all writes to the counter, so that a repeat
// counts once and returns the first result.
func Token(token string) WriteOption { return WriteOption{kind: writeToken, text: token} }

// At says when the counted event happened, to the millisecond; the zero time
// says nothing. It has a meaning for Add only.
func At(t time.Time) WriteOption { return WriteOption{kind: writeAt, n: uint64(t.UnixMilli())} }

// Who says who did what is counted; "" says nothing. It has a meaning for Add
// only.
func Who(who string) WriteOption { return WriteOption{kind: writeWho, text: who} }

// WantValue asks for the value before and after the write.
func WantValue() WriteOption { return WriteOption{kind: writeWant} }

// IfVersion applies the write only if the counter is at this version, and
// refuses it with ErrChanged otherwise. Version 0 is a counter that does not
// exist.
func IfVersion(version uint64) WriteOption { return WriteOption{kind: writeVersion, n: version} }

// WriteTerms are what the options of a write say together, for a client that
// sends them over a wire.
type WriteTerms struct {
	Token     string // if HasToken
	Who       string // if HasWho
	AtMS      int64  // if HasAt: Unix milliseconds
	Version   uint64 // if HasVersion
	WantValue bool

	HasToken, HasWho, HasAt, HasVersion bool
}

// WriteTermsOf returns what options say, or ErrInvalid if one is given twice or
// is none.
func WriteTermsOf(opts []WriteOption) (t WriteTerms, err error) {
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
		default:
			return WriteTerms{}, store.Errorf(store.KindInvalid, "unknown write option")
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

// ReadTerms are what the options of a read say together, for a client that sends
// them over a wire.
type ReadTerms struct {
	Exact        bool
	Sessions     []string
	MaxStaleness time.Duration // if HasStaleness: the least of those given
	MaxError     int64         // if HasError: the least of those given

	HasStaleness, HasError bool
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
		default:
			return ReadTerms{}, store.Errorf(store.KindInvalid, "unknown read option")
		}
	}
	return t, nil
}
