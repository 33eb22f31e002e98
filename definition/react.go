package definition

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ChoicesMax is how many choices a definition may have.
const ChoicesMax = 32

// ShardsMax is over how many cells the users of a counter may be laid.
const ShardsMax = 64

// A Once has each user counted at most once in each window of time.
type Once struct {
	// Every is how long a window is.
	Every Width `json:"every"`

	// Zone is the name of the time zone in which days, weeks, months and years begin.
	// The default is UTC. Windows of a fixed length have none.
	Zone string `json:"zone,omitempty"`

	// Keep is how long after the end of a window its users are remembered. An event that
	// is later than that is refused, since nobody could tell whether its user was counted.
	// The default is a day.
	Keep Keep `json:"keep,omitempty"`

	// Approximate is which part of the users who were not counted in the window yet may be taken
	// for some who were, and not be counted. It makes the users of a window a filter of some
	// bits for each, in place of their names. Zero remembers every user exactly.
	Approximate Percent `json:"approximate,omitempty"`

	// Users is how many users of a counter a filter has to remember in each window. A further
	// one may be refused. The default is 100,000. It is for Approximate only.
	Users int64 `json:"users,omitempty"`
}

// The limits of filters of users.
const (
	OnceErrorMin Percent = 10      // 17 hashes
	OnceErrorMax Percent = 100_000 // 4 hashes
	OnceUsersMax         = 4_000_000

	onceUsers = 100_000
)

// Remembers returns how many users of a counter a filter has to remember in each window.
func (o Once) Remembers() int64 {
	if o.Users == 0 {
		return onceUsers
	}
	return o.Users
}

const onceKeep = Keep(24 * time.Hour)

// Kept returns how long after the end of a window its users are remembered.
func (o Once) Kept() Keep {
	if o.Keep == 0 {
		return onceKeep
	}
	return o.Keep
}

// Window returns the windows in which users are counted once.
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
		return fmt.Errorf("once: hours, minutes and seconds are the same in all zones: leave out zone, or have 1d, 1w, 1mo, 3mo or 1y")
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

// Clocks returns all windows that a definition lays over time.
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
		return fmt.Errorf("shards: they are for counters that have choices; other counters are split by themselves while they are hot")
	case d.Shards > 1 && d.Bound() != nil:
		return fmt.Errorf("shards with a floor or a ceiling: no shard knows how many users all others have; leave one of them out")
	case len(d.Choices) > 0 && d.Once != Once{}:
		return fmt.Errorf("once and choices: a user has one choice anyway; leave out once")
	case len(d.Choices) > 0 && len(d.Dimensions) > 0:
		return fmt.Errorf("choices and dimensions: a reaction brings no values; leave out dimensions")
	}
	return d.Once.check()
}

// choices returns choices as a file has them.
func choices(names []string) string { return "[" + strings.Join(names, ", ") + "]" }
