package resp_test

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/dbtest"
	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/internal/server/resp"
	"github.com/quipudb/quipu/internal/session"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

const (
	noVersion   = "no receipt has a version but that of an add with a token"
	noKind      = "errors that a client does nothing about are all ERR"
	noCounts    = "Q.REACT replies whether it has changed something: Q.REACTION has the counts"
	noDuplicate = "a reply has the value, and does not say that nothing was added"
	noBounds    = "INCREX has bounds as Redis has them: they also keep a counter out that is on its way back, and refusals are no errors"
)

// TestLaws runs the laws of the product through RESP, as far as its commands go.
func TestLaws(t *testing.T) {
	d := dbtest.Door{Unreplayed: true, AddsOnce: true, Unbounded: true, Terse: true, Unreserved: true, Untold: true, Lacks: map[string]string{
		"a reaction tells the counts that it has made":                           noCounts,
		"a user is counted once in a window, approximately":                      noDuplicate,
		"a user is counted once in a window":                                     noDuplicate,
		"a repeat under a token is told what the first was, approximately":       noDuplicate,
		"a repeat under a token is told what the first was":                      noDuplicate,
		"what can't be counted once is refused, approximately":                   noDuplicate,
		"what can't be counted once is refused":                                  noDuplicate,
		"users that come at once are counted once, approximately":                noDuplicate,
		"users that come at once are counted once":                               noDuplicate,
		"a call may bring its own limits":                                        "CL.THROTTLE has the one that redis-cell has",
		"set makes the value and says what changed":                              noVersion,
		"a version rises with every change and is what the next read has":        noVersion,
		"every verb is a compare-and-set on request":                             noVersion,
		"a version never comes back with a new counter of the same key":          noVersion,
		"a call given up before it began changes nothing":                        noVersion,
		"a session sees sets and deletes too":                                    noVersion,
		"a session is not lost with what was deleted or written over":            noVersion,
		"a session of what the store does not have is lost, and says what to do": noVersion,
		"a time before 1970 is refused":                                          noKind,
		"an event with a bad time is refused alone":                              "a lifetime is set by commands of its own",
		"the same token with another payload is refused and changes nothing":     noBounds,
		"the order of options and the way of sending are no part of the payload": noBounds,
		"a call's floor and ceiling hold":                                        noBounds,
		"a counter that is beyond a limit can come back, and go no farther":      noBounds,
		"a saturated add says what it added":                                     noBounds,
		"a token remembers a refusal by a bound":                                 noBounds,
		"a refusal that is not remembered says so":                               noBounds,
		"a refusal outlives the definition that it is by":                        noKind,
		"a bound that contradicts itself is refused":                             noBounds,
		"a batch keeps the bounds of each event":                                 noBounds,
		"a definition's floor and ceiling hold for every write":                  noKind,
		"a definition's floor holds from when it is in force, and until it ends": noKind,
		"a definition's floor is never crossed by many at once":                  noKind,
		"a counter with a lifetime ends, and says when":                          "a read does not say when: TTL does",
		"a repeat does not lengthen a lifetime":                                  "an add with a token has no lifetime",
		"a lifetime is a millisecond or more":                                    "EXPIRE deletes what is to live no longer, as in Redis",
		"a refused add leaves the lifetime":                                      noBounds,
		"every need is met, alone and together":                                  "Q.GET takes one need, and no error",
		"a need that is none is refused":                                         "Q.GET takes no error",
		"a receipt says how durable the write is":                                "there are no receipts",
		"a page has a hundred counters unless asked":                             "SCAN has ten, as in Redis",
		"a page over the limit is too large":                                     "COUNT is a hint, as in Redis",
		"a bad page is refused":                                                  "a cursor of SCAN is a number, and of no prefix",
		"a sum is of all that start with a prefix":                               "no command sums",
		"a sum can be taken up where a list has left":                            "no command sums",
		"an empty batch is no error and one over the limit is":                   "a pipeline has no end",
		"a batch of reads has a limit":                                           "a pipeline has no end",
		"a bad namespace is refused by every call":                               "a namespace is a user, and one that can't be is not let in",
		"after Close every call of every view says so":                           "no command sums",
	}}
	f := func(name string, goroutines bool, open func(t testing.TB, o quipu.Options) *quipu.DB) {
		t.Run(name, func(t *testing.T) { dbtest.RunThrough(t, d, overWire(resp.Options{Goroutines: goroutines}, open)) })
	}
	memory := func(shared bool) func(testing.TB, quipu.Options) *quipu.DB {
		return func(_ testing.TB, o quipu.Options) *quipu.DB {
			return quipu.New(memstore.New(memstore.Options{Limits: o.Limits, Partitions: 3, Shared: shared}), o)
		}
	}
	f("memory, loop", false, memory(false))
	f("memory, goroutines", true, memory(false))
	f("shared, loop", false, memory(true))
	f("embedded, loop", false, func(t testing.TB, o quipu.Options) *quipu.DB {
		o.Logger = slog.New(slog.DiscardHandler)
		db, err := quipu.Open(t.TempDir(), o)
		if err != nil {
			t.Fatal(err)
		}
		return db
	})
}

