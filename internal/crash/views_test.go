package crash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// Views is which of them a counter has.
type views uint8

const (
	none    views = iota
	fixed         // those of firm, from the first event on
	flipped       // those of one of flips, which change under load
)

// platformsMax is how many platforms are told apart. There are more.
const platformsMax = 2

var (
	countries = []string{"", "DE", "FR", "PE"}
	platforms = []string{"", "iOS", "Android", "web", "tv"}
)

// firm is what the definitions of some counters always say, and flips what the others say
// by turns. They are members of a JSON object.
const firm = `"windows":[{"every":"1m","keep":"2h"},{"every":"1h","keep":"30d"},{"every":"1d","zone":"Europe/Berlin","keep":"5y"}],` +
	`"dimensions":["country",{"by":["platform"],"limit":2},{"by":["country","platform"],"windows":["1d"]}],"ledger":"all","unique":"who"`

var firmPatterns = []string{"hot", "blind", "signed", "stock", "gone", "m:*", "cold/00*"}

var flips = []string{
	`"windows":[{"every":"1h","keep":"30d"}],"dimensions":["country"]`,
	`"windows":[{"every":"1h","keep":"30d"},{"every":"1d","keep":"30d"}],"dimensions":["country","platform"],"ledger":"all"`,
	`"windows":[{"every":"1m","keep":"2h"}],"dimensions":[{"by":["platform","country"]}],"ledger":"adjustments"`,
}

// definitions returns the definitions of a world, as JSON. Some say flip, unless it is empty.
func definitions(flip string) string {
	var all []string
	of := func(pattern, text string) { all = append(all, fmt.Sprintf(`{"pattern":%q,%s}`, pattern, text)) }
	for i, pattern := range firmPatterns {
		of(pattern, firm+fmt.Sprintf(`,"top":[{"name":"lands","by":"country"},{"name":"first%d","by":"key"}]`, i))
	}
	if flip != "" {
		of("w:*", flip)
	}
	return "[" + strings.Join(all, ",") + "]"
}

// newViewedWorld returns a world in which most counters have views. If there is a store, two
// servers count in it at a time; then there are no policies, as what one has in memory only
// is not seen by the other.
func newViewedWorld(t *testing.T, binary string, rng *rand.Rand, store string) *world {
	w := newWorld(t, binary, rng, store == "")
	w.began, w.store = time.Now(), store
	text := "definitions: " + definitions(flips[0]) + "\n"
	if store == "" {
		text += policiesText
	}
	w.configure(text)
	for _, c := range w.counters {
		switch {
		case strings.HasPrefix(c.key, "w:"):
			c.views = flipped
		case !strings.HasPrefix(c.key, "cold/") || strings.HasPrefix(c.key, "cold/00"):
			c.views = fixed
		}
	}
	return w
}

// redefine changes definitions while others count.
func (w *world) redefine(ctx context.Context, stop <-chan struct{}, rng *rand.Rand) {
	w.repeatedly(stop, func() error {
		pause(time.Duration(rng.IntN(100))*time.Millisecond, w.process.Exited)
		var flip string // or none
		if i := rng.IntN(len(flips) + 1); i < len(flips) {
			flip = flips[i]
		}
		w.flips.Add(1)
		return w.client.define(ctx, definitions(flip))
	})
}

// An event is what views count an add by.
type event struct {
	at                int64 // Unix milliseconds; 0 is now
	country, platform string
}

// String returns the event as members of a JSON object, after others.
func (e event) String() string {
	var b strings.Builder
	if e.at != 0 {
		fmt.Fprintf(&b, `,"at":%d`, e.at)
	}
	var dims []string
	for _, d := range [][2]string{{"country", e.country}, {"platform", e.platform}} {
		if d[1] != "" {
			dims = append(dims, fmt.Sprintf("%q:%q", d[0], d[1]))
		}
	}
	if dims != nil {
		fmt.Fprintf(&b, `,"dims":{%s}`, strings.Join(dims, ","))
	}
	return b.String()
}

// by returns whom an add is of, as a member of a JSON object, after others.
func (e event) by() string {
	if e.at == 0 {
		return ""
	}
	return fmt.Sprintf(`,"who":"u%d"`, e.at/1000%2000)
}

// event returns what to count an add by.
func (k *worker) event(v views) (e event) {
	e.country, e.platform = countries[k.rng.IntN(len(countries))], platforms[k.rng.IntN(len(platforms))]
	if v == flipped { // it may have no dimensions when this arrives
		e.country, e.platform = "", ""
	}
	if k.rng.IntN(3) > 0 {
		e.at = k.world.began.Add(-3*time.Hour - time.Duration(k.rng.Int64N(int64(120*time.Hour)))).UnixMilli()
	}
	return e
}

