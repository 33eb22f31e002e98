package resp

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/keyspace"
	"github.com/quipudb/quipu/store"
)

// planDelete replies how many of the counters existed, as does planExists.
func planDelete(c *cycle, _ *session, args [][]byte) (encode, error) {
	for _, key := range args[1:] {
		if _, err := c.delta(store.OpDelete, key); err != nil {
			return nil, err
		}
	}
	return encodeExisted, nil
}

// del is DEL in a step of its own, or in several if the counters are in different
// partitions of the store.
func del(ctx context.Context, s *session, args [][]byte) error {
	err := s.alone(ctx, s.d.commands["DEL"], args)
	if !errors.Is(err, store.ErrUnsupported) {
		return err
	}
	c := new(cycle)
	c.reset(s.db)
	if err := c.plan(s, s.d.commands["DEL"], args); err != nil {
		return err
	}
	return s.apply(ctx, c, nil)
}

func planExists(c *cycle, _ *session, args [][]byte) (encode, error) {
	var sets []bool // of the keys; nil if none is one
	for i, key := range args[1:] {
		if err := c.get(key); err != nil {
			return nil, err
		}
		if c.db.Port().KnownChoices(textOf(key)) != nil {
			if sets == nil {
				sets = make([]bool, len(args)-1)
			}
			sets[i] = true
		}
	}
	if sets == nil {
		return encodeExisted, nil
	}
	return func(e *encoder, results []store.Result) {
		if anyRefusal(e, results) {
			return
		}
		n := int64(0)
		for i := range results {
			if results[i].Existed && (!sets[i] || results[i].After != 0) { // Redis has no empty sets.
				n++
			}
		}
		e.integer(n)
	}, nil
}

func encodeExisted(e *encoder, results []store.Result) {
	if anyRefusal(e, results) {
		return
	}
	n := int64(0)
	for i := range results {
		if results[i].Existed {
			n++
		}
	}
	e.integer(n)
}

func planType(c *cycle, _ *session, args [][]byte) (encode, error) {
	err := c.get(args[1])
	set := c.db.Port().KnownChoices(textOf(args[1])) != nil
	return func(e *encoder, results []store.Result) {
		switch {
		case refusal(e, &results[0]):
		case set && results[0].After != 0:
			e.simple("set")
		case set:
			e.simple("none") // as Redis has no empty sets
		case e.told != nil && e.told[0] != nil:
			e.simple(e.told[0].Type())
		case results[0].Existed:
			e.simple("string")
		default:
			e.simple("none")
		}
	}, err
}

// planExpire plans one of the commands that set a deadline: in a unit of so many
// milliseconds, from now or from 1970 on.
func planExpire(unitMS int64, absolute bool, command string) func(*cycle, *session, [][]byte) (encode, error) {
	return func(c *cycle, _ *session, args [][]byte) (encode, error) {
		expiry, err := parseExpire(args[3:])
		if err != nil {
			return nil, err
		}
		at, err := integer(args[2])
		if err != nil {
			return nil, err
		}
		if at > math.MaxInt64/unitMS || at < math.MinInt64/unitMS || !absolute && isEndless(at*unitMS) {
			return nil, badExpiry(command)
		}
		d, err := c.delta(store.OpExpire, args[1])
		if err != nil {
			return nil, err
		}
		if d.Expiry, d.DeadlineMS = expiry, max(at*unitMS, 1); !absolute && at > 0 { // others have passed already
			d.Expiry |= store.ExpiryAfter
		}
		return encodeDone, nil
	}
}

func parseExpire(options [][]byte) (store.Expiry, error) {
	e := store.ExpirySet
	for _, a := range options {
		switch {
		case is(a, "NX"):
			e |= store.ExpiryIfNone
		case is(a, "XX"):
			e |= store.ExpiryIfSome
		case is(a, "GT"):
			e |= store.ExpiryIfLater
		case is(a, "LT"):
			e |= store.ExpiryIfSooner
		default:
			return 0, wireError("ERR Unsupported option " + clip(a, 128))
		}
	}
	switch {
	case e&store.ExpiryIfNone != 0 && e&(store.ExpiryIfSome|store.ExpiryIfLater|store.ExpiryIfSooner) != 0:
		return 0, wireError("ERR NX and XX, GT or LT options at the same time are not compatible")
	case e&store.ExpiryIfLater != 0 && e&store.ExpiryIfSooner != 0:
		return 0, wireError("ERR GT and LT options at the same time are not compatible")
	}
	return e, nil
}

