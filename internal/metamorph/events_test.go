package metamorph

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/store"
)

// Histories of events: writes have times, dimensions and reasons, some are taken back, and
// definitions change in the middle. In every world they come to what a plain map has.

// The events that name a time are of these hours, long before any world begins.
var past = time.Date(1999, 12, 1, 0, 0, 0, 0, time.UTC)

const (
	pastHours = 4
	landsMax  = 3 // that are told apart
)

// definitions are those that a history has, one after the other. Those that have
// windows have minutes and hours.
var definitions = func() [][]definition.Definition {
	windows := func(widths ...string) []definition.Window {
		// Events of the past are too late for the minutes.
		all := []definition.Window{{Every: width("1m"), Keep: definition.Keep(2 * time.Hour)}}
		for _, w := range widths {
			all = append(all, definition.Window{Every: width(w), Keep: definition.Keep(50 * 365 * 24 * time.Hour)})
		}
		return all
	}
	country := definition.Dimension{By: []string{"country"}, Windows: []definition.Width{width("1h")}, Limit: landsMax}
	platform := definition.Dimension{By: []string{"platform"}, Windows: []definition.Width{}}
	both := definition.Dimension{By: []string{"country", "platform"}, Windows: []definition.Width{width("1d")}, Limit: 50}
	one := func(d definition.Definition) []definition.Definition {
		d.Pattern = "*"
		return []definition.Definition{d}
	}
	return [][]definition.Definition{
		{},
		one(definition.Definition{
			Windows: windows("1h"), Dimensions: []definition.Dimension{country}, Ledger: definition.Ledger{Record: definition.All},
		}),
		one(definition.Definition{
			Windows:    windows("1h", "1d"),
			Dimensions: []definition.Dimension{country, platform, both}, Ledger: definition.Ledger{Record: definition.All},
		}),
		one(definition.Definition{
			Windows: windows("1h"), Dimensions: []definition.Dimension{country}, Ledger: definition.Ledger{Record: definition.Adjustments},
		}),
		one(definition.Definition{Windows: windows("1d", "1h")}),
	}
}()

func width(s string) definition.Width {
	w, err := definition.ParseWidth(s)
	if err != nil {
		panic(err)
	}
	return w
}

// why is the reason of a correction.
func (s step) why() quipu.Correction { return quipu.Correction{Reason: "because", Actor: s.who} }

var (
	lands     = []string{"", "de", "fr", "pe", "us", "jp"}
	platforms = []string{"", "web", "app"}
)

// eventSteps is how long a history of events is.
const eventSteps = 100

// drawKey prefers one key, so that there is time to count in its shards.
func drawKey(rng *rand.Rand) string { return keys[rng.IntN(2)*rng.IntN(len(keys))] }

// drawEvents makes a history of events. A token names one payload, mostly.
func drawEvents(rng *rand.Rand) []step {
	history := make([]step, eventSteps)
	for i := range history {
		s := step{verb: add, key: drawKey(rng), n: rng.Int64N(40) - 10, want: rng.IntN(16) == 0}
		switch n := rng.IntN(100); {
		case n < 3:
			s.verb = set
		case n < 5:
			s.verb = reset
		case n < 7:
			s.verb = remove
		case n < 15:
			s.verb = batch
			for range 1 + rng.IntN(6) {
				e := step{verb: add, key: keys[rng.IntN(len(keys))], n: rng.Int64N(20) - 5}
				e.happens(rng)
				s.events = append(s.events, quipu.Event{
					Key: e.key, Delta: e.n, Token: e.token, At: e.at, Dims: e.dims, Who: e.who, WantValue: rng.IntN(8) == 0,
				})
			}
		case n < 20:
			s.verb = adjust
			s.happens(rng)
		case n < 26:
			s.verb = undo
			s.who = whos[rng.IntN(len(whos))]
			before := slices.DeleteFunc(apart(history[:i]), func(s step) bool { return s.token == "" })
			if len(before) == 0 {
				s.token = "never"
			} else {
				of := before[max(0, len(before)-1-rng.IntN(6))] // One of the last, which may be taken back already.
				s.key, s.token = of.key, of.token
			}
		case n < 36:
			s.verb, s.n = define, []int64{0, 1, 1, 2, 2, 2, 3, 4}[rng.IntN(8)]
		case n < 40:
			s.verb = readExact
		default:
			s.happens(rng)
		}
		history[i] = s
	}
	history[eventSteps/8] = step{verb: define, key: keys[0], n: 1} // so that most have views
	return history
}

