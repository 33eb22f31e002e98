package resp

import (
	"bytes"
	"context"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/store"
)

func planGet(c *cycle, _ *session, args [][]byte) (encode, error) {
	return encodeBefore, c.get(args[1])
}

// encodeBefore replies the value that was there, or null.
func encodeBefore(e *encoder, results []store.Result) {
	if e.meetsMore() {
		e.fail(string(errWrongType))
		return
	}
	encodeNth(e, results, 0)
}

// meetsMore reports whether the first result of a reply is of a key that holds neither a count nor text.
func (e *encoder) meetsMore() bool {
	return e.told != nil && e.told[0] != nil && e.told[0].Held != ""
}

// encodeNth is encodeBefore for one of several results.
func encodeNth(e *encoder, results []store.Result, i int) {
	r := &results[i]
	switch {
	case refusal(e, r):
	case e.told != nil && e.told[i] != nil && e.told[i].Held != "":
		e.null() // as MGET has it
	case e.told != nil && e.told[i] != nil:
		e.text(e.told[i].Text)
	case r.Existed:
		e.number(r.Before)
	default:
		e.null()
	}
}

// refusal replies an error if a delta was refused for another reason than the
// conditions that the command has.
func refusal(e *encoder, r *store.Result) bool {
	switch r.Outcome {
	case store.Applied, store.Unmet:
		return false
	case store.Split, store.NotCount: // Nobody knew: see textual.
		e.fail(string(errTextNow))
		return true
	default:
	}
	e.fail(errorText(r.Outcome.Err()))
	return true
}

// anyRefusal is refusal for all deltas of a command.
func anyRefusal(e *encoder, results []store.Result) bool {
	for i := range results {
		if refusal(e, &results[i]) {
			return true
		}
	}
	return false
}

func encodeOK(e *encoder, results []store.Result) {
	if !anyRefusal(e, results) {
		e.ok()
	}
}

// encodeDone replies 1 if the delta met its conditions.
func encodeDone(e *encoder, results []store.Result) {
	if !refusal(e, &results[0]) {
		e.flag(results[0].Outcome == store.Applied)
	}
}

func planAdd(by int64) func(*cycle, *session, [][]byte) (encode, error) {
	return func(c *cycle, _ *session, args [][]byte) (encode, error) { return nil, c.add(args[1], by, false) }
}

func planAddBy(sign int64) func(*cycle, *session, [][]byte) (encode, error) {
	return func(c *cycle, _ *session, args [][]byte) (encode, error) {
		by, err := integer(args[2])
		if err != nil {
			return nil, err
		}
		if sign < 0 && by == math.MinInt64 {
			return nil, wireError("ERR decrement would overflow")
		}
		return nil, c.add(args[1], sign*by, false)
	}
}

// set adds an assignment, which takes the deadline away.
func (c *cycle) set(key, value []byte) (*store.Delta, error) {
	n, err := integer(value)
	if err != nil {
		return nil, err
	}
	d, err := c.delta(store.OpSet, key)
	if err != nil {
		return nil, err
	}
	d.N, d.Expiry = n, store.ExpiryClear
	return d, c.db.Port().CheckValue(d.Cell.Key, n) // None of several may be refused alone.
}

func planSet(c *cycle, _ *session, args [][]byte) (encode, error) {
	if len(args) == 3 { // Fast path.
		_, err := c.set(args[1], args[2])
		return encodeOK, err
	}
	o, err := parseSet(args)
	if err != nil {
		return nil, err
	}
	d, err := c.set(args[1], args[2])
	if err != nil {
		return nil, err
	}
	d.Guard.Exists = o.exists
	switch {
	case o.keep:
		d.Expiry = store.ExpiryKeep
	case o.ends != end{}:
		d.Expiry, d.DeadlineMS = o.ends.expiry, o.ends.ms
	}
	if o.get {
		return encodeBefore, nil
	}
	return func(e *encoder, results []store.Result) {
		switch {
		case refusal(e, &results[0]):
		case results[0].Outcome == store.Unmet:
			e.null()
		default:
			e.ok()
		}
	}, nil
}

// setOptions are what follows the value of a SET.
type setOptions struct {
	exists    store.Existence
	get, keep bool
	ends      end
}

func parseSet(args [][]byte) (o setOptions, err error) {
	var life lifetime
	for i := 3; i < len(args); i++ {
		a := args[i]
		switch {
		case is(a, "NX") && o.exists != store.ExistsMust:
			o.exists = store.ExistsNot
		case is(a, "XX") && o.exists != store.ExistsNot:
			o.exists = store.ExistsMust
		case is(a, "GET"):
			o.get = true
		case is(a, "KEEPTTL") && life.unit == nil:
			o.keep = true
		case !o.keep && life.takes(args[i:]):
			i++
		default:
			return o, errSyntax
		}
	}
	if life.unit != nil {
		o.ends, err = parseEnd(life.unit, life.value, "set")
	}
	return o, err
}