// planTTL plans one of the commands that tell a deadline.
func planTTL(unitMS int64, absolute bool) func(*cycle, *session, [][]byte) (encode, error) {
	return func(c *cycle, s *session, args [][]byte) (encode, error) {
		db, key := s.db, string(args[1])
		err := c.get(args[1])
		return func(e *encoder, results []store.Result) {
			r := &results[0]
			switch {
			case refusal(e, r):
			case !r.Existed:
				e.integer(-2)
			case r.DeadlineMS == 0:
				e.integer(-1)
			default:
				ms := r.DeadlineMS
				if !absolute {
					ms = db.Port().Left(key, ms)
				}
				if unitMS > 1 { // to the nearest, without overflow
					ms = ms/unitMS + (ms%unitMS+unitMS/2)/unitMS
				}
				e.integer(ms)
			}
		}, err
	}
}

func planPersist(c *cycle, _ *session, args [][]byte) (encode, error) {
	d, err := c.delta(store.OpExpire, args[1])
	if err != nil {
		return nil, err
	}
	d.Expiry = store.ExpiryClear
	return encodeDone, nil
}

// keys replies all keys that match a pattern, unless they are too many.
func keys(ctx context.Context, s *session, args [][]byte) error {
	if len(args[1]) > patternBytesMax {
		return errPattern
	}
	_, err := s.sweep(ctx, string(args[1]), "", "", math.MaxInt)
	if s.full() {
		return wireError("ERR the keys are too many for one reply: use SCAN")
	}
	return err
}

// sweepPage is how many keys a sweep looks at before others have a turn.
const sweepPage = 2000

// sweep replies those of the next keys after a key that match a pattern, and are of a type if one is given, and returns
// the last one that it looked at if there are more.
func (s *session) sweep(ctx context.Context, pattern, only, after string, keys int) (last string, err error) {
	start, n := len(s.out), 0
	prefix := literalPrefix(pattern)
	var name subject
	for keys > 0 && !s.full() {
		limit := min(keys, sweepPage)
		page, err := s.db.Port().Keys(ctx, prefix, after, limit)
		if err != nil {
			return "", err
		}
		full := len(page) == limit
		if full {
			last = page[limit-1]
		}
		if page, err = s.matching(ctx, &name, pattern, page); err != nil {
			return "", err
		}
		if page, err = s.ofType(ctx, page, only); err != nil {
			return "", err
		}
		for _, key := range page {
			s.text(key)
			n++
		}
		if !full {
			last = ""
			break
		}
		keys -= limit
		after = last
		if err := s.pass(); err != nil {
			return "", err
		}
	}
	s.frameArray(start, n)
	return last, nil
}

