// Package policy has policies, which say how counters are counted and read:
// their settings, their text form, their presets, and which of several applies
// to a key.
package policy

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/quipudb/quipu/internal/duration"
	"github.com/quipudb/quipu/internal/hot"
	"github.com/quipudb/quipu/store"
)

// The limits of policies.
const (
	Max       = 1_000         // policies of a DB
	ShardsMax = hot.ShardsMax // shards of a counter

	// Between refreshes of a total.
	IntervalMin = 10 * time.Millisecond //nolint:revive // the least, not minutes
	IntervalMax = time.Hour
)

const (
	coolDownDefault = 10 * time.Second
	intervalDefault = time.Second
)

// A Policy says how the keys that it names are counted. The first policy of a
// DB that matches a key applies to it.
type Policy struct {
	// Namespace is the namespace of the keys. Empty means any.
	Namespace string

	// Pattern is a key, or a prefix followed by '*'. A '*' anywhere else is
	// invalid.
	Pattern string

	// Durability is the durability that a nil error from a write promises. The default
	// is Synced.
	Durability store.Durability

	// Shards is the number of parts into which a counter is split soon after its first
	// adds. The default is one. A counter that becomes hot is split even without this.
	Shards int

	// MaxShards is the maximum number of parts of a split counter. The default is
	// ShardsMax.
	MaxShards int

	// Single counters are never split.
	Single bool

	// Spread chooses the part of a split counter that an add goes to.
	Spread Spread

	// CoolDown is how long a split counter must be quiet before its parts are merged
	// again. The default is 10 s.
	CoolDown time.Duration

	// Timing says when the parts of a counter are added up for readers. It permits old
	// values but does not require them: over a store in this process, where an exact
	// read costs no more, every read is exact.
	Timing Timing

	// Interval is how long a total is served to readers before it is refreshed. If a
	// refresh fails, the old total is served until it is two intervals old, and then
	// readers ask the store. The default is 1 s. FanIn keeps no totals.
	Interval time.Duration

	// Stale is the maximum age of a value that is served when the store can't be
	// reached. The default is none, so that reads fail. It needs Options.Recall.
	Stale time.Duration

	// Partial lets a read that can't reach some parts of a counter return the sum of
	// the others. The answer says that it is not complete. Without Partial such a read
	// fails.
	Partial bool
}

// A Spread chooses the part of a split counter that an add goes to.
type Spread uint8

// The ways to spread.
const (
	SpreadRandom Spread = iota // any shard
	SpreadWho                  // one shard for all adds with the same Who
	SpreadTime                 // one shard of each DB for all adds of a second, then the next
)

// String returns the word for s.
func (s Spread) String() string {
	switch s {
	case SpreadWho:
		return "who"
	case SpreadTime:
		return "time"
	default:
		return "random"
	}
}

// MarshalText returns the word for s, for JSON and logs.
func (s Spread) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// A Timing says when the parts of a counter are added up.
type Timing uint8

// The timings.
const (
	FanIn  Timing = iota // at every read, which asks the store
	Rollup               // every Interval, while the counter is read here
	Hybrid               // like Rollup, and counts what was written through this DB since
)

// String returns the word for t.
func (t Timing) String() string {
	switch t {
	case Rollup:
		return "rollup"
	case Hybrid:
		return "hybrid"
	default:
		return "fan-in"
	}
}

// MarshalText returns the word for t, for JSON and logs.
func (t Timing) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// Names reports whether p names a key of a namespace.
func (p Policy) Names(namespace, key string) bool {
	if p.Namespace != "" && p.Namespace != namespace {
		return false
	}
	prefix, open := strings.CutSuffix(p.Pattern, "*")
	return key == prefix || open && strings.HasPrefix(key, prefix)
}

// Effective returns p with its defaults filled in.
func (p Policy) Effective() Policy {
	if p.Durability == store.DurabilityDefault {
		p.Durability = store.Synced
	}
	p.Shards = max(p.Shards, 1)
	if p.MaxShards == 0 {
		p.MaxShards = ShardsMax
		if p.Single {
			p.MaxShards = 1
		}
	}
	if p.CoolDown == 0 {
		p.CoolDown = coolDownDefault
	}
	if p.Interval == 0 && p.Timing != FanIn {
		p.Interval = intervalDefault
	}
	return p
}