// undo takes back an add that was answered.
func (k *worker) undo(ctx context.Context) error {
	var of *write
	for _, r := range k.mine {
		i := slices.IndexFunc(r.writes, func(w *write) bool {
			return w.counter.views == fixed && !w.counter.rising && w.verb == add && w.is(applied) && w.beginUndo()
		})
		if i >= 0 {
			of = r.writes[i]
			break
		}
	}
	if of == nil {
		return nil
	}
	w := &write{counter: of.counter, verb: undo, n: -of.n, minimal: true, of: of, event: of.event}
	w.request = &request{writes: []*write{w}}
	k.world.undos.Add(1)
	return deliver(ctx, k.client, w.request)
}

// beginUndo reports whether nobody has begun to take w back.
func (w *write) beginUndo() bool {
	w.counter.mu.Lock()
	defer w.counter.mu.Unlock()
	first := !w.undone
	w.undone = true
	return first
}

// traceable reports whether the store can tell if w counted: by its token, or by the
// ledger.
func (w *write) traceable() bool { return w.token != "" || w.verb == undo }

// recountViews compares the views of every counter with all that is known now.
func (w *world) recountViews(ctx context.Context, c *client) error {
	if w.began.IsZero() {
		return nil
	}
	err := each(w.counters, func(x *counter) error {
		if x.views != fixed {
			return nil
		}
		v, err := c.read(ctx, x.key)
		if err != nil {
			return err
		}
		if err := w.checkUsers(ctx, c, x); err != nil {
			return err
		}
		want := x.recounted(w.began)
		if err := w.checkTops(ctx, c, x, want); err != nil {
			return err
		}
		return w.checkViews(ctx, c, x, want, v)
	})
	return errors.Join(err, c.verify(ctx))
}

// checkUsers compares the users of all time with those of the windows: they were taken in in
// the same steps.
func (w *world) checkUsers(ctx context.Context, c *client, x *counter) error {
	var counts [3]int64
	for i, query := range []string{"", "?from=-10d", "?from=-10d&by=country"} {
		var u struct{ Count int64 }
		if err := c.get(ctx, call{method: http.MethodGet, path: "uniques/" + url.PathEscape(x.key) + query}, &u); err != nil {
			return err
		}
		counts[i] = u.Count
	}
	if counts[0] != counts[1] || counts[0] != counts[2] {
		return fmt.Errorf("%q had %d users, %d in its windows, and %d in those of its countries", x.key, counts[0], counts[1], counts[2])
	}
	return nil
}

// checkTops compares the list of a counter's countries, of all time and of its windows, and what the list of its pattern
// says of it, with what was added.
func (w *world) checkTops(ctx context.Context, c *client, x *counter, want *recounted) error {
	var reply struct {
		Items []struct {
			Item         string
			Lower, Upper int64
		}
		Exact bool
	}
	get := func(path string) (map[string]int64, error) {
		reply.Items = nil
		if err := c.get(ctx, call{method: http.MethodGet, path: path}, &reply); err != nil {
			return nil, err
		}
		got := map[string]int64{}
		for _, item := range reply.Items {
			if got[item.Item] = item.Upper; !reply.Exact || item.Lower != item.Upper {
				return nil, fmt.Errorf("%s: %+v is not exact", path, item)
			}
		}
		return got, nil
	}
	lands := "counters/" + url.PathEscape(x.key) + "/top/lands"
	ever, err := get(lands)
	if err != nil {
		return err
	}
	windows, err := get(lands + "?from=-10d")
	if err != nil {
		return err
	}
	i := slices.IndexFunc(firmPatterns, func(p string) bool {
		prefix, open := strings.CutSuffix(p, "*")
		return x.key == prefix || open && strings.HasPrefix(x.key, prefix)
	})
	first, err := get(fmt.Sprintf("tops/first%d", i))
	if err != nil {
		return err
	}
	if err := differ(windows, ever); err != nil {
		return fmt.Errorf("%s: the list of its windows: %w", x.key, err)
	}
	if want.untold {
		return nil
	}
	if err := differ(ever, want.lands); err != nil {
		return fmt.Errorf("%s: its list: %w", x.key, err)
	}
	if first[x.key] != want.added {
		return fmt.Errorf("%s: list first%d has %d of it, want %d", x.key, i, first[x.key], want.added)
	}
	return nil
}

// A recounted counter is what its views must say.
type recounted struct {
	untold                           bool // nobody can tell of some: only the sums must agree
	minutes, hours, days             map[int64]int64
	countries, platforms, both, book map[string]int64

	lands map[string]int64 // what was added for each country that was said
	added int64
}

var berlin = func() *time.Location {
	l, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		panic(err)
	}
	return l
}()

func hourOf(t time.Time) time.Time { return t.Truncate(time.Hour) }

func dayOf(t time.Time) time.Time {
	y, m, d := t.In(berlin).Date()
	return time.Date(y, m, d, 0, 0, 0, 0, berlin)
}

// bucket returns the window of a moment, and 0 for all windows that events without a time
// may be in.
func bucket(window func(time.Time) time.Time, t, began time.Time) int64 {
	if at := window(t); at.Before(window(began.Add(-2 * time.Hour))) {
		return at.UnixMilli()
	}
	return 0
}

