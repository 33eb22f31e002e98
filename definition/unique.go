package definition

import (
	"fmt"
	"strconv"
	"strings"
)

// Who is the value of Unique.Of that counts the users of events.
const Who = "who"

// A Unique has the number of different users counted beside the events: for all time, and in
// each window and dimension that the definition has. It is exact while it is small, then an
// estimate.
type Unique struct {
	// Of is what is counted: who.
	Of string `json:"of"`

	// Error is the standard error that an estimate may have. The less it is, the more room
	// each window takes. The default is 0.84%, and takes up to 8 KiB.
	Error Percent `json:"error,omitempty"`
}

// The errors that may be asked for.
const (
	UniqueErrorMin Percent = 4_200   // takes up to 32 KiB
	UniqueErrorMax Percent = 100_000 // takes up to 64 bytes
)

// A Percent is a share in millionths. Its text is in percent, such as 0.8%.
type Percent int64

// String returns s in percent.
func (s Percent) String() string { return strconv.FormatFloat(float64(s)/1e4, 'f', -1, 64) + "%" }

// MarshalText returns s in percent.
func (s Percent) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText takes a number of percent.
func (s *Percent) UnmarshalText(text []byte) error {
	number, percent := strings.CutSuffix(string(text), "%")
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || !percent || !(n > 0 && n <= 100) || Percent(n*1e4+.5) == 0 {
		return fmt.Errorf("%q: want a share in percent, such as 0.8%%", text)
	}
	*s = Percent(n*1e4 + .5)
	return nil
}

// Sketches returns the number of sketches that an event changes.
func (d Definition) Sketches() int {
	tops := len(d.Tops) * (1 + len(d.Windows))
	if d.Unique.Of == "" {
		return tops
	}
	n := tops + 1 + len(d.Windows)
	for _, by := range d.Dimensions {
		n++
		for _, w := range d.Windows {
			if by.Has(w.Every) {
				n++
			}
		}
	}
	return n
}

// String returns u as a file has it.
func (u Unique) String() string {
	if u.Error == 0 {
		return u.Of
	}
	return mapping("of: "+u.Of, "error: "+u.Error.String())
}

func (d Definition) checkUnique() error {
	switch u := d.Unique; {
	case u == Unique{}:
		return nil
	case u.Of != Who:
		return fmt.Errorf("unique: of %q: want %s", u.Of, Who)
	case u.Error != 0 && (u.Error < UniqueErrorMin || u.Error > UniqueErrorMax):
		return fmt.Errorf("unique: error of %s: want %s to %s", u.Error, UniqueErrorMin, UniqueErrorMax)
	case len(d.Choices) > 0:
		return fmt.Errorf("unique and choices: a user with a choice counts once anyway; leave out unique")
	}
	return nil
}