// A lifetime is a unit and a number among the options of a command. The number is
// looked at when everything else is in order, as Redis does.
type lifetime struct{ unit, value []byte }

// takes takes a unit and a number, if options begin with them. Of several in the same
// unit the last one counts.
func (l *lifetime) takes(options [][]byte) bool {
	if len(options) < 2 || !isUnit(options[0]) || l.unit != nil && !bytes.EqualFold(l.unit, options[0]) {
		return false
	}
	l.unit, l.value = options[0], options[1]
	return true
}

// isUnit reports whether an argument announces a time.
func isUnit(a []byte) bool { return is(a, "EX") || is(a, "PX") || is(a, "EXAT") || is(a, "PXAT") }

// An end is when a counter ends: what a delta does to its deadline.
type end struct {
	expiry store.Expiry
	ms     int64
}

// parseEnd returns the end that a unit and a positive number mean: a lifetime,
// which the store's clock measures, or a moment.
func parseEnd(unit, value []byte, command string) (end, error) {
	n, err := integer(value)
	if err != nil {
		return end{}, err
	}
	seconds, absolute := is(unit, "EX") || is(unit, "EXAT"), is(unit, "EXAT") || is(unit, "PXAT")
	if n <= 0 || seconds && n > math.MaxInt64/1000 {
		return end{}, badExpiry(command)
	}
	if seconds {
		n *= 1000
	}
	if absolute {
		return end{store.ExpirySet, n}, nil
	}
	if isEndless(n) {
		return end{}, badExpiry(command)
	}
	return end{store.ExpirySet | store.ExpiryAfter, n}, nil
}

// isEndless reports whether a lifetime ends after the last moment there is, which
// Redis refuses. Any clock will do to judge that.
func isEndless(ms int64) bool { return ms > math.MaxInt64-time.Now().UnixMilli() }

func badExpiry(command string) error {
	return wireError("ERR invalid expire time in '" + command + "' command")
}

func planSetNX(c *cycle, _ *session, args [][]byte) (encode, error) {
	d, err := c.set(args[1], args[2])
	if err != nil {
		return nil, err
	}
	d.Guard.Exists = store.ExistsNot
	return encodeDone, nil
}

func planSetEX(unit, command string) func(*cycle, *session, [][]byte) (encode, error) {
	return func(c *cycle, _ *session, args [][]byte) (encode, error) {
		ends, err := parseEnd([]byte(unit), args[2], command)
		if err != nil {
			return nil, err
		}
		d, err := c.set(args[1], args[3])
		if err != nil {
			return nil, err
		}
		d.Expiry, d.DeadlineMS = ends.expiry, ends.ms
		return encodeOK, nil
	}
}

func planGetSet(c *cycle, _ *session, args [][]byte) (encode, error) {
	_, err := c.set(args[1], args[2])
	return encodeBefore, err
}

func planGetDel(c *cycle, _ *session, args [][]byte) (encode, error) {
	_, err := c.delta(store.OpDelete, args[1])
	return encodeBefore, err
}

func planGetEx(c *cycle, _ *session, args [][]byte) (encode, error) {
	op, ends := store.OpGet, end{}
	var life lifetime
	for i := 2; i < len(args); i++ {
		switch {
		case is(args[i], "PERSIST") && life.unit == nil:
			op, ends = store.OpExpire, end{expiry: store.ExpiryClear}
		case ends.expiry != store.ExpiryClear && life.takes(args[i:]):
			i++
		default:
			return nil, errSyntax
		}
	}
	var wrong error
	if life.unit != nil {
		if ends, wrong = parseEnd(life.unit, life.value, "getex"); wrong == nil {
			op = store.OpExpire
		}
	}
	d, err := c.delta(op, args[1])
	if err != nil {
		return nil, err
	}
	d.Expiry, d.DeadlineMS = ends.expiry, ends.ms
	if wrong == nil {
		return encodeBefore, nil
	}
	return func(e *encoder, results []store.Result) { // Redis minds only if there is something to expire
		if results[0].Existed {
			e.fail(errorText(wrong))
		} else {
			encodeBefore(e, results)
		}
	}, nil
}

func planMGet(c *cycle, _ *session, args [][]byte) (encode, error) {
	for _, key := range args[1:] {
		if err := c.get(key); err != nil {
			return nil, err
		}
	}
	return func(e *encoder, results []store.Result) {
		e.array(len(results))
		for i := range results {
			encodeNth(e, results, i)
		}
	}, nil
}

func planMSet(c *cycle, _ *session, args [][]byte) (encode, error) {
	if len(args)%2 == 0 {
		return nil, wireError("ERR wrong number of arguments for 'mset' command")
	}
	for i := 1; i < len(args); i += 2 {
		if _, err := c.set(args[i], args[i+1]); err != nil {
			return nil, err
		}
	}
	return encodeOK, nil
}