// recounted counts again what is known to be applied.
func (c *counter) recounted(began time.Time) *recounted {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := func() map[string]int64 { return map[string]int64{} }
	r := &recounted{c.untold, map[int64]int64{}, map[int64]int64{}, map[int64]int64{}, n(), n(), n(), n(), n(), 0}
	for _, list := range [][]*write{c.past, c.recent} {
		for _, w := range list {
			if w.state != applied {
				continue
			}
			r.book[w.line()]++
			if w.verb != add && w.verb != undo {
				continue
			}
			if w.verb == add && w.n > 0 && !w.adjust {
				if r.added += w.n; w.country != "" {
					r.lands[w.country] += w.n
				}
			}
			at := began
			if w.at != 0 {
				at = time.UnixMilli(w.at)
			} else {
				r.minutes[0] += w.n
			}
			r.hours[bucket(hourOf, at, began)] += w.n
			r.days[bucket(dayOf, at, began)] += w.n
			r.countries[w.country] += w.n
			r.platforms[w.platform] += w.n
			r.both[w.country+","+w.platform] += w.n
		}
	}
	return r
}

// line returns what the ledger says of a write.
func (w *write) line() string {
	kind := map[verb]string{add: "add", set: "set", reset: "reset", remove: "delete", undo: "undo"}[w.verb]
	if w.adjust {
		kind = "adjust"
	}
	token := w.token
	if w.verb == undo {
		token = w.of.token
	}
	return lineOf(kind, token, w.effect(), w.event)
}

// lineOf returns a line as text. It has no time if that is about now.
func lineOf(kind, token string, delta int64, e event) string {
	if time.Since(time.UnixMilli(e.at)) < 2*time.Hour {
		e.at = 0
	}
	return fmt.Sprintf("%s %q %d%v", kind, token, delta, e)
}

// checkViews compares what the server says of the views of a counter, of which v was
// read, with what they must say.
func (w *world) checkViews(ctx context.Context, c *client, x *counter, want *recounted, v count) error {
	var wrong error
	f := func(what string, err error) {
		if err != nil {
			wrong = errors.Join(wrong, fmt.Errorf("%s: %s: %w", x.key, what, err))
		}
	}
	untold, sums := want.untold, []int64(nil)
	windows := func(step string, window func(time.Time) time.Time, from time.Duration, want map[int64]int64) {
		got, err := c.ranged(ctx, x.key, step, w.began.Add(-from), func(t time.Time) int64 { return bucket(window, t, w.began) })
		if err == nil && !untold {
			err = differ(got, want)
		}
		f("windows of "+step, err)
		if step != "1m" {
			sums = append(sums, sum(got))
		}
	}
	windows("1m", hourOf, 90*time.Minute, want.minutes)
	windows("1h", hourOf, 144*time.Hour, want.hours)
	windows("1d", dayOf, 144*time.Hour, want.days)
	dimension := func(name string, limit int, want map[string]int64) {
		got, other, err := c.by(ctx, x.key, name)
		sums = append(sums, sum(got)+other)
		if err == nil && !untold {
			err = differValues(got, other, want, limit)
		}
		f("by "+name, err)
	}
	dimension("country", len(countries), want.countries)
	dimension("platform", platformsMax, want.platforms)
	dimension("country,platform", len(countries)*len(platforms), want.both)
	book, noted, err := c.book(ctx, x.key)
	sums = append(sums, noted)
	if err == nil && !untold {
		err = differ(book, want.book)
	}
	f("ledger", err)
	if untold {
		for i, n := range sums {
			if n != v.value {
				f("sums", fmt.Errorf("%d of %v is not %d", i, sums, v.value))
			}
		}
	}
	return wrong
}

func sum[K comparable](m map[K]int64) (n int64) {
	for _, v := range m {
		n += v
	}
	return n
}

// differ returns an error that names some of the differences of two recounts.
func differ[K comparable](got, want map[K]int64) error {
	var errs []error
	for _, keys := range []map[K]int64{got, want} {
		for k := range keys {
			if got[k] != want[k] && len(errs) < 5 {
				errs = append(errs, fmt.Errorf("%v: %d, want %d", k, got[k], want[k]))
			}
		}
	}
	return errors.Join(errs...)
}

// differValues compares values of a dimension that tells some of them apart, always or
// never, beside the empty one.
func differValues(got map[string]int64, other int64, want map[string]int64, limit int) error {
	known, rest, named := map[string]int64{}, int64(0), 0
	for value, n := range want {
		if _, ok := got[value]; !ok && value != "" {
			rest += n
			continue
		}
		if known[value] = n; value != "" {
			named++
		}
	}
	if named > limit || rest != other {
		return fmt.Errorf("%v are told apart, of %d, and others are %d, want %d", got, limit, other, rest)
	}
	return differ(got, known)
}
