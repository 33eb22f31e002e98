package call

import "time"

// An Event is one Add among many. The zero value of a field means that the
// option of the same name is not given.
type Event struct {
	Key       string
	Delta     int64
	Token     string
	At        time.Time
	Who       string
	WantValue bool
}
