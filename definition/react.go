package definition

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ChoicesMax is the maximum number of choices of a definition.
const ChoicesMax = 32

// ShardsMax is the maximum number of cells for the users of a counter.
const ShardsMax = 64

// A Once counts each user at most once in each window of time.
type Once struct {
	// Every is the length of a window.
	Every Width `json:"every"`

	// Zone is the name of the time zone in which days, weeks, months and years begin.
	// The default is UTC. Windows of a fixed length have none.
	Zone string `json:"zone,omitempty"`

	// Keep is how long the users of a window are remembered after its end. Events that
	// are later than that are refused, because their users may have been counted. The
	// default is a day.
	Keep Keep `json:"keep,omitempty"`

	// Approximate is the share of new users who may be mistaken for counted ones and
	// not counted. The users of a window are then kept in a filter of some bits each,
	// instead of by name. Zero remembers every user exactly.
	Approximate Percent `json:"approximate,omitempty"`

	// Users is the number of users that the filter of a window has room for, with
	// Approximate. Further users may be refused. The default is 100,000.
	Users int64 `json:"users,omitempty"`
}

// The limits of Once.
const (
	OnceErrorMin Percent = 10      // 17 hashes
	OnceErrorMax Percent = 100_000 // 4 hashes
	OnceUsersMax         = 4_000_000

	onceUsers = 100_000
)

// Remembers returns the number of users that the filter of a window has room
// for.
func (o Once) Remembers() int64 {
	if o.Users == 0 {
		return onceUsers
	}
	return o.Users
}

const onceKeep = Keep(24 * time.Hour)

// Kept returns how long the users of a window are remembered after its end.
func (o Once) Kept() Keep {
	if o.Keep == 0 {
		return onceKeep
	}
	return o.Keep
}

// Window returns the windows of o.
func (o Once) Window() Window { return Window{Every: o.Every, Zone: o.Zone, Keep: o.Kept()} }

// String returns o as a file has it.
func (o Once) String() string {
	if o == (Once{Every: o.Every}) {
		return o.Every.String()
	}
	parts := []string{"every: " + o.Every.String()}
	if o.Zone != "" {
		parts = append(parts, fmt.Sprintf("zone: %q", o.Zone))
	}
	if o.Keep != 0 {
		parts = append(parts, "keep: "+o.Keep.String())
	}
	if o.Approximate != 0 {
		parts = append(parts, "approximate: "+o.Approximate.String())
	}
	if o.Users != 0 {
		parts = append(parts, "users: "+strconv.FormatInt(o.Users, 10))
	}
	return mapping(parts...)
}

func (o Once) check() error {
	switch {
	case o == Once{}:
		return nil
	case o.Every == Width{}:
		return fmt.Errorf("once: want every")
	case o.Zone != "" && o.Every.Fixed():
		return fmt.Errorf("once: hours, minutes and seconds are the same in all zones: leave out zone, or use 1d, 1w, 1mo, 3mo or 1y")
	case o.Zone == "UTC":
		return fmt.Errorf("once: leave out zone for UTC")
	case o.Approximate == 0 && o.Users != 0:
		return fmt.Errorf("once: users without approximate: every user is remembered; leave it out")
	case o.Approximate != 0 && (o.Approximate < OnceErrorMin || o.Approximate > OnceErrorMax):
		return fmt.Errorf("once: approximate of %s: want %s to %s", o.Approximate, OnceErrorMin, OnceErrorMax)
	case o.Users < 0 || o.Users > OnceUsersMax:
		return fmt.Errorf("once: %d users: want 1 to %d", o.Users, OnceUsersMax)
	case o.Keep != 0:
		if err := o.Keep.check(); err != nil {
			return fmt.Errorf("once: %w", err)
		}
	}
	return nil
}

// Clocks returns all windows of a definition.
func (d *Definition) Clocks() []Window {
	if d.Once == (Once{}) {
		return d.Windows
	}
	return append(slices.Clone(d.Windows), d.Once.Window())
}

// checkReactions checks what users are counted once by.
func (d Definition) checkReactions() error {
	if n := len(d.Choices); n > ChoicesMax {
		return fmt.Errorf("%d choices: at most %d", n, ChoicesMax)
	}
	for i, name := range d.Choices {
		if !nameOK(name) {
			return fmt.Errorf("choice %q: want a letter, and then at most %d letters, digits, '_', '-' or '.'", name, NameBytesMax-1)
		}
		if slices.Contains(d.Choices[:i], name) {
			return fmt.Errorf("choice %s is given twice", name)
		}
	}
	switch {
	case d.Shards < 0 || d.Shards > ShardsMax:
		return fmt.Errorf("shards of %d: want 1 to %d", d.Shards, ShardsMax)
	case d.Shards > 0 && len(d.Choices) == 0:
		return fmt.Errorf("shards: only counters with choices take it; Quipu splits other counters by itself while they are hot")
	case d.Shards > 1 && d.Bound() != nil:
		return fmt.Errorf("shards with a floor or a ceiling: a shard does not know how many users the others have; leave out one of them")
	case len(d.Choices) > 0 && d.Once != Once{}:
		return fmt.Errorf("once and choices: a user has one choice anyway; leave out once")
	case len(d.Choices) > 0 && len(d.Dimensions) > 0:
		return fmt.Errorf("choices and dimensions: a reaction has no values of dimensions; leave out dimensions")
	}
	return d.Once.check()
}

// choices returns choices as a file has them.
func choices(names []string) string { return "[" + strings.Join(names, ", ") + "]" }
