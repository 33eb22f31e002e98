package definition_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/store"
)

const day = 24 * time.Hour

func TestKeep(t *testing.T) {
	f := func(s string, want time.Duration, text string) {
		t.Helper()
		k, err := definition.ParseKeep(s)
		if err != nil || k != definition.Keep(want) || k.String() != text {
			t.Errorf("%q is %s, %v; want %s", s, k, err, text)
		}
		if again, err := definition.ParseKeep(text); err != nil || again != k {
			t.Errorf("%q is %s, %v", text, again, err)
		}
	}
	f("90m", 90*time.Minute, "1h30m")
	f("24h", day, "1d")
	f("30d", 30*day, "30d")
	f("2w", 14*day, "14d")
	f("5y", 5*366*day, "5y")
	f("100y", 36600*day, "100y")
	f("0s", 0, "0s")
	for _, bad := range []string{"", "y", "5Y", "-1y", "1.5y", "101y", "99999y", "1y6mo", "1mo", "d"} {
		if k, err := definition.ParseKeep(bad); err == nil {
			t.Errorf("%q is %s", bad, k)
		}
	}
}

// Programs make definitions without reading them from a file.
func TestCheck(t *testing.T) {
	hour, err := definition.ParseWidth("1h")
	if err != nil {
		t.Fatal(err)
	}
	keep := definition.Keep(30 * day)
	f := func(want string, d definition.Definition) {
		t.Helper()
		d.Pattern = "a*"
		if err := d.Check(); want == "" && err != nil || want != "" && (!errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", d.String(), err, want)
		}
	}
	f("", definition.Definition{})
	f("", definition.Definition{Windows: []definition.Window{{Every: hour, Keep: keep}}})
	f("want every", definition.Definition{Windows: []definition.Window{{Keep: keep}}})
	f("less than one window", definition.Definition{Windows: []definition.Window{{Every: hour}}})
	f("less than one window", definition.Definition{Windows: []definition.Window{{Every: hour, Keep: math.MinInt64}}})
	f("whole seconds", definition.Definition{Windows: []definition.Window{{Every: hour, Keep: keep + 1}}})
	f("0 names", definition.Definition{Dimensions: []definition.Dimension{{}}})
	f("limit of -1", definition.Definition{Dimensions: []definition.Dimension{{By: []string{"a"}, Limit: -1}}})
	f("k of 1001", definition.Definition{Tops: []definition.Top{{Name: "a", By: "key", K: 1001}}})
	f("k of -1", definition.Definition{Tops: []definition.Top{{Name: "a", By: "key", K: -1}}})
	f("9 top lists", definition.Definition{Tops: make([]definition.Top, 9)})
	f("want a name", definition.Definition{Tops: []definition.Top{{By: "key"}}})
	f("unknown record 3", definition.Definition{Ledger: definition.Ledger{Record: 3}})
}

// TestCells counts what an event changes: total, 3 windows, and 2 dimensions by 3 windows
// and for all time are 12 cells.
func TestCells(t *testing.T) {
	var d definition.Definition
	for _, every := range []string{"1m", "1h", "1d"} {
		w, err := definition.ParseWidth(every)
		if err != nil {
			t.Fatal(err)
		}
		d.Windows = append(d.Windows, definition.Window{Every: w, Keep: definition.Keep(30 * day)})
	}
	d.Dimensions = []definition.Dimension{{By: []string{"country"}}, {By: []string{"platform"}}}
	if n := 1 + d.Cells(); n != 12 {
		t.Errorf("%d cells", n)
	}
	d.Dimensions[1].Windows = []definition.Width{}
	d.Ledger.Record = definition.All
	if n := 1 + d.Cells(); n != 10 {
		t.Errorf("%d cells", n)
	}
}

// FuzzParseKeep checks that whatever is taken for a time is written so that it is taken for
// the same again.
func FuzzParseKeep(f *testing.F) {
	for _, seed := range []string{"0s", "90m", "24h", "30d", "2w", "5y", "100y", "101y", "-1y", "-2w", "1.5h", "+5y", "y", "", "32768w", "366d", "1ns", "106751d"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		k, err := definition.ParseKeep(s)
		if err != nil {
			return
		}
		if again, err := definition.ParseKeep(k.String()); err != nil || again != k {
			t.Errorf("%q is %v, and that %v: %v", s, k, again, err)
		}
	})
}