// overWire puts a door before what open makes, and a client for each namespace.
func overWire(ro resp.Options, open func(t testing.TB, o quipu.Options) *quipu.DB) dbtest.Open {
	return func(t testing.TB, o quipu.Options) func(string) dbtest.DB {
		t.Helper()
		db := open(t, o)
		d := openOver(t, db, ro)
		clients := map[string]rueidis.Client{}
		return func(namespace string) dbtest.DB {
			if clients[namespace] == nil {
				c, err := rueidis.NewClient(rueidis.ClientOption{
					InitAddress: []string{d.addr}, Username: namespace, Password: "any",
					ForceSingleClient: true, DisableCache: true, DisableRetry: true,
				})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(c.Close)
				clients[namespace] = c
			}
			return &wire{clients[namespace], db, namespace}
		}
	}
}

// A wire is a namespace as a client of Redis sees it: each method is a command, or a
// few.
type wire struct {
	rueidis.Client
	db        *quipu.DB
	namespace string
}

// Allow asks a limit. Limits of its own are a bucket that CL.THROTTLE asks.
func (w *wire) Allow(ctx context.Context, name, who string, cost int64, o quipu.AllowOptions) (quipu.Decision, error) {
	args := []string{who, strconv.FormatInt(cost, 10)}
	command := "Q.ALLOW"
	if o.DryRun {
		command = "Q.PEEK"
	}
	if o.Burn {
		args = append(args, "BURN")
	}
	if o.Token != "" {
		args = append(args, "ID", o.Token)
	}
	m, err := w.Do(ctx, w.B().Arbitrary(command).Args(name).Args(args...).Build()).AsMap()
	if err != nil {
		return quipu.Decision{}, told(err)
	}
	text := func(name string) string {
		v := m[name]
		s, _ := v.ToString()
		return s
	}
	number := func(name string) int64 {
		v := m[name]
		n, _ := v.AsInt64()
		return n
	}
	truth := func(name string) bool {
		v := m[name]
		b, _ := v.AsBool()
		return b
	}
	d := quipu.Decision{
		Allowed: truth("allowed"), Policy: text("policy"), Limit: number("limit"), Remaining: number("remaining"), Source: text("source"),
		RetryAfter: time.Duration(number("retry_after_ms")) * time.Millisecond, ResetAfter: time.Duration(number("reset_after_ms")) * time.Millisecond,
		Replayed: truth("replayed"),
	}
	if d.RetryAfter < 0 {
		d.RetryAfter = call.Never
	}
	return d, nil
}

// ResetLimit forgets what a client has used.
func (w *wire) ResetLimit(ctx context.Context, name, who string) error {
	return told(w.Do(ctx, w.B().Arbitrary("Q.FORGET").Args(name, who).Build()).Error())
}

