package definition

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	"github.com/quipudb/quipu/internal/limit"
)

// The limits of rate limits.
const (
	LimitsMax      = limit.RulesMax  // of one definition
	LimitAmountMax = limit.AmountMax // of a rate, a burst, and a cost
	ClientsMax     = 1_000_000_000   // of a limit

	clientsDefault = 1_000_000
)

// A Limit says how much a client may use in a length of time. The limits of a
// definition are decided together: if one refuses, nothing is used of the
// others.
type Limit struct {
	// Name tells the limits of one definition apart. The default is Per. If other
	// settings of the limit change, the usage of its clients is kept under the name.
	Name string `json:"name,omitempty"`

	// Algorithm says how the limit is decided. The default is Bucket.
	Algorithm Algorithm `json:"algorithm,omitzero"`

	// Rate is how much may be used in each Per.
	Rate int64 `json:"rate"`

	// Per is a length of time. For Calendar, it is a day, a week, a month and so on of
	// the time zone. For the others, 1d and 1w are 24 and 168 hours.
	Per Width `json:"per"`

	// Burst is the size of a bucket: how much may be used at once. The default is
	// Rate.
	Burst int64 `json:"burst,omitempty"`

	// Zone is the name of the time zone of a calendar. The default is UTC.
	Zone string `json:"zone,omitempty"`
}

// An Algorithm says how a limit is decided.
type Algorithm uint8

// The algorithms.
const (
	// Bucket is a token bucket (GCRA): it holds at most Burst, and Rate comes back
	// evenly in each Per.
	Bucket Algorithm = iota
	// FixedWindow allows Rate in each window of length Per, counted from 1970.
	FixedWindow
	// SlidingWindow is FixedWindow that also counts a share of the window before: as
	// much as is less than Per ago, assuming even use.
	SlidingWindow
	// Calendar allows Rate in each day, week, month or year of a time zone.
	Calendar
)

var algorithmWords = []string{"bucket", "window", "sliding", "calendar"}

// String returns the word for a.
func (a Algorithm) String() string { return algorithmWords[min(int(a), len(algorithmWords)-1)] }

// MarshalText returns the word for a.
func (a Algorithm) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText takes a word.
func (a *Algorithm) UnmarshalText(text []byte) error {
	i := slices.Index(algorithmWords, string(text))
	if i < 0 {
		return fmt.Errorf("%q: want bucket, window, sliding or calendar", text)
	}
	*a = Algorithm(i)
	return nil
}

// Called returns the name of the limit.
func (l Limit) Called() string {
	if l.Name != "" {
		return l.Name
	}
	return l.Per.String()
}

// Most returns how much may be used at once.
func (l Limit) Most() int64 {
	if l.Algorithm == Bucket && l.Burst != 0 {
		return l.Burst
	}
	return l.Rate
}

// Window returns the windows of a calendar.
func (l Limit) Window() Window { return Window{Every: l.Per, Zone: l.Zone} }

// Tag returns the number that stands for the name in the store.
func (l Limit) Tag() uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(l.Called()))
	return h.Sum32()
}

// PerSeconds returns a width of whole seconds.
func PerSeconds(n int64) (Width, error) { return ParseWidth(strconv.FormatInt(n, 10) + "s") }

func (l Limit) check() error {
	switch {
	case l.Name != "" && !nameOK(l.Name):
		return fmt.Errorf("want a letter, and then at most %d letters, digits, '_', '-' or '.'", NameBytesMax-1)
	case l.Algorithm > Calendar:
		return fmt.Errorf("unknown algorithm %d", l.Algorithm)
	case l.Rate < 1 || l.Rate > LimitAmountMax:
		return fmt.Errorf("rate of %d: want 1 to %d", l.Rate, int64(LimitAmountMax))
	case l.Per == Width{}:
		return fmt.Errorf("want per, such as 1s, 1m, 1h or 1d")
	case l.Burst != 0 && l.Algorithm != Bucket:
		return fmt.Errorf("only a bucket has a burst: leave it out")
	case l.Burst < 0 || l.Burst > LimitAmountMax:
		return fmt.Errorf("burst of %d: want 1 to %d", l.Burst, int64(LimitAmountMax))
	}
	if l.Algorithm == Calendar {
		switch {
		case l.Per.Fixed():
			return fmt.Errorf("per %s: a calendar has 1d, 1w, 1mo, 2mo, 3mo, 4mo, 6mo or 1y", l.Per)
		case l.Zone == "UTC":
			return fmt.Errorf("leave out zone for UTC")
		}
		return nil
	}
	switch {
	case l.Zone != "":
		return fmt.Errorf("only a calendar has a zone: leave it out")
	case !l.Per.Fixed() && l.Per.Shortest() > time.Duration(week):
		return fmt.Errorf("per %s: months and years differ in length: use the algorithm calendar, or give a number of hours", l.Per)
	case l.Per.Shortest() > limit.PerUSMax*time.Microsecond:
		return fmt.Errorf("per %s: at most 366 days", l.Per)
	}
	return nil
}