// happens draws when and by which values, and who did it.
func (s *step) happens(rng *rand.Rand) {
	n := rng.IntN(200)
	if rng.IntN(4) == 0 { // It has a token.
		n = rng.IntN(8)
		s.token, s.n = fmt.Sprint(map[verb]string{add: "a", adjust: "c"}[s.verb], n), int64(2*n-3)
		if rng.IntN(8) == 0 {
			s.n++
		}
	}
	s.who = whos[n%len(whos)]
	if n%5 > 0 {
		s.at = past.Add(time.Duration(n%(3*pastHours)) * 20 * time.Minute)
	}
	if n%4 > 0 {
		s.dims = append(s.dims, quipu.Dimension{Name: "country", Value: lands[n%len(lands)]})
	}
	if n%7 == 3 {
		s.dims = append(s.dims, quipu.Dimension{Name: "platform", Value: platforms[n%len(platforms)]})
	}
}

// A tale is what a counter has come to, and what is to be told of it.
type tale struct {
	total  int64
	exists bool
	tokens map[string]string   // what each was used for
	lines  map[string]recorded // by token
	undone map[string]bool     // tokens

	hours  map[string]int64
	values map[string]map[string]map[string]int64 // by dimension, value and hour
	ledger []string                               // with the lines of ledgers that have ended
}

// A recorded is a line that can be taken back, also when its ledger has ended.
type recorded struct {
	n    int64
	at   time.Time
	dims []quipu.Dimension
}

// A chronicle is the oracle: a map of tales.
type chronicle struct {
	number int64 // of the definitions
	tales  map[string]*tale
}

func chronicleOf(history []step) *chronicle {
	c := &chronicle{tales: map[string]*tale{}}
	for _, key := range keys {
		c.tales[key] = &tale{
			tokens: map[string]string{}, lines: map[string]recorded{}, undone: map[string]bool{},
			hours: map[string]int64{}, values: map[string]map[string]map[string]int64{},
		}
	}
	for _, s := range apart(history) {
		c.take(s)
	}
	return c
}

// apart makes a step of each event of a batch.
func apart(history []step) (all []step) {
	for _, s := range history {
		if s.verb != batch {
			all = append(all, s)
		}
		for _, e := range s.events {
			all = append(all, step{verb: add, key: e.Key, n: e.Delta, token: e.Token, at: e.At, dims: e.Dims, who: e.Who})
		}
	}
	return all
}

// defined returns the definition of all keys, nil if there is none.
func (c *chronicle) defined() *definition.Definition {
	if c.number == 0 {
		return nil
	}
	return &definitions[c.number][0]
}

func dimensionsOf(d *definition.Definition) (names []string) {
	if d != nil {
		for _, dim := range d.Dimensions {
			names = append(names, dim.Name())
		}
	}
	return names
}

func recordOf(d *definition.Definition) definition.Record {
	if d == nil {
		return definition.Off
	}
	return d.Ledger.Record
}

// take has a step happen.
func (c *chronicle) take(s step) {
	t := c.tales[s.key]
	switch s.verb {
	case add, adjust:
		c.event(t, s)
	case set, reset, remove:
		to := s.n
		if s.verb != set {
			to = 0
		}
		c.line(t, s, to-t.total, definition.Adjustments)
		t.total, t.exists = to, s.verb != remove
	case undo:
		l, ok := t.lines[s.token]
		if !ok {
			return
		}
		if t.undone[s.token] { // As of an add that is repeated, its values are admitted all the same.
			c.admit(t, l.dims)
			return
		}
		t.undone[s.token] = true
		c.count(t, step{verb: undo, n: -l.n, at: l.at, dims: l.dims, who: s.who})
	case define:
		c.define(s.n)
	default:
	}
}