// Define publishes definitions, for which there is no command.
func (w *wire) Define(ctx context.Context, definitions []definition.Definition, o quipu.DefineOptions) (quipu.Change, error) {
	return w.db.In(w.namespace).Define(ctx, definitions, o)
}

// command returns a command of which the second word is a key.
func (w *wire) command(name, key string, args ...string) rueidis.Completed {
	return w.B().Arbitrary(name).Keys(key).Args(args...).Build()
}

// told returns the error that the library would. A call that is given up under way
// may have counted.
func told(err error) error {
	e, ok := rueidis.IsRedisErr(err)
	if !ok {
		if err != nil && !errors.Is(err, rueidis.Nil) {
			err = store.Errorf(store.KindUnknown, "%w", err)
		}
		return err
	}
	text := e.Error() // without ERR
	word, _, _ := strings.Cut(text, " ")
	kind := store.KindInvalid
	switch {
	case strings.Contains(text, "overflow"):
		kind = store.KindOverflow
	case strings.Contains(text, "at most"):
		kind = store.KindTooLarge
	case strings.Contains(text, "the server is closing"):
		kind = store.KindClosed
	}
	for k := store.KindOther; k <= store.KindSessionLost && kind == store.KindInvalid; k++ {
		if server.RESPWord(k) == word {
			kind = k
		}
	}
	return store.Errorf(kind, "%s", text)
}

// do makes a call.
func (w *wire) do(ctx context.Context, c rueidis.Completed) (m rueidis.RedisMessage, err error) {
	if err := ctx.Err(); err != nil {
		return m, err
	}
	m, err = w.Do(ctx, c).ToMessage()
	return m, told(err)
}

// add returns the command that adds, which is the plainest that says it.
func (w *wire) add(key string, delta int64, t *call.WriteTerms) rueidis.Completed {
	n := strconv.FormatInt(delta, 10)
	var args []string
	if t.HasToken {
		args = append(args, "ID", t.Token)
	}
	if t.HasWho && t.Who != "" {
		args = append(args, "WHO", t.Who)
	}
	switch {
	case !t.WantValue:
		args = append(args, "NOVALUE")
	case len(args) == 0 && delta == 1:
		return w.command("INCR", key)
	case len(args) == 0:
		return w.command("INCRBY", key, n)
	}
	if t.HasToken {
		args = append(args, "WITHSESSION")
	}
	return w.command("Q.ADD", key, append([]string{n}, args...)...)
}

// receipt returns what the reply to an add says.
func (w *wire) receipt(key string, delta int64, m rueidis.RedisMessage) (r quipu.Receipt, err error) {
	r = quipu.Receipt{Namespace: w.namespace, Key: key, Applied: delta}
	if m.IsArray() {
		parts, err := m.ToArray()
		if err != nil {
			return r, err
		}
		text, err := parts[1].ToString()
		if err != nil {
			return r, err
		}
		p, err := session.Parse(text)
		if err != nil {
			return r, err
		}
		m, r.Version = parts[0], p.Version
	}
	if r.HasValue = m.IsInt64(); r.HasValue {
		r.Value, err = m.AsInt64()
		r.Before = r.Value - delta
	}
	return r, err
}

func (w *wire) Add(ctx context.Context, key string, delta int64, opts ...quipu.WriteOption) (quipu.Receipt, error) {
	t, err := call.WriteTermsOf(opts, true)
	if err != nil {
		return quipu.Receipt{}, err
	}
	m, err := w.write(ctx, key, &t, w.add(key, delta, &t))
	if err != nil {
		return quipu.Receipt{}, err
	}
	return w.receipt(key, delta, m)
}

