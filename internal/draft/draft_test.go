package draft_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/draft"
	"github.com/quipudb/quipu/store"
)

var reader = draft.Reader{Namespace: "default", Zone: func(name string) error {
	_, err := time.LoadLocation(name)
	return err
}}

func width(s string) definition.Width {
	w, err := definition.ParseWidth(s)
	if err != nil {
		panic(err)
	}
	return w
}

func ExampleReader_Parse() {
	drafts, err := reader.Parse([]byte(`
- pattern: "views:*"
  windows:
    - {every: 1m, keep: 24h}
    - {every: 1d, zone: Europe/Berlin, keep: 5y}
  dimensions: [country, platform, {by: [country, platform], windows: [1d], limit: 5000}]
  ledger: {record: adjustments, keep: 2y}
- {namespace: shop, pattern: "sold", ledger: all}
`))
	fmt.Println(err)
	for _, d := range drafts {
		fmt.Println(d.Line, d.Namespace, d.Definition)
	}
	_, err = reader.Parse([]byte("- pattern: a\n  windows: [{every: 1h, keep: 1d}]\n  dimensions:\n  - by: country\n    windows: [1m]\n    limt: 3"))
	fmt.Println(err)
	// Output:
	// <nil>
	// 2 default {pattern: "views:*", windows: [{every: 1m, keep: 1d}, {every: 1d, zone: "Europe/Berlin", keep: 5y}], dimensions: [country, platform, {by: [country, platform], windows: [1d], limit: 5000}], ledger: {record: adjustments, keep: 2y}}
	// 8 shop {pattern: "sold", ledger: all}
	// line 6: unknown setting "limt" of a dimension: want by, limit, windows
}