// check returns an error if p names no keys, or can't be kept.
func (p Policy) check() error {
	if err := p.checkNames(); err != nil {
		return err
	}
	refuse := func(format string, args ...any) error {
		return store.Errorf(store.KindInvalid, "pattern %q: %s", p.Pattern, fmt.Sprintf(format, args...))
	}
	e := p.Effective()
	switch {
	case p.Durability > store.Synced:
		return refuse("unknown durability %d", p.Durability)
	case p.Spread > SpreadTime:
		return refuse("unknown spread %d", p.Spread)
	case p.Timing > Hybrid:
		return refuse("unknown timing %d", p.Timing)
	case p.Stale < 0:
		return refuse("stale values of %s: want 0s or more", p.Stale)
	case p.CoolDown < 0:
		return refuse("cool-down of %s: want 0s or more", p.CoolDown)
	case p.Shards < 0 || p.Shards > ShardsMax:
		return refuse("%d shards: want 1 to %d", p.Shards, ShardsMax)
	case p.MaxShards < 0 || p.MaxShards > ShardsMax:
		return refuse("max-shards of %d: want 1 to %d", p.MaxShards, ShardsMax)
	case p.Single && (p.Shards > 1 || p.MaxShards > 1):
		return refuse("single counters are never split: leave out either single, or shards and max-shards")
	case e.Shards > e.MaxShards:
		return refuse("%d shards are more than the %d of max-shards", e.Shards, e.MaxShards)
	case p.Interval != 0 && p.Timing == FanIn:
		return refuse("an interval needs timing rollup or hybrid: fan-in keeps no total")
	case p.Interval != 0 && (p.Interval < IntervalMin || p.Interval > IntervalMax):
		return refuse("interval of %s: want %s to %s", p.Interval, duration.Short(IntervalMin), duration.Short(IntervalMax))
	}
	return nil
}

// checkNames returns an error if p names no keys.
func (p Policy) checkNames() error {
	if p.Namespace != "" {
		if err := store.CheckNamespace(p.Namespace); err != nil {
			return err
		}
	}
	return CheckPattern(p.Pattern)
}

// CheckPattern returns an error if a pattern is not valid.
func CheckPattern(pattern string) error {
	prefix := strings.TrimSuffix(pattern, "*")
	switch {
	case pattern == "":
		return store.Errorf(store.KindInvalid, "pattern is empty: want a key, or a prefix followed by *")
	case strings.Contains(prefix, "*"):
		return store.Errorf(store.KindInvalid, "pattern %q: * may stand only at the end", pattern)
	case len(prefix) > store.KeyBytesMax:
		return store.Errorf(store.KindTooLarge, "pattern of %d bytes: at most %d", len(prefix), store.KeyBytesMax)
	case !utf8.ValidString(prefix):
		return store.Errorf(store.KindInvalid, "pattern is not UTF-8")
	}
	return nil
}

// Check returns an error if one of the policies is not valid, or if there are
// too many.
func Check(policies []Policy) error {
	if len(policies) > Max {
		return store.Errorf(store.KindTooLarge, "%d policies: at most %d", len(policies), Max)
	}
	for _, p := range policies {
		if err := p.check(); err != nil {
			return err
		}
	}
	return nil
}

// A SettingError is the error of one setting of a policy.
type SettingError struct {
	Name string // of the setting
	Err  error
}