// AddBatch is a pipeline.
func (w *wire) AddBatch(ctx context.Context, events []quipu.Event) ([]quipu.Receipt, error) {
	if err := ctx.Err(); err != nil || len(events) == 0 {
		return nil, err
	}
	commands := make([]rueidis.Completed, len(events))
	for i := range events {
		t := events[i].Terms()
		commands[i] = w.add(events[i].Key, events[i].Delta, &t)
	}
	receipts := make([]quipu.Receipt, len(events))
	for i, result := range w.DoMulti(ctx, commands...) {
		receipts[i].Key = events[i].Key
		m, err := result.ToMessage()
		if _, ok := rueidis.IsRedisErr(err); err != nil && !ok {
			return nil, told(err)
		}
		if err == nil {
			receipts[i], err = w.receipt(events[i].Key, events[i].Delta, m)
		}
		receipts[i].Err = told(err)
	}
	return receipts, nil
}

// write makes a call that changes a counter, if it is at a version by WATCH.
func (w *wire) write(ctx context.Context, key string, t *call.WriteTerms, c rueidis.Completed) (m rueidis.RedisMessage, err error) {
	if !t.HasVersion {
		return w.do(ctx, c)
	}
	err = w.Dedicated(func(d rueidis.DedicatedClient) error {
		if err := d.Do(ctx, w.command("WATCH", key)).Error(); err != nil {
			return told(err)
		}
		now, err := w.count(d.Do(ctx, w.command("Q.GET", key)))
		if err != nil {
			return err
		}
		if now.Version != t.Version {
			return errors.Join(store.ErrChanged, d.Do(ctx, d.B().Unwatch().Build()).Error())
		}
		replies := d.DoMulti(ctx, d.B().Multi().Build(), c, d.B().Exec().Build())
		parts, err := replies[2].ToArray()
		if errors.Is(err, rueidis.Nil) {
			return store.ErrChanged
		}
		if err != nil {
			return told(err)
		}
		m = parts[0]
		return told(m.Error())
	})
	return m, err
}

// assign makes a call that replies the value before, if that is wanted.
func (w *wire) assign(ctx context.Context, key string, value int64, opts []quipu.WriteOption, plain, wanting rueidis.Completed) (quipu.Receipt, error) {
	t, err := call.WriteTermsOf(opts, false)
	if err != nil {
		return quipu.Receipt{}, err
	}
	r := quipu.Receipt{Namespace: w.namespace, Key: key, HasValue: t.WantValue}
	if !t.WantValue {
		_, err := w.write(ctx, key, &t, plain)
		return r, err
	}
	m, err := w.write(ctx, key, &t, wanting)
	if err == nil {
		r.Before, err = m.AsInt64()
	}
	if errors.Is(err, rueidis.Nil) {
		err = nil
	}
	r.Value, r.Applied = value, value-r.Before
	return r, err
}

func (w *wire) Set(ctx context.Context, key string, value int64, opts ...quipu.WriteOption) (quipu.Receipt, error) {
	n := strconv.FormatInt(value, 10)
	return w.assign(ctx, key, value, opts, w.command("SET", key, n), w.command("SET", key, n, "GET"))
}

func (w *wire) Reset(ctx context.Context, key string, opts ...quipu.WriteOption) (quipu.Receipt, error) {
	return w.Set(ctx, key, 0, opts...)
}

func (w *wire) Delete(ctx context.Context, key string, opts ...quipu.WriteOption) (quipu.Receipt, error) {
	return w.assign(ctx, key, 0, opts, w.command("DEL", key), w.command("GETDEL", key))
}

// get returns the command that reads.
func (w *wire) get(key string, opts []quipu.ReadOption) (rueidis.Completed, error) {
	t, err := call.ReadTermsOf(opts)
	switch {
	case err != nil:
		return rueidis.Completed{}, err
	case t.Exact:
		return w.command("Q.GET", key, "EXACT"), nil
	case t.HasStaleness:
		return w.command("Q.GET", key, "STALE", strconv.FormatInt(t.MaxStaleness.Milliseconds(), 10)), nil
	}
	return w.command("Q.GET", key), nil
}