// define begins and ends views.
func (c *chronicle) define(number int64) {
	was := c.defined()
	c.number = number
	is := c.defined()
	for _, t := range c.tales {
		if was == nil || is == nil {
			clear(t.hours)
		}
		for name := range t.values {
			if !slices.Contains(dimensionsOf(is), name) {
				delete(t.values, name)
			}
		}
		for _, name := range dimensionsOf(is) {
			if t.values[name] == nil {
				t.values[name] = map[string]map[string]int64{}
			}
		}
	}
}

// event has an add or an adjustment happen, unless it is a repeat or is refused.
func (c *chronicle) event(t *tale, s step) {
	for _, d := range s.dims {
		if !slices.Contains(dimensionsOf(c.defined()), d.Name) {
			return // It is a repeat, or refused.
		}
	}
	c.admit(t, s.dims)
	if s.token != "" {
		if _, known := t.tokens[s.token]; known {
			return // It is a repeat, or another payload.
		}
		t.tokens[s.token] = s.payload()
	}
	c.count(t, s)
}

// payload is what a token stands for.
func (s step) payload() string { return fmt.Sprint(s.verb, s.n, s.at, s.dims, s.who) }

// valueOf returns the value of a dimension.
func valueOf(name string, dims []quipu.Dimension) string {
	var values []string
	for by := range strings.SplitSeq(name, ",") {
		i := slices.IndexFunc(dims, func(d quipu.Dimension) bool { return d.Name == by })
		if i < 0 {
			values = append(values, "")
		} else {
			values = append(values, dims[i].Value)
		}
	}
	return strings.Join(values, "+")
}

// admit lets the values of an event into the dimensions that have room, before the store
// knows whether the event counts. A counter exists from then on.
func (c *chronicle) admit(t *tale, dims []quipu.Dimension) {
	for name, values := range t.values {
		admitted := 0
		for value := range values {
			if value != nothing && value != other {
				admitted++
			}
		}
		value := valueOf(name, dims)
		if (name != "country" || admitted < landsMax) && strings.Trim(value, "+") != "" && values[value] == nil {
			values[value], t.exists = map[string]int64{}, true
		}
	}
}

// Names of what is no value.
const (
	nothing = "(none)"
	other   = "(other)"
)

// count counts an event, and writes it down.
func (c *chronicle) count(t *tale, s step) {
	t.total, t.exists = t.total+s.n, true
	record := definition.All
	if s.verb != add {
		record = definition.Adjustments
	}
	c.line(t, s, s.n, record)
	hour := hourOf(s.at)
	if c.defined() != nil {
		t.hours[hour] += s.n
	}
	c.admit(t, s.dims)
	for name := range t.values {
		t.add(name, valueOf(name, s.dims), hour, s.n)
	}
}

func (t *tale) add(name, value, hour string, n int64) {
	values := t.values[name]
	switch {
	case strings.Trim(value, "+") == "":
		value = nothing
	case values[value] == nil:
		value = other
	}
	if values[value] == nil {
		values[value] = map[string]int64{}
	}
	values[value][hour] += n
}

func hourOf(at time.Time) string {
	if at.IsZero() {
		return "now"
	}
	return at.Truncate(time.Hour).UTC().Format("15:00")
}

// line writes a change down if the ledger has such ones, and corrections always.
func (c *chronicle) line(t *tale, s step, n int64, least definition.Record) {
	l := lineOf(map[verb]string{add: "add", adjust: "adjust", undo: "undo", set: "set", reset: "reset", remove: "delete"}[s.verb], n, s)
	if recordOf(c.defined()) < least && s.verb != adjust && s.verb != undo {
		return
	}
	t.ledger = append(t.ledger, l)
	if s.token != "" && (s.verb == add || s.verb == adjust) {
		t.lines[s.token] = recorded{n: n, at: s.at, dims: s.dims}
	}
}

func lineOf(kind string, n int64, s step) string {
	at := "now"
	if !s.at.IsZero() {
		at = s.at.UTC().Format("15:04")
	}
	reason := ""
	if kind == "adjust" || kind == "undo" {
		reason = "because"
	}
	return fmt.Sprintf("%s %+d at %s token %q by %q for %q dims %v", kind, n, at, s.token, s.who, reason, s.dims)
}

