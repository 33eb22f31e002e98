package call

import (
	"time"
	"unicode/utf8"

	"github.com/quipudb/quipu/store"
)

// An Event is one Add of an AddBatch. The zero value of a field means that the
// option of the same name is not given.
type Event struct {
	Key       string
	Delta     int64
	Token     string
	At        time.Time
	Dims      []Dimension
	Who       string
	WantValue bool

	Floor, Ceiling *int64
	Saturate       bool
	TTL            time.Duration
}

// A Dimension is a value that an event has in one of the dimensions of its counter, such
// as the country it came from.
type Dimension struct{ Name, Value string }

// Terms returns the options of the event.
func (e *Event) Terms() WriteTerms {
	t := WriteTerms{
		Token: e.Token, HasToken: e.Token != "", Who: e.Who, HasWho: e.Who != "", HasAt: !e.At.IsZero(),
		Saturate: e.Saturate, WantValue: e.WantValue, HasFloor: e.Floor != nil, HasCeiling: e.Ceiling != nil,
		TTL: e.TTL, HasTTL: e.TTL != 0, Dims: e.Dims,
	}
	if t.HasAt {
		t.AtMS = e.At.UnixMilli()
	}
	if t.HasFloor {
		t.Floor = *e.Floor
	}
	if t.HasCeiling {
		t.Ceiling = *e.Ceiling
	}
	return t
}

// WhoBytesMax is the maximum length of the name of a user.
const WhoBytesMax = 255

// CheckWho returns an error if who is not a valid name.
func CheckWho(who string) error {
	switch {
	case len(who) > WhoBytesMax:
		return store.Errorf(store.KindTooLarge, "who of %d bytes: at most %d", len(who), WhoBytesMax)
	case !utf8.ValidString(who):
		return store.Errorf(store.KindInvalid, "who is not UTF-8")
	}
	return nil
}