func TestParse(t *testing.T) {
	f := func(text string, want ...definition.Definition) {
		t.Helper()
		drafts, err := reader.Parse([]byte(text))
		if err != nil || len(drafts) != len(want) {
			t.Fatalf("%d definitions, %v", len(drafts), err)
		}
		for i, d := range drafts {
			if !reflect.DeepEqual(d.Definition, want[i]) {
				t.Errorf("%s, want %s", d.Definition.String(), want[i].String())
			}
			same(t, d.Definition)
		}
	}
	f("")
	f("# nothing")
	f("[]")
	f("- {pattern: a}", definition.Definition{Pattern: "a"})
	f(`[{"pattern":"a","windows":[{"every":"1h","zone":"","keep":"1d"}]}]`, definition.Definition{
		Pattern: "a", Windows: []definition.Window{{Every: width("1h"), Keep: definition.Keep(24 * time.Hour)}},
	})
	f("- {pattern: a, windows: [{every: 1w, zone: UTC, keep: 2w}], dimensions: [{by: a, windows: []}, [a, b]], ledger: off}", definition.Definition{
		Pattern: "a", Windows: []definition.Window{{Every: width("1w"), Keep: definition.Keep(14 * 24 * time.Hour)}},
		Dimensions: []definition.Dimension{{By: []string{"a"}, Windows: []definition.Width{}}, {By: []string{"a", "b"}}},
	})
	f("- {pattern: a, reservations: {}}", definition.Definition{Pattern: "a", Reservations: &definition.Reservations{}})
	f("- {pattern: a, reservations: {max: 10, total: 99, per_who: 2, who_total: 5, max_ttl: 1h}}", definition.Definition{
		Pattern: "a", Reservations: &definition.Reservations{Max: 10, Total: 99, PerWho: 2, Who: 5, MaxTTL: definition.Keep(time.Hour)},
	})
	f("- {pattern: a, windows: [{every: 1h, keep: 1d}], late: refuse}", definition.Definition{
		Pattern: "a", Windows: []definition.Window{{Every: width("1h"), Keep: definition.Keep(24 * time.Hour)}},
		Late: definition.Late{Then: definition.Refuse},
	})
	f("- {pattern: a, ledger: all, late: {after: 90m, then: clamp}}", definition.Definition{
		Pattern: "a", Ledger: definition.Ledger{Record: definition.All},
		Late: definition.Late{Then: definition.Clamp, After: definition.Keep(90 * time.Minute)},
	})
	f("- {pattern: a, limits: [{rate: 10, per: 1s, burst: 20}, {name: day, algorithm: window, rate: 1000, per: 1d}, {name: month, algorithm: calendar, rate: 5, per: 1mo, zone: Europe/Berlin}], away: open, clients: 5}", definition.Definition{
		Pattern: "a", Away: definition.Away{Then: definition.FailOpen}, Clients: 5,
		Limits: []definition.Limit{
			{Rate: 10, Per: width("1s"), Burst: 20},
			{Name: "day", Algorithm: definition.FixedWindow, Rate: 1000, Per: width("1d")},
			{Name: "month", Algorithm: definition.Calendar, Rate: 5, Per: width("1mo"), Zone: "Europe/Berlin"},
		},
	})
	f("- {pattern: a, limits: [{rate: 10, per: 1m, algorithm: sliding}], away: {then: share, servers: 3}}", definition.Definition{
		Pattern: "a", Away: definition.Away{Then: definition.Share, Servers: 3},
		Limits: []definition.Limit{{Algorithm: definition.SlidingWindow, Rate: 10, Per: width("1m")}},
	})
	f("- {pattern: a, late: count}", definition.Definition{Pattern: "a"})
	f("- {pattern: a, floor: 0}", definition.Definition{Pattern: "a", Floor: new(int64(0))})
	f("- {pattern: a, floor: '0'}", definition.Definition{Pattern: "a", Floor: new(int64(0))})
	f(`- {"pattern":"a","floor":-9223372036854775808,"ceiling":9223372036854775807}`,
		definition.Definition{Pattern: "a", Floor: new(int64(math.MinInt64)), Ceiling: new(int64(math.MaxInt64))})
	f("- {pattern: a, choices: [like, dislike]}", definition.Definition{Pattern: "a", Choices: []string{"like", "dislike"}})
	f("- {pattern: a, once: 1d}", definition.Definition{Pattern: "a", Once: definition.Once{Every: width("1d")}})
	f(`[{"pattern":"a","once":"1h"}]`, definition.Definition{Pattern: "a", Once: definition.Once{Every: width("1h")}})
	f("- {pattern: a, once: {every: 1w, zone: Europe/Berlin, keep: 2w}}", definition.Definition{
		Pattern: "a", Once: definition.Once{Every: width("1w"), Zone: "Europe/Berlin", Keep: definition.Keep(14 * 24 * time.Hour)},
	})
	f("- {pattern: a, once: {every: 1d, approximate: 0.1%, users: 5000}}", definition.Definition{Pattern: "a", Once: definition.Once{Every: width("1d"), Approximate: 1000, Users: 5000}})
	f("- {pattern: a, top: {name: x, by: key}}", definition.Definition{Pattern: "a", Tops: []definition.Top{{Name: "x", By: "key"}}})
	f(`[{"pattern":"a","top":[{"name":"x","by":"key"},{"name":"y","by":"term","k":5}]}]`, definition.Definition{Pattern: "a", Tops: []definition.Top{{Name: "x", By: "key"}, {Name: "y", By: "term", K: 5}}})
	f("- {pattern: a, unique: who}", definition.Definition{Pattern: "a", Unique: definition.Unique{Of: "who"}})
	f(`[{"pattern":"a","unique":{"of":"who","error":"0.8%"}}]`, definition.Definition{Pattern: "a", Unique: definition.Unique{Of: "who", Error: 8000}})
	f("- {pattern: a, once: {every: 1mo, zone: UTC}}", definition.Definition{Pattern: "a", Once: definition.Once{Every: width("1mo")}})
	f("- {pattern: a, ledger: {record: all}}", definition.Definition{Pattern: "a", Ledger: definition.Ledger{Record: definition.All}})
}

// same checks that a definition comes back from its text, and from JSON.
func same(t *testing.T, d definition.Definition) {
	t.Helper()
	again, err := reader.Parse([]byte("- " + d.String()))
	if err != nil || !reflect.DeepEqual(again[0].Definition, d) {
		t.Fatalf("%s comes back as %v, %v", d.String(), again, err)
	}
	raw, err := json.Marshal(d)
	var from definition.Definition
	if err != nil || json.Unmarshal(raw, &from) != nil || !reflect.DeepEqual(from, d) {
		t.Fatalf("%s comes back as %s", raw, from.String())
	}
	read, err := reader.Parse([]byte("[" + string(raw) + "]"))
	if err != nil || !reflect.DeepEqual(read[0].Definition, d) {
		t.Fatalf("%s is read as %v, %v", raw, read, err)
	}
}