// told is all that is to be told of a counter.
func (c *chronicle) told(key string) string {
	t := c.tales[key]
	out := []string{fmt.Sprintf("%s is %d, %v", key, t.total, t.exists)}
	if c.defined() != nil {
		out = append(out, fmt.Sprint("hours ", hoursOf(t.hours), " now ", t.hours["now"]))
	}
	for _, name := range []string{"country", "platform", "country,platform"} {
		if t.values[name] == nil {
			continue
		}
		all, hours := map[string]int64{}, map[string]int64{}
		for value, by := range t.values[name] {
			for hour, n := range by {
				all[value] += n
				if hour != "now" {
					hours[value] += n
				}
			}
		}
		out = append(out, fmt.Sprint(name, " ", some(all), " outside ", t.total-sum(all)))
		if name == "country" {
			out = append(out, fmt.Sprint(name, " by hour ", some(hours)))
		}
	}
	lines := slices.Sorted(slices.Values(t.ledger))
	return strings.Join(append(out, lines...), "\n")
}

func hoursOf(hours map[string]int64) (points []int64) {
	for i := range pastHours {
		points = append(points, hours[hourOf(past.Add(time.Duration(i)*time.Hour))])
	}
	return points
}

// some leaves zeros out: a value that was taken back may or may not be told.
func some(values map[string]int64) map[string]int64 {
	values = maps.Clone(values)
	maps.DeleteFunc(values, func(_ string, n int64) bool { return n == 0 })
	return values
}

func sum(values map[string]int64) (sum int64) {
	for _, n := range values {
		sum += n
	}
	return sum
}

// tells is what a DB tells of a counter.
func (c *chronicle) tells(ctx context.Context, db *quipu.DB, key string) (string, error) {
	r, err := db.Read(ctx, key, quipu.Exact())
	if err != nil {
		return "", err
	}
	out := []string{fmt.Sprintf("%s is %d, %v", key, r.Value, r.Exists)}
	if c.defined() != nil {
		then, err := db.Range(ctx, key, quipu.RangeOptions{From: past, To: past.Add(pastHours * time.Hour), Step: width("1h")})
		if err != nil {
			return "", err
		}
		now := time.Now()
		since, err := db.Range(ctx, key, quipu.RangeOptions{From: now.Add(-24 * time.Hour), To: now.Add(24 * time.Hour), Step: width("1h")})
		if err != nil {
			return "", err
		}
		var points []int64
		for _, p := range then.Points {
			points = append(points, p.Value)
		}
		out = append(out, fmt.Sprint("hours ", points, " now ", since.Sum))
	}
	for _, name := range []string{"country", "platform", "country,platform"} {
		if c.tales[key].values[name] == nil {
			continue
		}
		all, err := db.By(ctx, key, name, quipu.ByOptions{})
		if err != nil {
			return "", err
		}
		out = append(out, fmt.Sprint(name, " ", valuesOf(&all), " outside ", all.Outside))
		if name == "country" {
			hours, err := db.By(ctx, key, name, quipu.ByOptions{From: past, To: past.Add(pastHours * time.Hour)})
			if err != nil {
				return "", err
			}
			out = append(out, fmt.Sprint(name, " by hour ", valuesOf(&hours)))
		}
	}
	lines, err := ledgerOf(ctx, db, key)
	return strings.Join(append(out, lines...), "\n"), err
}

func valuesOf(b *quipu.Breakdown) map[string]int64 {
	values := map[string]int64{other: b.Other}
	for _, v := range b.Values {
		name := v.Value
		if len(v.Values) > 0 {
			name = strings.Join(v.Values, "+")
		}
		if strings.Trim(name, "+") == "" {
			name = nothing
		}
		values[name] += v.Count
	}
	return some(values)
}

func ledgerOf(ctx context.Context, db *quipu.DB, key string) (lines []string, err error) {
	for o := (quipu.LedgerOptions{Limit: 7}); ; {
		p, err := db.Ledger(ctx, key, o)
		if err != nil {
			return nil, err
		}
		for _, l := range p.Lines {
			s := step{at: l.At, token: l.Token, who: l.Actor, dims: l.Dims}
			if l.At.After(past.AddDate(0, 0, 1)) {
				s.at = time.Time{}
			}
			if !l.DeltaKnown {
				l.Kind += " of unknown"
			}
			lines = append(lines, lineOf(l.Kind, l.Delta, s))
		}
		if o.Cursor = p.Next; o.Cursor == "" {
			slices.Sort(lines)
			return lines, nil
		}
	}
}