// count returns what the reply to a Q.GET says.
func (w *wire) count(result rueidis.RedisResult) (c quipu.Count, err error) {
	fields, err := result.AsMap()
	if err != nil {
		return c, told(err)
	}
	number := func(name string) int64 {
		m := fields[name]
		n, e := m.AsInt64()
		if m.IsNil() {
			e = nil
		}
		err = errors.Join(err, e)
		return n
	}
	text := func(name string) string {
		m := fields[name]
		s, e := m.ToString()
		err = errors.Join(err, e)
		return s
	}
	truth := func(name string) bool {
		m := fields[name]
		b, e := m.AsBool()
		err = errors.Join(err, e)
		return b
	}
	lower := fields["lower"]
	c = quipu.Count{
		Key: text("key"), Value: number("value"), Lower: number("lower"), Upper: number("upper"), Bounded: !lower.IsNil(),
		Exact: truth("exact"), Complete: truth("complete"), Exists: truth("exists"),
		AsOf: time.UnixMilli(number("as_of")), Staleness: time.Duration(number("staleness_ms")) * time.Millisecond,
		Source: text("source"), Shards: int(number("shards")), Version: uint64(number("version")),
	}
	return c, err
}

func (w *wire) Read(ctx context.Context, key string, opts ...quipu.ReadOption) (quipu.Count, error) {
	c, err := w.get(key, opts)
	if err != nil {
		return quipu.Count{}, err
	}
	return w.count(w.Do(ctx, c))
}

// ReadBatch is a pipeline.
func (w *wire) ReadBatch(ctx context.Context, keys []string, opts ...quipu.ReadOption) (counts []quipu.Count, err error) {
	commands := make([]rueidis.Completed, len(keys))
	for i, key := range keys {
		if commands[i], err = w.get(key, opts); err != nil {
			return nil, err
		}
	}
	for _, result := range w.DoMulti(ctx, commands...) {
		c, err := w.count(result)
		if err != nil {
			return nil, err
		}
		counts = append(counts, c)
	}
	return counts, nil
}

