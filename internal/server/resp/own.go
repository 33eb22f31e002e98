package resp

import (
	"context"
	"slices"
	"strconv"
	"time"
	"unsafe"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/internal/instant"
	"github.com/quipudb/quipu/internal/port"
	"github.com/quipudb/quipu/store"
)

// Commands that Redis does not have begin with Q.

// planQAdd plans a Q.ADD that is no more than a delta; others go another way (see
// guarded).
func planQAdd(c *cycle, _ *session, args [][]byte) (encode, error) {
	e, err := parseQAdd(args)
	if err != nil {
		return nil, err
	}
	if e.Who == "" {
		return nil, c.add(args[1], e.Delta, !e.WantValue)
	}
	// It goes by itself, to who's shard.
	if err := c.single(args[1], e.Delta, !e.WantValue); err != nil {
		return nil, err
	}
	c.deltas[len(c.deltas)-1].Lot, c.singles = port.Lot(e.Who), 0
	return nil, nil
}

// A qAdd is what a Q.ADD adds, and whether its reply has the session.
type qAdd struct {
	quipu.Event
	session bool
}

func parseQAdd(args [][]byte) (e qAdd, err error) {
	e.Event = quipu.Event{Key: string(args[1]), WantValue: true}
	if e.Delta, err = integer(args[2]); err != nil {
		return e, err
	}
	var id, who, when bool
	for i := 3; i < len(args); i++ {
		a, last := args[i], i+1 == len(args)
		switch {
		case is(a, "ID") && !last && !id:
			i++
			id, e.Token = true, string(args[i])
			if err := store.CheckToken(e.Token); err != nil {
				return e, err
			}
		case is(a, "AT") && !last && !when:
			i++
			when = true
			if e.At, err = instant.Fixed(string(args[i])); err != nil {
				return e, wireError("ERR AT: " + err.Error())
			}
		case is(a, "DIM") && i+2 < len(args):
			for pair := true; pair; pair = i+2 < len(args) && !isOption(args[i+1]) {
				if e.Dims, err = withDim(e.Dims, string(args[i+1]), string(args[i+2])); err != nil {
					return e, err
				}
				i += 2
			}
		case is(a, "WHO") && !last && !who:
			i++
			who, e.Who = true, string(args[i])
			if err := call.CheckWho(e.Who); err != nil {
				return e, err
			}
		case is(a, "NOVALUE") && e.WantValue:
			e.WantValue = false
		case is(a, "WITHSESSION") && !e.session:
			e.session = true
		default:
			return e, errSyntax
		}
	}
	return e, nil
}

// isOption reports whether an argument begins the next option of a Q.ADD, and no further pair
// of DIM: a dimension of such a name needs a DIM of its own.
func isOption(a []byte) bool {
	return slices.ContainsFunc([]string{"ID", "AT", "DIM", "WHO", "NOVALUE", "WITHSESSION"}, func(word string) bool { return is(a, word) })
}

// withDim appends the value of a dimension.
func withDim(dims []quipu.Dimension, name, value string) ([]quipu.Dimension, error) {
	switch {
	case slices.ContainsFunc(dims, func(d quipu.Dimension) bool { return d.Name == name }):
		return nil, wireError("ERR DIM " + strconv.Quote(name) + " is given twice")
	case len(dims) == quipu.DimsMax:
		return nil, wireError("ERR DIM: at most " + strconv.Itoa(quipu.DimsMax) + " are allowed")
	}
	return append(dims, quipu.Dimension{Name: name, Value: value}), nil
}

// guarded reports whether a command is a Q.ADD that says more than a delta can: with a
// token, with a time or a dimension, or one that wants the session. What it replies is in
// a receipt.
func (c *command) guarded(args [][]byte) bool {
	if c.flags&flagToken == 0 {
		return false
	}
	for _, a := range args[3:] {
		if is(a, "ID") || is(a, "WITHSESSION") || is(a, "AT") || is(a, "DIM") {
			return true
		}
	}
	return false
}

// named reports whether a command is a Q.ADD by someone whom a ledger may name. Where
// nothing is defined, a delta says enough.
func (s *session) named(c *command, args [][]byte) bool {
	return c.flags&flagToken != 0 && s.db.Port().Books().Any() &&
		slices.ContainsFunc(args[3:], func(a []byte) bool { return is(a, "WHO") })
}

// guard adds a Q.ADD to those that follow each other.
func (s *session) guard(args [][]byte) error {
	e, err := parseQAdd(args)
	if err == nil {
		err = store.CheckKey(e.Key)
	}
	if err == nil {
		s.guarded = append(s.guarded, e)
	}
	return err
}