// CheckLimits returns an error if limits are not valid together.
func CheckLimits(limits []Limit) error {
	if len(limits) > LimitsMax {
		return fmt.Errorf("%d limits: at most %d", len(limits), LimitsMax)
	}
	for i, l := range limits {
		err := l.check()
		switch {
		case err == nil:
		case l.Name == "" && l.Per == Width{}: // what it is called by is missing
			return fmt.Errorf("limit %d of %d, which has no name: %w", i+1, len(limits), err)
		default:
			return fmt.Errorf("limit %q: %w", l.Called(), err)
		}
		for _, other := range limits[:i] {
			switch {
			case other.Called() == l.Called():
				return fmt.Errorf("two limits are called %q: give them names", l.Called())
			case other.Tag() == l.Tag():
				return fmt.Errorf("limits %q and %q: these two names can't be told apart: rename one of them", other.Called(), l.Called())
			}
		}
	}
	return nil
}

// Away says how a call of Allow is decided while the store can't be reached.
// With the zero value the call fails, like any other.
type Away struct {
	Then AwayThen `json:"then"`

	// Servers is the number of servers that divide the limit, if Then is Share.
	Servers int `json:"servers,omitempty"`
}

// ServersMax is the maximum number of servers that divide a limit.
const ServersMax = 1000

// AwayThen is the decision while the store can't be reached.
type AwayThen uint8

// Its possible fates.
const (
	Fail       AwayThen = iota // it fails: the store is unavailable
	FailOpen                   // it is allowed
	FailClosed                 // it is refused
	Share                      // each server decides by a share of the limit, in its own memory
)

var awayWords = []string{"fail", "open", "closed", "share"}

// String returns the word for t.
func (t AwayThen) String() string { return awayWords[min(int(t), len(awayWords)-1)] }

// MarshalText returns the word for t.
func (t AwayThen) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText takes a word.
func (t *AwayThen) UnmarshalText(text []byte) error {
	i := slices.Index(awayWords, string(text))
	if i < 0 {
		return fmt.Errorf("%q: want open, closed, {then: share, servers: 3}, or fail", text)
	}
	*t = AwayThen(i)
	return nil
}

// Check returns an error if a is not valid.
func (a Away) Check() error {
	switch {
	case a.Then > Share:
		return fmt.Errorf("away: unknown word %d", a.Then)
	case a.Then == Share && (a.Servers < 1 || a.Servers > ServersMax):
		return fmt.Errorf("away: share needs the number of servers: want {then: share, servers: 3}, up to %d", ServersMax)
	case a.Then != Share && a.Servers != 0:
		return fmt.Errorf("away: only share has servers: leave it out")
	}
	return nil
}

// String returns a as a file has it.
func (a Away) String() string {
	if a.Servers == 0 {
		return a.Then.String()
	}
	return mapping("then: "+a.Then.String(), "servers: "+strconv.Itoa(a.Servers))
}

// String returns l as a file has it.
func (l Limit) String() string {
	var parts []string
	if l.Name != "" {
		parts = append(parts, "name: "+l.Name)
	}
	if l.Algorithm != Bucket {
		parts = append(parts, "algorithm: "+l.Algorithm.String())
	}
	parts = append(parts, "rate: "+strconv.FormatInt(l.Rate, 10), "per: "+l.Per.String())
	if l.Burst != 0 {
		parts = append(parts, "burst: "+strconv.FormatInt(l.Burst, 10))
	}
	if l.Zone != "" {
		parts = append(parts, "zone: "+strconv.Quote(l.Zone))
	}
	return mapping(parts...)
}

// MaxClients returns the number of clients whose usage a limit of d remembers.
func (d *Definition) MaxClients() int64 {
	if d.Clients == 0 {
		return clientsDefault
	}
	return d.Clients
}

// checkLimits checks what the definition says of limits.
func (d *Definition) checkLimits() error {
	if err := CheckLimits(d.Limits); err != nil {
		return err
	}
	switch {
	case len(d.Limits) == 0 && d.Away != Away{}:
		return fmt.Errorf("away needs limits: leave it out, or add limits")
	case len(d.Limits) == 0 && d.Clients != 0:
		return fmt.Errorf("clients needs limits: leave it out, or add limits")
	case d.Clients < 0 || d.Clients > ClientsMax:
		return fmt.Errorf("clients: %d: want 1 to %d", d.Clients, ClientsMax)
	}
	return d.Away.Check()
}