// mset is MSET in a step of its own.
func mset(ctx context.Context, s *session, args [][]byte) error {
	return s.alone(ctx, s.d.commands["MSET"], args)
}

// msetnx sets all counters if none of them exists: at the versions of absence.
func msetnx(ctx context.Context, s *session, args [][]byte) error {
	if len(args)%2 == 0 {
		return wireError("ERR wrong number of arguments for 'msetnx' command")
	}
	c := new(cycle)
	c.reset(s.db)
	var conditions []store.Condition
	for i := 1; i < len(args); i += 2 {
		d, err := c.set(args[i], args[i+1])
		if errors.Is(err, errFull) {
			err = errTooLarge
		}
		if err != nil {
			return err
		}
		conditions = append(conditions, store.Condition{Cell: d.Cell})
	}
	ctx, cancel := s.d.deadline(ctx)
	defer cancel()
	c.apply(ctx, conditions)
	switch {
	case errors.Is(c.err, store.ErrChanged):
		s.flag(false)
	case c.err != nil:
		return c.err
	case !anyRefusal(&s.encoder, c.results):
		s.flag(true)
	}
	return nil
}

func planStrLen(c *cycle, _ *session, args [][]byte) (encode, error) {
	err := c.get(args[1])
	return func(e *encoder, results []store.Result) {
		var room [20]byte
		n := 0
		if e.meetsMore() {
			e.fail(string(errWrongType))
			return
		}
		if e.told != nil && e.told[0] != nil {
			n = len(e.told[0].Text)
		} else if results[0].Existed {
			n = len(strconv.AppendInt(room[:0], results[0].Before, 10))
		}
		if !refusal(e, &results[0]) {
			e.integer(int64(n))
		}
	}, err
}

// planIncrEx plans INCREX: an addition that stays within bounds, and says what
// becomes of the deadline.
func planIncrEx(c *cycle, _ *session, args [][]byte) (encode, error) {
	o, err := parseIncrEx(args)
	if err != nil {
		return nil, err
	}
	d, err := c.delta(store.OpAdd, args[1])
	if err != nil {
		return nil, err
	}
	d.N, d.Guard.Bound, d.Expiry, d.DeadlineMS = o.by, &o.bound, o.ends.expiry, o.ends.ms
	d.Guard.Token = o.token
	return func(e *encoder, results []store.Result) {
		r := &results[0]
		if notCount(e, r) || r.Outcome != store.Bounded && refusal(e, r) {
			return
		}
		if r.Forgotten { // The reply has no place for it.
			e.fail(errorText(r.Outcome.Err()) + call.Forgotten)
			return
		}
		e.array(2)
		e.integer(r.After)
		e.integer(r.After - r.Before)
	}, nil
}

type incrExOptions struct {
	by    int64
	bound store.Bound
	ends  end
	token string
}

func parseIncrEx(args [][]byte) (o incrExOptions, err error) {
	o = incrExOptions{by: 1, bound: store.Bound{Low: math.MinInt64, High: math.MaxInt64}}
	var given [6]bool // BYINT, LBOUND, UBOUND, an expiry, ENX, ID
	once := func(i int) bool { was := given[i]; given[i] = true; return !was }
	for i := 2; i < len(args); i++ {
		a, last := args[i], i+1 == len(args)
		switch {
		case is(a, "BYFLOAT"):
			return o, wireError("ERR INCREX BYFLOAT is not supported: counters are integers")
		case is(a, "BYINT") && !last && once(0):
			i++
			o.by, err = integer(args[i])
		case is(a, "LBOUND") && !last && once(1):
			i++
			o.bound.Low, err = integer(args[i])
		case is(a, "UBOUND") && !last && once(2):
			i++
			o.bound.High, err = integer(args[i])
		case is(a, "SATURATE"):
			o.bound.Saturate = true
		case is(a, "ID") && !last && once(5):
			i++
			o.token = string(args[i])
			err = store.CheckToken(o.token)
		case isUnit(a) && !last && once(3):
			i++
			var ends end
			ends, err = parseEnd(a, args[i], "increx")
			o.ends.expiry, o.ends.ms = o.ends.expiry|ends.expiry, ends.ms
		case is(a, "PERSIST") && once(3):
			o.ends.expiry |= store.ExpiryClear
		case is(a, "ENX") && once(4):
			o.ends.expiry |= store.ExpiryIfNone
		default:
			err = errSyntax
		}
		if err != nil {
			return o, err
		}
	}
	switch {
	case given[4] && o.ends.ms == 0:
		return o, wireError("ERR ENX needs one of EX, PX, EXAT and PXAT")
	case o.bound.Low > o.bound.High:
		return o, wireError("ERR LBOUND is greater than UBOUND")
	}
	return o, nil
}
