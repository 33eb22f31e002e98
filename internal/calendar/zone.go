package calendar

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"sort"
	"time"
)

// A Zone is the time of a place as a table: what its clocks were ahead of UTC, and when
// they were turned, from 1970 to 2100. It does not change. A nil Zone is UTC.
//
// Machines have different editions of the rules of time zones. A table that is kept with
// the definitions makes all servers agree, whatever their machines have.
type Zone struct {
	name  string
	turns []turn // by time; the first holds from the beginning of time on
}

// A turn is a change of the clocks.
type turn struct {
	at    int64 // the instant from which on
	ahead int64 // of UTC
}

// zoneTo is where a table ends, in seconds: the first day of 2100. The last turn holds for
// ever.
const zoneTo = int64(4_102_444_800)

// aheadMax is more than any clock has been ahead of UTC since 1970, or behind it.
const aheadMax = 16 * hour

// NewZone returns the table of a location. It looks at the clocks once for each day, and
// then for the second: Time.ZoneBounds does not always end after a time that it is asked
// for (31 December of leap years after 2037).
func NewZone(location *time.Location) *Zone {
	ahead := func(unix int64) int64 {
		_, sec := time.Unix(unix, 0).In(location).Zone()
		return int64(sec) * second
	}
	const step = 86_400
	z := &Zone{name: location.String(), turns: []turn{{0, ahead(0)}}}
	last := z.turns[0].ahead
	for unix := int64(step); unix < zoneTo; unix += step {
		now := ahead(unix)
		if now == last {
			continue
		}
		before := sort.Search(step, func(back int) bool { return ahead(unix-int64(back)) != now })
		z.turns = append(z.turns, turn{(unix - int64(before) + 1) * second, now})
		last = now
	}
	return z
}

// Name returns the name of z, such as Europe/Berlin.
func (z *Zone) Name() string {
	if z == nil {
		return "UTC"
	}
	return z.name
}

// Same reports whether z and y have the same name and table.
func (z *Zone) Same(y *Zone) bool {
	return z == y || z.Name() == y.Name() && z.Agree(y) == never
}

const never = int64(1<<63 - 1)

// Agree returns the instant up to which the clocks of z and y agree.
func (z *Zone) Agree(y *Zone) int64 {
	a, b := z.table(), y.table()
	for i := range max(len(a), len(b)) {
		switch {
		case i == len(a):
			return b[i].at
		case i == len(b):
			return a[i].at
		case a[i] != b[i] && i == 0:
			return -never
		case a[i] != b[i]:
			return min(a[i].at, b[i].at)
		}
	}
	return never
}

var utc = []turn{{}}

func (z *Zone) table() []turn {
	if z == nil {
		return utc
	}
	return z.turns
}

// on reports whether midnights, and all instants at which clocks are turned, are
// multiples of a length that divides a day.
func (z *Zone) on(length int64) bool {
	return !slices.ContainsFunc(z.table(), func(t turn) bool { return t.at%length != 0 || t.ahead%length != 0 })
}

// segment returns the index of the turn that holds at t.
func segment(turns []turn, t int64) int {
	i, found := slices.BinarySearchFunc(turns, t, func(a turn, t int64) int { return cmp.Compare(a.at, t) })
	if found || i == 0 {
		return i
	}
	return i - 1
}

// wall returns the latest time that the clocks of z have shown by t. That is what they
// show, except where they were turned back: there it waits until they have caught up. So
// wall never falls, and a day that clocks left and came back to is one day.
func (z *Zone) wall(t int64) int64 {
	turns := z.table()
	i := segment(turns, t)
	latest := t + turns[i].ahead
	for ; i > 0 && turns[i].at > t-2*aheadMax; i-- {
		latest = max(latest, turns[i].at+turns[i-1].ahead-1)
	}
	return latest
}

// instant returns the first instant at which the clocks of z show wall or later.
func (z *Zone) instant(wall int64) int64 {
	turns := z.table()
	i := segment(turns, wall-aheadMax)
	for i+1 < len(turns) && turns[i+1].at+turns[i].ahead <= wall {
		i++
	}
	t := wall - turns[i].ahead
	if i > 0 {
		t = max(t, turns[i].at)
	}
	return t
}

// MarshalText returns the table of z, without its name: lengths of time and of turns in
// seconds, as varints.
func (z *Zone) MarshalText() ([]byte, error) {
	var raw []byte
	var last turn
	for _, t := range z.table() {
		raw = binary.AppendVarint(raw, (t.at-last.at)/second)
		raw = binary.AppendVarint(raw, (t.ahead-last.ahead)/second)
		last = t
	}
	return base64.RawStdEncoding.AppendEncode(nil, raw), nil
}

// ParseZone returns the zone with a name and a table that MarshalText made.
func ParseZone(name string, table []byte) (*Zone, error) {
	raw, err := base64.RawStdEncoding.Strict().AppendDecode(nil, table)
	if err != nil {
		return nil, fmt.Errorf("table of time zone %q: %w", name, err)
	}
	z := &Zone{name: name}
	var last turn
	for len(raw) > 0 {
		at, n := binary.Varint(raw)
		ahead, m := binary.Varint(raw[max(n, 0):])
		first := len(z.turns) == 0
		const most = int64(1) << 33 // seconds: 272 years
		switch {
		case n <= 0 || m <= 0,
			first && at != 0,
			!first && (at <= 0 || ahead == 0 || at > most || last.at > zoneTo*second),
			ahead > most || ahead < -most:
			return nil, fmt.Errorf("table of time zone %q is damaged", name)
		}
		last = turn{last.at + at*second, last.ahead + ahead*second}
		if last.ahead <= -aheadMax || last.ahead >= aheadMax {
			return nil, fmt.Errorf("table of time zone %q is damaged", name)
		}
		z.turns, raw = append(z.turns, last), raw[n+m:]
	}
	if len(z.turns) == 0 {
		return nil, fmt.Errorf("table of time zone %q is empty", name)
	}
	return z, nil
}
