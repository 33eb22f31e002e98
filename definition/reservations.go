package definition

import (
	"fmt"
	"strconv"
	"time"
)

// ReservationsMax is the maximum number of open reservations of a counter,
// unless the definition has another.
const ReservationsMax = 100_000

// Reservations limits what may be reserved of a counter at once. A limit of 0
// is the default.
type Reservations struct {
	Max    int64 `json:"max,omitempty"`       // how many; the default is ReservationsMax
	Total  int64 `json:"total,omitempty"`     // their sum; the default is no limit
	PerWho int64 `json:"per_who,omitempty"`   // how many of one who; the default is no limit
	Who    int64 `json:"who_total,omitempty"` // the sum of those of one who; the default is no limit
	MaxTTL Keep  `json:"max_ttl,omitempty"`   // for how long one may be made or extended; the default is a year
}

// HoldCells returns the number of cells that a commit may change if the counter
// has this many views. That is two for each view, and besides these the book,
// what is outside of views, a ledger entry, the part in the order of deadlines,
// the counter's own value, and two numbers for all reservations and for those
// of one user.
func HoldCells(views int) int { return 2*views + 9 }

func (d *Definition) checkReservations() error {
	if d.Reservations == nil {
		return nil
	}
	switch n := HoldCells(d.Cells()); {
	case d.Ceiling != nil:
		return fmt.Errorf("a counter with a ceiling can't be reserved, because a released amount might not fit under the ceiling")
	case len(d.Choices) > 0:
		return fmt.Errorf("a counter of reactions can't be reserved: leave out choices or reservations")
	case n > RidersMax:
		return fmt.Errorf("a commit would change %d cells, with %d views: at most %d: use fewer windows or dimensions", n, d.Cells(), RidersMax)
	}
	return d.Reservations.check()
}

func (r Reservations) check() error {
	for name, n := range map[string]int64{"max": r.Max, "total": r.Total, "per_who": r.PerWho, "who_total": r.Who} {
		if n < 0 {
			return fmt.Errorf("%s of %d: want 1 or more, or leave it out", name, n)
		}
	}
	if r.Max > 10*ReservationsMax {
		return fmt.Errorf("max of %d: at most %d", r.Max, 10*ReservationsMax)
	}
	if r.MaxTTL != 0 && (r.MaxTTL < Keep(time.Second) || r.MaxTTL > year || r.MaxTTL%Keep(time.Second) != 0) {
		return fmt.Errorf("max_ttl of %s: want whole seconds, from 1s to %s", r.MaxTTL, year)
	}
	return nil
}

// String returns r as a file has it.
func (r Reservations) String() string {
	var parts []string
	for _, limit := range []struct {
		name string
		n    int64
	}{{"max", r.Max}, {"total", r.Total}, {"per_who", r.PerWho}, {"who_total", r.Who}} {
		if limit.n != 0 {
			parts = append(parts, limit.name+": "+strconv.FormatInt(limit.n, 10))
		}
	}
	if r.MaxTTL != 0 {
		parts = append(parts, "max_ttl: "+r.MaxTTL.String())
	}
	return mapping(parts...)
}