// Error returns what is wrong.
func (e *SettingError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong.
func (e *SettingError) Unwrap() error { return e.Err }

// settingNames are the names of the settings, as files have them.
const settingNames = "preset, namespace, pattern, durability, shards, max-shards, single, spread, cool-down, timing, interval, stale, partial"

// Parse returns the policy with the given settings. The names of settings are
// those of the fields, in lower case with dashes between words, as in files. A
// preset supplies the settings that are not given. If a setting is wrong, the
// error is a *SettingError.
func Parse(settings map[string]string) (p Policy, err error) {
	if name, ok := settings["preset"]; ok {
		if p, ok = Preset(name); !ok {
			return p, &SettingError{"preset", store.Errorf(store.KindInvalid, "preset: %q: want %s", name, presetNames())}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if name == "floor" || name == "ceiling" { // They were settings of policies once.
			return p, &SettingError{name, store.Errorf(store.KindInvalid, "a %s is set by a definition, which all servers share, and not by a policy: want definitions: [{pattern: %q, %s: %s}]",
				name, settings["pattern"], name, settings[name])}
		}
		known, err := p.set(name, settings[name])
		if !known {
			return p, &SettingError{name, store.Errorf(store.KindInvalid, "unknown setting %q of a policy: want %s", name, settingNames)}
		}
		if err != nil {
			return p, &SettingError{name, store.Errorf(store.KindInvalid, "%s: %w", name, err)}
		}
	}
	interval, given := settings["interval"]
	switch {
	case !given && p.Timing == FanIn:
		p.Interval = 0 // that of a preset whose timing was not wanted
	case given && p.Interval == 0 && p.Timing != FanIn: // it would mean the default
		return p, &SettingError{"interval", store.Errorf(store.KindInvalid, "interval: %q: want %s to %s", interval, duration.Short(IntervalMin), duration.Short(IntervalMax))}
	}
	return p, p.check()
}

func (p *Policy) set(name, value string) (known bool, err error) {
	switch name {
	case "preset":
	case "namespace":
		p.Namespace = value
	case "pattern":
		p.Pattern = value
	case "durability":
		p.Durability, err = parseWord(value, store.Synced, store.Written, store.Memory)
	case "shards":
		p.Shards, err = parseCount(value)
	case "max-shards":
		p.MaxShards, err = parseCount(value)
	case "single":
		p.Single, err = parseTruth(value)
	case "spread":
		p.Spread, err = parseWord(value, SpreadRandom, SpreadWho, SpreadTime)
	case "cool-down":
		if p.CoolDown, err = parseDuration(value); err == nil && p.CoolDown == 0 { // it would mean the default
			err = fmt.Errorf("%q: want more than 0s; leave it out for the default of %s", value, duration.Short(coolDownDefault))
		}
	case "timing":
		p.Timing, err = parseWord(value, FanIn, Rollup, Hybrid)
	case "interval":
		p.Interval, err = parseDuration(value)
	case "stale":
		p.Stale, err = parseDuration(value)
	case "partial":
		p.Partial, err = parseTruth(value)
	default:
		return false, nil
	}
	return true, err
}

func parseWord[W fmt.Stringer](value string, words ...W) (none W, err error) {
	var known []string
	for _, w := range words {
		if w.String() == value {
			return w, nil
		}
		known = append(known, w.String())
	}
	return none, fmt.Errorf("%q: want %s", value, strings.Join(known, ", "))
}

func parseCount(value string) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > ShardsMax {
		return 0, fmt.Errorf("%q: want a number from 1 to %d", value, ShardsMax)
	}
	return n, nil
}

func parseTruth(value string) (bool, error) {
	if value != "true" && value != "false" {
		return false, fmt.Errorf("%q: want true or false", value)
	}
	return value == "true", nil
}

func parseDuration(value string) (time.Duration, error) {
	d, err := duration.Parse(value)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q: %w", value, err)
	case d < 0:
		return 0, fmt.Errorf("%q: want 0s or more", value)
	}
	return d, nil
}

// A Setting is one setting of a policy, in its text form.
type Setting struct {
	Name  string // as files have it
	Value any    // a string, an int, a bool, or a fmt.Stringer for words and durations
	Given bool   // it is not the default
}

// Settings returns all settings of p, in the order in which they are written.
func (p Policy) Settings() []Setting {
	return []Setting{
		{"namespace", p.Namespace, p.Namespace != ""},
		{"pattern", p.Pattern, true},
		{"durability", p.Durability, p.Durability != store.DurabilityDefault},
		{"shards", p.Shards, p.Shards != 0},
		{"max-shards", p.MaxShards, p.MaxShards != 0},
		{"single", p.Single, p.Single},
		{"spread", p.Spread, p.Spread != SpreadRandom},
		{"cool-down", duration.Short(p.CoolDown), p.CoolDown != 0},
		{"timing", p.Timing, p.Timing != FanIn},
		{"interval", duration.Short(p.Interval), p.Interval != 0},
		{"stale", duration.Short(p.Stale), p.Stale != 0},
		{"partial", p.Partial, p.Partial},
	}
}

// String returns p as a YAML mapping on one line, without defaults, as files
// have it.
func (p Policy) String() string {
	var parts []string
	for _, s := range p.Settings() {
		if !s.Given {
			continue
		}
		value := fmt.Sprint(s.Value)
		if text, ok := s.Value.(string); ok {
			value = strconv.Quote(text)
		}
		parts = append(parts, s.Name+": "+value)
	}
	return "{" + strings.Join(parts, ", ") + "}"
}