// judge compares what a DB tells with the chronicle, and verifies.
func (c *chronicle) judge(ctx context.Context, db *quipu.DB) error {
	if c == nil {
		return nil
	}
	for _, key := range keys {
		got, err := c.tells(ctx, db, key)
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		if want := c.told(key); got != want {
			return fmt.Errorf("definitions %d: it tells\n%s\nthe chronicle has\n%s", c.number, got, want)
		}
	}
	a, err := db.Verify(ctx)
	if err == nil && len(a.Drift) > 0 {
		err = fmt.Errorf("verify finds %+v", a.Drift)
	}
	return err
}

// again repeats all steps with a token that were counted, and those that have taken one
// back. None may change anything.
func (c *chronicle) again(ctx context.Context, db *quipu.DB, history []step) error {
	repeats := slices.Clone(history)
	for _, s := range apart(history) {
		t := c.tales[s.key]
		first, known := t.tokens[s.token]
		same := first == s.payload()
		switch {
		case s.verb == undo && t.undone[s.token]:
			same = true
		case s.verb != add && s.verb != adjust || !known:
			continue
		}
		said, err := s.decide(ctx, db)
		if same != (err == nil) || same && !strings.HasSuffix(said, "replayed true") {
			return fmt.Errorf("%v again: %s, %w; the same was counted: %v", s, said, err, same)
		}
		repeats = append(repeats, s)
	}
	return chronicleOf(repeats).judge(ctx, db)
}

// sharded returns how many parts the shards of counters have.
func (w *world) sharded() (n int) {
	w.t.Helper()
	for _, kind := range []store.PartKind{store.PartWindow, store.PartDim, store.PartEntries} {
		rows := store.Rows{Namespace: w.namespace, From: string([]byte{byte(kind)}), To: string([]byte{byte(kind) + 1})}
		found, err := w.splitter.ScanParts(w.t.Context(), rows, store.ScanMax)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, e := range found {
			if _, _, ok := store.ShardOf(e.Cell); ok {
				n++
			}
		}
	}
	return n
}

// events runs histories of events over stores, under some policies.
func events(t *testing.T, some, rests int, back func(t *testing.T, rng *rand.Rand) *backing) {
	rng := chance(t)
	sharded := 0
	for range max(1, *runs) {
		b := back(t, rng)
		history := drawEvents(rng)
		p := plainly(t, history, chronicleOf(history))
		for range some {
			policy := drawPolicy(rng)
			if rng.IntN(2) == 0 { // so that counters stay split
				policy = quipu.Policy{Pattern: "*", Shards: 2 + rng.IntN(7), Spread: quipu.SpreadWho}
			}
			w := newWorld(t, b, rng, policy)
			w.rests = rests
			w.run(history, p)
			sharded += w.sharded()
			w.end()
		}
	}
	t.Log(sharded, "parts of counters are in shards")
}

// TestEventsInMemory runs histories of events in memory, where time costs nothing.
func TestEventsInMemory(t *testing.T) {
	for _, partitions := range []int{1, 8} {
		t.Run(fmt.Sprint(partitions), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				events(t, 8, 10, func(*testing.T, *rand.Rand) *backing { return inMemory(partitions) })
			})
		})
	}
}

func TestEventsEmbedded(t *testing.T) { events(t, 3, 3, embedded) }

func TestEventsPostgres(t *testing.T) {
	b := overPostgres(t)
	events(t, 1, 3, func(*testing.T, *rand.Rand) *backing { return b })
}

func TestEventsRedis(t *testing.T) {
	b := overRedis(t)
	events(t, 1, 3, func(*testing.T, *rand.Rand) *backing { return b })
}

func TestEventsCluster(t *testing.T) {
	b := overCluster(t)
	events(t, 1, 3, func(*testing.T, *rand.Rand) *backing { return b })
}