func TestErrors(t *testing.T) {
	f := func(line int, want, text string) {
		t.Helper()
		_, err := reader.Parse([]byte(text))
		e, ok := errors.AsType[*draft.Error](err)
		if !ok || e.Line != line || !strings.Contains(e.Error(), want) || !errors.Is(err, store.ErrInvalid) && !errors.Is(err, store.ErrTooLarge) {
			t.Errorf("%v, want %q at line %d", err, want, line)
		}
	}
	f(1, "want a list of definitions", "pattern: a")
	f(2, "want a definition: a mapping of away, ceiling, choices, clients, dimensions, floor, late, ledger, limits, namespace, once, pattern, reservations, shards, top, unique, windows", "\n- a")
	f(1, "pattern is empty: want a key, or a prefix followed by *", "- {windows: []}")
	f(2, "want a list of choices", "- pattern: a\n  choices: like")
	f(1, `choice "1st": want a letter`, "- {pattern: a, choices: [1st]}")
	f(1, "choice like is given twice", "- {pattern: a, choices: [like, like]}")
	f(1, "33 choices: at most 32", "- {pattern: a, choices: [a"+strings.Repeat(", a", 32)+"]}")
	f(1, "approximate of 0.0001%: want 0.001% to 10%", "- {pattern: a, once: {every: 1d, approximate: 0.0001%}}")
	f(1, "approximate of 20%: want 0.001% to 10%", "- {pattern: a, once: {every: 1d, approximate: 20%}}")
	f(1, "users without approximate", "- {pattern: a, once: {every: 1d, users: 5}}")
	f(1, "5000000 users: want 1 to 4000000", "- {pattern: a, once: {every: 1d, approximate: 1%, users: 5000000}}")
	f(1, "want a share in percent", "- {pattern: a, once: {every: 1d, approximate: 0.1}}")
	f(1, "unknown setting \"key\" of a top list: want by, k, name", "- {pattern: a, top: {key: x}}")
	f(1, "without a name, or without by", "- {pattern: a, top: {name: x}}")
	f(1, "want a top list: a mapping of by, k, name", "- {pattern: a, top: [x]}")
	f(1, "want a top list such as {name: countries, by: country, k: 100}", "- {pattern: a, top: x}")
	f(1, "want a number of items from 1 to 1000", "- {pattern: a, top: {name: x, by: key, k: 1001}}")
	f(1, "want a number of items from 1 to 1000", "- {pattern: a, top: {name: x, by: key, k: '5'}}")
	f(1, "top list x is given twice", "- {pattern: a, top: [{name: x, by: key}, {name: x, by: y}]}")
	f(1, "want a name: a letter", "- {pattern: a, top: {name: 1x, by: key}}")
	f(1, "by \"a b\": want key", "- {pattern: a, top: {name: x, by: a b}}")
	f(1, "leave out top", "- {pattern: a, choices: [like], top: {name: x, by: key}}")
	f(1, "of \"ip\": want who", "- {pattern: a, unique: ip}")
	f(1, "unique without of", "- {pattern: a, unique: {error: 1%}}")
	for _, bad := range []string{"1", "0%", "x%", "-1%", "101%", "NaN%", "0.00001%"} {
		f(1, "want a share in percent", "- {pattern: a, unique: {of: who, error: "+bad+"}}")
	}
	f(1, "error of 0.1%: want 0.42% to 10%", "- {pattern: a, unique: {of: who, error: 0.1%}}")
	f(1, "error of 11%: want 0.42% to 10%", "- {pattern: a, unique: {of: who, error: 11%}}")
	f(1, "leave out unique", "- {pattern: a, choices: [like], unique: who}")
	f(1, "leave out once", "- {pattern: a, choices: [like], once: 1d}")
	f(1, "leave out dimensions", "- {pattern: a, choices: [like], dimensions: [country]}")
	f(1, "leave out zone", "- {pattern: a, once: {every: 1h, zone: Europe/Berlin}}")
	f(2, "want the name of a time zone", "- pattern: a\n  once: {every: 1d, zone: Nowhere}")
	f(2, "once without every", "- pattern: a\n  once: {zone: Europe/Berlin}")
	f(2, "remember users for a day", "- pattern: a\n  once: {every: 1d, keep: 0s}")
	f(2, "pattern is given twice", "- pattern: a\n  pattern: b")
	f(2, `unknown setting "least" of a definition`, "- pattern: a\n  least: 3")
	f(2, `floor: "none": want an integer between -9223372036854775808 and`, "- pattern: a\n  floor: none")
	f(2, `ceiling: "9223372036854775808": want an integer`, "- pattern: a\n  ceiling: 9223372036854775808")
	f(2, `ceiling: "3.5": want an integer`, "- pattern: a\n  ceiling: '3.5'")
	f(1, "a floor of 2 is above the ceiling of 1", "- {pattern: a, floor: 2, ceiling: 1}")
	f(1, "* may stand only at the end", "- pattern: \"a*b\"")
	f(1, "namespace", "- {pattern: a, namespace: \"\"}")
	f(1, "limits: want a list such as [{rate: 10, per: 1s}]", "- {pattern: a, limits: 10/s}")
	f(1, "a limit without rate", "- {pattern: a, limits: [{per: 1s}]}")
	f(1, "a limit without per", "- {pattern: a, limits: [{rate: 1}]}")
	f(1, `rate: "0": want a number from 1 to 1000000000000`, "- {pattern: a, limits: [{rate: 0, per: 1s}]}")
	f(1, "want bucket, window, sliding or calendar", "- {pattern: a, limits: [{rate: 1, per: 1s, algorithm: leaky}]}")
	f(1, "a calendar has 1d, 1w", "- {pattern: a, limits: [{rate: 1, per: 1h, algorithm: calendar}]}")
	f(1, "months and years differ in length", "- {pattern: a, limits: [{rate: 1, per: 1mo}]}")
	f(1, "two limits are called", "- {pattern: a, limits: [{rate: 1, per: 1s}, {rate: 2, per: 1s}]}")
	f(1, "away needs limits", "- {pattern: a, away: open}")
	f(1, "share needs the number of servers", "- {pattern: a, limits: [{rate: 1, per: 1s}], away: share}")
	f(2, "windows: want a list such as", "- pattern: a\n  windows: 1h")
	f(3, "want a window: a mapping of every, keep, zone", "- pattern: a\n  windows:\n  - 1h")
	f(3, `every: "7d": want a length from 1s on`, "- pattern: a\n  windows:\n  - {every: 7d, keep: 1y}")
	f(1, "a window without every", "- {pattern: a, windows: [{keep: 1d}]}")
	f(1, "a window without keep", "- {pattern: a, windows: [{every: 1d}]}")
	f(4, `zone: "Europe/Berln": want the name of a time zone, such as Europe/Berlin`, "- pattern: a\n  windows:\n  - every: 1d\n    zone: Europe/Berln\n    keep: 1y")
	f(1, "leave out zone, or use 1d", "- {pattern: a, windows: [{every: 1h, keep: 1d, zone: Europe/Berlin}]}")
	f(1, "keep of 1h is less than one window", "- {pattern: a, windows: [{every: 2h, keep: 1h}]}")
	f(1, "from 1s to 100y", "- {pattern: a, windows: [{every: 2h, keep: 36601d}]}")
	f(1, "want at most 100y", "- {pattern: a, windows: [{every: 2h, keep: 101y}]}")
	f(1, "want a duration such as 30s, 1h30m or 7d, 2w or 5y", "- {pattern: a, windows: [{every: 2h, keep: long}]}")
	f(1, "windows of 1h are given twice", "- {pattern: a, windows: [{every: 1h, keep: 1d}, {every: 60m, keep: 2d}]}")
	f(1, `name "a b": want a letter`, "- {pattern: a, dimensions: [a b]}")
	f(1, "0 names: want 1 to 4", "- {pattern: a, dimensions: [[]]}")
	f(1, "by: want a name, or a list of names", "- {pattern: a, dimensions: [{by: {}}]}")
	f(1, "a is named twice", "- {pattern: a, dimensions: [[a, a]]}")
	f(1, "5 names: want 1 to 4", "- {pattern: a, dimensions: [[a, b, c, d, e]]}")
	f(1, `dimension "b,a" is given twice`, "- {pattern: a, dimensions: [[a, b], [b, a]]}")
	f(1, `limit: "0": want a number of values from 1 to 100000`, "- {pattern: a, dimensions: [{by: a, limit: 0}]}")
	f(1, "windows of 1m: the definition has none of that width", "- {pattern: a, windows: [{every: 1h, keep: 1d}], dimensions: [{by: a, windows: [1m]}]}")
	f(1, `ledger: "some": want off, adjustments or all`, "- {pattern: a, ledger: some}")
	f(1, "leave it out to keep the ledger for ever", "- {pattern: a, ledger: {record: all, keep: 0s}}")
	f(1, "no record", "- {pattern: a, ledger: {record: off, keep: 1d}}")
	f(1, `late: "drop": want count, refuse or clamp`, "- {pattern: a, windows: [{every: 1h, keep: 1d}], late: drop}")
	f(1, `max: "0": want a number from 1 on`, "- {pattern: a, reservations: {max: 0}}")
	f(1, "max of 1000001: at most 1000000", "- {pattern: a, reservations: {max: 1000001}}")
	f(1, "max_ttl of 367d: want whole seconds", "- {pattern: a, reservations: {max_ttl: 367d}}")
	f(1, "want max, max_ttl, per_who, total, who_total", "- {pattern: a, reservations: {least: 1}}")
	f(1, "a counter with a ceiling can't be reserved", "- {pattern: a, ceiling: 5, reservations: {}}")
	f(1, "a counter of reactions can't be reserved", "- {pattern: a, choices: [like], reservations: {}}")
	f(1, "want after, then", "- {pattern: a, windows: [{every: 1h, keep: 1d}], late: {then: clamp, keep: 1d}}")
	f(1, "leave it out to take what a window keeps", "- {pattern: a, windows: [{every: 1h, keep: 1d}], late: {after: 0s, then: clamp}}")
	f(1, "count takes events of any age", "- {pattern: a, windows: [{every: 1h, keep: 1d}], late: {after: 1d}}")
	f(1, "without windows no event is too old: want {after: 30d, then: clamp}", "- {pattern: a, ledger: all, late: clamp}")
	f(1, "events have no time", "- {pattern: a, late: {after: 1d, then: refuse}}")
	f(1, "late: after 101y: want whole seconds, from 1s to 100y", "- {pattern: a, ledger: all, late: {after: 36966d, then: refuse}}")
	f(1, "at most 100000000", "- {pattern: a, windows: [{every: 1s, keep: 100y}]}")
	f(1, "an event may change 67 cells, two for each of 32 views: at most 64", "- {pattern: a, dimensions: [a1,a2,a3,a4,a5,a6,a7,a8,a9,b1,b2,b3,b4,b5,b6,b7,b8,b9,c1,c2,c3,c4,c5,c6,c7,c8,c9,d1,d2,d3,d4,d5]}")

	for _, text := range []string{"- {", "a: *", "--- []\n--- []"} {
		if _, err := reader.Parse([]byte(text)); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// The example of the documentation fits, with the dimensions of the next.
func TestUsual(t *testing.T) {
	_, err := reader.Parse([]byte(`
- pattern: "views:*"
  windows: [{every: 1m, keep: 24h}, {every: 1h, keep: 30d}, {every: 1d, keep: 5y}]
  dimensions: [country, platform, [country, platform]]
  ledger: all`))
	if err != nil {
		t.Error(err)
	}
}

// FuzzParse checks that what is taken comes back from its text.
func FuzzParse(f *testing.F) {
	f.Add("- {pattern: a, windows: [{every: 1w, zone: Europe/Berlin, keep: 2w}], dimensions: [{by: a, windows: []}, [a, b]], ledger: all}")
	f.Add("- {pattern: 'a*', namespace: n, windows: [{every: 1.5m, keep: 90m}], ledger: {record: adjustments, keep: 7d}}")
	f.Add("- {pattern: a, ledger: all, late: {after: 1h, then: clamp}}")
	f.Add(`[{"pattern":"\u00e9*","dimensions":[{"by":["true","null"],"limit":7}]}]`)
	f.Fuzz(func(t *testing.T, text string) {
		drafts, err := reader.Parse([]byte(text))
		if err != nil {
			return
		}
		for _, d := range drafts {
			same(t, d.Definition)
		}
	})
}