// addGuarded makes the Q.ADDs that were gathered the session's job.
func (s *session) addGuarded() {
	adds, drop, cmd := s.guarded, s.muted || s.skip, s.d.commands["Q.ADD"]
	events := make([]quipu.Event, len(adds))
	for i := range adds {
		events[i] = adds[i].Event
	}
	s.guarded, s.skip = nil, false
	s.kept, s.slots = 0, s.jobs
	for i := range events {
		s.kept += len(events[i].Key) + len(events[i].Token) + len(events[i].Who) + int(unsafe.Sizeof(adds[i])+unsafe.Sizeof(events[i]))
		for _, d := range events[i].Dims {
			s.kept += len(d.Name) + len(d.Value) + int(unsafe.Sizeof(d))
		}
	}
	s.job = func(ctx context.Context) {
		ctx, cancel := s.d.deadline(ctx)
		defer cancel()
		receipts, err := s.db.AddBatch(ctx, events)
		if err != nil {
			s.d.report(err, len(events))
		}
		start, failed := len(s.out), 0
		for i := range events {
			switch {
			case err != nil:
				s.fail(errorText(err))
				failed++
			case receipts[i].Err != nil:
				s.fail(errorText(receipts[i].Err))
				s.d.report(receipts[i].Err, 1)
				failed++
			default:
				s.receipt(&receipts[i], adds[i].session)
			}
		}
		switch {
		case s.fault != nil:
			s.overflow(start)
		case drop:
			s.cut(start)
		}
		cmd.stats.failed.Add(uint64(failed))
		s.noteSlow([][]byte{[]byte(cmd.name), []byte(events[0].Key)})
	}
}

// receipt replies the value after an addition, and its session if that is wanted.
// A repeat gets the first reply, which had no value if it was not wanted.
func (s *session) receipt(r *quipu.Receipt, session bool) {
	if session {
		s.array(2)
	}
	if r.HasValue {
		s.integer(r.Value)
	} else {
		s.ok()
	}
	if session {
		s.text(r.Session())
	}
}

func qGet(ctx context.Context, s *session, args [][]byte) error {
	var o []quipu.ReadOption
	switch {
	case len(args) == 2:
	case len(args) == 3 && is(args[2], "EXACT"):
		o = append(o, quipu.Exact())
	case len(args) == 4 && is(args[2], "SESSION"):
		o = append(o, quipu.Session(string(args[3])))
	case len(args) == 4 && is(args[2], "STALE"):
		ms, err := integer(args[3])
		if err != nil {
			return err
		}
		if ms < 0 || ms > int64(maxStale/time.Millisecond) {
			return wireError("ERR STALE: want milliseconds between 0 and a day")
		}
		o = append(o, quipu.MaxStaleness(time.Duration(ms)*time.Millisecond))
	default:
		return errSyntax
	}
	if len(s.watched) > 0 { // what EXEC depends on may be reckoned from it: see dispatch
		o = append(o, quipu.Exact())
	}
	ctx, cancel := s.d.deadline(ctx)
	defer cancel()
	count, err := s.db.Read(ctx, string(args[1]), o...)
	if err != nil {
		return err
	}
	s.count(&count)
	return nil
}

const maxStale = 24 * time.Hour

// count replies the answer to a read, and what it is worth, as a map.
func (s *session) count(c *quipu.Count) {
	s.fields(12)
	s.text("key")
	s.text(c.Key)
	s.text("value")
	s.integer(c.Value)
	s.text("lower")
	s.known64(c.Lower, c.Bounded)
	s.text("upper")
	s.known64(c.Upper, c.Bounded)
	s.text("exact")
	s.boolean(c.Exact)
	s.text("complete")
	s.boolean(c.Complete)
	s.text("exists")
	s.boolean(c.Exists)
	s.text("as_of")
	s.integer(c.AsOf.UnixMilli())
	s.text("staleness_ms")
	s.integer(c.Staleness.Milliseconds())
	s.text("source")
	s.text(c.Source)
	s.text("shards")
	s.integer(int64(c.Shards))
	s.text("version")
	s.integer(int64(c.Version))
}

func qLookup(ctx context.Context, s *session, args [][]byte) error {
	return s.fate(ctx, args, s.db.Lookup)
}

func qSettle(ctx context.Context, s *session, args [][]byte) error {
	return s.fate(ctx, args, s.db.Settle)
}

// fate replies what is known of a token, as a map: its state, and if it was
// applied, the receipt.
func (s *session) fate(ctx context.Context, args [][]byte, ask func(ctx context.Context, key, token string) (quipu.Fate, error)) error {
	ctx, cancel := s.d.deadline(ctx)
	defer cancel()
	f, err := ask(ctx, string(args[2]), string(args[1]))
	if err != nil {
		return err
	}
	if f.State != quipu.TokenApplied {
		s.fields(1)
		s.text("state")
		s.text(f.State.String())
		return nil
	}
	if f.Reacted {
		s.fields(5)
		s.text("state")
		s.text(f.State.String())
		s.text("choice")
		s.text(f.Choice)
		s.text("before")
		s.text(f.Before)
		s.text("version")
		s.integer(int64(f.Receipt.Version))
		s.text("at")
		s.known64(f.At.UnixMilli(), !f.At.IsZero())
		return nil
	}
	s.fields(6)
	s.text("state")
	s.text(f.State.String())
	s.text("applied")
	s.integer(f.Receipt.Applied)
	s.text("before")
	s.known64(f.Receipt.Before, f.Receipt.HasValue)
	s.text("value")
	s.known64(f.Receipt.Value, f.Receipt.HasValue)
	s.text("version")
	s.integer(int64(f.Receipt.Version))
	s.text("at")
	s.known64(f.At.UnixMilli(), !f.At.IsZero())
	return nil
}

// known64 replies a number, or null if it is not known.
func (e *encoder) known64(n int64, known bool) {
	if known {
		e.integer(n)
	} else {
		e.null()
	}
}