// matching returns those of some keys that match a pattern, and takes their place. Others have a turn meanwhile.
func (s *session) matching(ctx context.Context, name *subject, pattern string, page []string) ([]string, error) {
	turn := name.steps
	found := page[:0]
	for _, key := range page {
		if name.set(key); name.matches(pattern) {
			found = append(found, key)
		}
		if name.hard > sweepStepsMax {
			return nil, errPatternSteps
		}
		if name.steps-turn < sweepStepsTurn {
			continue
		}
		turn = name.steps
		if err := ctx.Err(); err != nil {
			return nil, store.Errorf(store.KindUnavailable, "the keys could not be matched in time: %w", err)
		}
		if err := s.pass(); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// isHeldType reports whether TYPE calls some sketches or collections so.
func isHeldType(name string) bool {
	return slices.Contains([]string{"MBbloom--", "CMSk-TYPE", "TopK-TYPE", "hash", "zset"}, name)
}

// ofType returns those of some keys that are of a type, all if none is given.
func (s *session) ofType(ctx context.Context, page []string, only string) ([]string, error) {
	switch {
	case only == "", len(page) == 0:
		return page, nil
	case !s.db.Port().MayHoldText(): // All are counts.
		if only != "string" {
			page = nil
		}
		return page, nil
	}
	var some []string
	err := s.db.Port().Text(ctx, page, nil, func(space *keyspace.Space) error {
		some = slices.DeleteFunc(slices.Clone(page), func(key string) bool {
			v := space.Is(key)
			return !v.Exists || v.Type() != only
		})
		return nil
	})
	return some, err
}

// scanDefault is how many keys a SCAN looks at without COUNT.
const scanDefault = 10

func scan(ctx context.Context, s *session, args [][]byte) error {
	cursor, err := strconv.ParseUint(string(args[1]), 10, 64)
	if err != nil {
		return wireError("ERR invalid cursor")
	}
	pattern, count, only, err := parseScan(args[2:])
	if err != nil {
		return err
	}
	after := ""
	if cursor != 0 {
		var ok bool
		if after, ok = s.d.cursors.get(cursor); !ok {
			return wireError("ERR invalid cursor")
		}
	}
	if only != "" && only != "string" && !isHeldType(only) {
		count = 0
	}
	ctx, cancel := s.d.deadline(ctx)
	defer cancel()
	start := len(s.out)
	last, err := s.sweep(ctx, pattern, only, after, count)
	if err != nil {
		return err
	}
	next := uint64(0)
	if last != "" {
		next = s.d.cursors.put(last)
	}
	end := len(s.out)
	s.array(2)
	s.text(strconv.FormatUint(next, 10))
	s.toFront(start, end)
	return nil
}

// parseScan returns what the options of a SCAN say.
func parseScan(args [][]byte) (pattern string, count int, only string, err error) {
	pattern, count = "*", scanDefault
	for i := 0; i < len(args); i += 2 {
		if i+1 == len(args) {
			return "", 0, "", errSyntax
		}
		value := args[i+1]
		switch {
		case is(args[i], "MATCH"):
			if len(value) > patternBytesMax {
				return "", 0, "", errPattern
			}
			pattern = string(value)
		case is(args[i], "TYPE"):
			if only = string(value); is(value, "STRING") {
				only = "string"
			}
		case is(args[i], "COUNT"):
			n, err := integer(value)
			if err != nil {
				return "", 0, "", err
			}
			if n < 1 {
				return "", 0, "", errSyntax
			}
			count = int(min(n, quipu.PageMax))
		default:
			return "", 0, "", errSyntax
		}
	}
	return pattern, count, only, nil
}

// cursorsMax is how many scans can be under way.
const cursorsMax = 1 << 14

// cursors are the places of scans under way. Redis's cursors are numbers, and
// places here are keys: the last so many are remembered under numbers. They are
// below 2^53, because some clients keep them as floating point.
type cursors struct {
	mu    sync.Mutex // guards the fields below
	first uint64     // numbers start at random, so that one from before a restart is not taken for another
	keys  []string   // the key of number first+i is at i modulo cursorsMax
	n     uint64     // how many were given
}

// put returns the number of a place after a key.
func (c *cursors) put(key string) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keys == nil {
		c.first = 1 + rand.Uint64N(1<<52)
		c.keys = make([]string, cursorsMax)
	}
	c.keys[c.n%cursorsMax] = key
	c.n++
	return c.first + c.n - 1
}

// get returns the key of a number, if it is remembered.
func (c *cursors) get(number uint64) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := number - c.first
	if c.keys == nil || number < c.first || i >= c.n || c.n-i > cursorsMax {
		return "", false
	}
	return c.keys[i%cursorsMax], true
}

func randomKey(ctx context.Context, s *session, _ [][]byte) error {
	ctx, cancel := s.d.deadline(ctx)
	defer cancel()
	key, err := s.db.Port().Any(ctx)
	switch {
	case err != nil:
		return err
	case key == "":
		s.null()
	default:
		s.text(key)
	}
	return nil
}

func dbSize(ctx context.Context, s *session, _ [][]byte) error {
	ctx, cancel := s.d.deadline(ctx)
	defer cancel()
	n, err := s.db.Size(ctx)
	if err == nil {
		s.integer(n)
	}
	return err
}

// flushDB deletes the counters of the selected database.
func flushDB(ctx context.Context, s *session, args [][]byte) error {
	return s.flush(ctx, args, []*quipu.DB{s.db})
}

// flushAll deletes the counters of all databases of the session's user.
func flushAll(ctx context.Context, s *session, args [][]byte) error {
	return s.flush(ctx, args, s.databases())
}

func (s *session) flush(ctx context.Context, args [][]byte, views []*quipu.DB) error {
	if len(args) > 2 || len(args) == 2 && !is(args[1], "SYNC") && !is(args[1], "ASYNC") {
		return errSyntax
	}
	names := make([]string, len(views))
	for i, db := range views {
		names[i] = db.Port().Namespace()
	}
	s.d.tracker.flushed(names...)
	for _, db := range views {
		if err := db.Port().Clear(ctx); err != nil {
			return err
		}
	}
	s.ok()
	return nil
}