func (w *wire) List(ctx context.Context, prefix string, o quipu.ListOptions) (p quipu.Page, err error) {
	args := []string{o.Cursor}
	if o.Cursor == "" {
		args[0] = "0"
	}
	if prefix != "" {
		args = append(args, "MATCH", strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`).Replace(prefix)+"*")
	}
	if o.Limit > 0 {
		args = append(args, "COUNT", strconv.Itoa(o.Limit))
	}
	entry, err := w.Do(ctx, w.B().Arbitrary("SCAN").Args(args...).Build()).AsScanEntry()
	if err != nil {
		return p, told(err)
	}
	if entry.Cursor != 0 {
		p.Next = strconv.FormatUint(entry.Cursor, 10)
	}
	p.Counts, err = w.ReadBatch(ctx, entry.Elements, quipu.Exact())
	return p, err
}

// Sum is not to be had.
func (w *wire) Sum(context.Context, string, string) (quipu.Sum, error) {
	return quipu.Sum{}, store.ErrUnsupported
}

func (w *wire) Lookup(ctx context.Context, key, token string) (quipu.Fate, error) {
	return w.fate(ctx, "Q.LOOKUP", key, token)
}

func (w *wire) Settle(ctx context.Context, key, token string) (quipu.Fate, error) {
	return w.fate(ctx, "Q.SETTLE", key, token)
}

func (w *wire) fate(ctx context.Context, command, key, token string) (f quipu.Fate, err error) {
	fields, err := w.Do(ctx, w.B().Arbitrary(command).Args(token).Keys(key).Build()).AsMap()
	if err != nil {
		return f, told(err)
	}
	m := fields["state"]
	word, err := m.ToString()
	for state := store.TokenUnknown; state <= store.TokenExpired; state++ {
		if state.String() == word {
			f.State = state
		}
	}
	if f.State != store.TokenApplied {
		return f, err
	}
	number := func(name string) int64 {
		m := fields[name]
		n, _ := m.AsInt64() // 0 of what is null
		return n
	}
	f.At = time.UnixMilli(number("at"))
	if choice, ok := fields["choice"]; ok {
		before := fields["before"]
		f.Reacted = true
		f.Choice, _ = choice.ToString()
		f.Before, _ = before.ToString()
		f.Receipt = quipu.Receipt{Namespace: w.namespace, Key: key, Version: uint64(number("version"))}
		return f, err
	}
	value := fields["value"]
	f.Receipt = quipu.Receipt{
		Namespace: w.namespace, Key: key, Applied: number("applied"), Before: number("before"), Value: number("value"),
		HasValue: !value.IsNil(), Version: uint64(number("version")),
	}
	return f, err
}

// Close closes the DB behind the door, which says so from then on.
func (w *wire) Close() error { return w.db.Close() }

func (w *wire) React(ctx context.Context, key, user, choice string, opts ...quipu.WriteOption) (quipu.Reaction, error) {
	return w.react(ctx, "Q.REACT", key, user, choice, []string{user, choice}, opts)
}

func (w *wire) Unreact(ctx context.Context, key, user string, opts ...quipu.WriteOption) (quipu.Reaction, error) {
	return w.react(ctx, "Q.UNREACT", key, user, "", []string{user}, opts)
}

// react makes a reaction. Its reply says no more than whether it has changed something.
func (w *wire) react(ctx context.Context, name, key, user, choice string, args []string, opts []quipu.WriteOption) (quipu.Reaction, error) {
	t, err := call.WriteTermsOf(opts, false)
	if err != nil {
		return quipu.Reaction{}, err
	}
	if t.HasToken {
		args = append(args, "ID", t.Token)
	}
	before := ""
	if m, err := w.do(ctx, w.command("Q.REACTION", key, user)); err == nil {
		before, _ = m.ToString()
	}
	m, err := w.do(ctx, w.command(name, key, args...))
	if err != nil {
		return quipu.Reaction{}, err
	}
	changed, err := m.AsBool()
	r := quipu.Reaction{Namespace: w.namespace, Key: key, User: user, Choice: choice, Before: before, Changed: changed}
	return r, err
}

func (w *wire) Choice(ctx context.Context, user string, keys ...string) ([]string, error) {
	choices := make([]string, len(keys))
	for i, key := range keys {
		m, err := w.do(ctx, w.command("Q.REACTION", key, user))
		switch choice, none := m.ToString(); {
		case err != nil && !errors.Is(err, rueidis.Nil):
			return nil, err
		case none == nil:
			choices[i] = choice
		}
	}
	return choices, nil
}

func (w *wire) Reactions(ctx context.Context, key string) (quipu.Reactions, error) {
	m, err := w.do(ctx, w.command("Q.REACTION", key))
	if err != nil {
		return quipu.Reactions{}, err
	}
	counts, err := m.AsIntMap()
	if err != nil {
		return quipu.Reactions{}, err
	}
	b, err := w.db.In(w.namespace).DefinitionOf(ctx, key)
	if err != nil {
		return quipu.Reactions{}, err
	}
	out := quipu.Reactions{Key: key}
	for _, choice := range b.Definitions[0].Choices {
		out.Counts = append(out.Counts, quipu.ChoiceCount{Choice: choice, Users: counts[choice]})
		out.Users += counts[choice]
	}
	return out, nil
}

// Members lists the users of the first choice by SSCAN, and of the others by the library:
// there is no command for them.
func (w *wire) Members(ctx context.Context, key string, o quipu.MembersOptions) (quipu.MembersPage, error) {
	if o.Choice != "like" || o.Limit == 0 {
		return w.db.In(w.namespace).Members(ctx, key, o)
	}
	cursor := o.Cursor
	if cursor == "" {
		cursor = "0"
	}
	m, err := w.do(ctx, w.command("SSCAN", key, cursor, "COUNT", strconv.Itoa(o.Limit)))
	if err != nil {
		return quipu.MembersPage{}, err
	}
	e, err := m.AsScanEntry()
	var p quipu.MembersPage
	for _, user := range e.Elements {
		p.Members = append(p.Members, quipu.Member{User: user, Choice: o.Choice})
	}
	if e.Cursor != 0 {
		p.Next = strconv.FormatUint(e.Cursor, 10)
	}
	return p, err
}
