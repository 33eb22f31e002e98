// Package keyspace is what Redis's commands on strings, sketches, small hashes and sorted sets, and keys do to a
// snapshot of keys, of which each is absent, a count, text, a sketch, or a collection. A Space asks for the keys that its commands
// name, keeps what they change over them, and says in the end what it has read and what is
// to be written. So the commands of a transaction, or of a script, are one batch on
// condition that what they have read is still so.
//
// It is pure: time is given, and what it does depends on nothing else. Replies and errors
// are Redis's own.
package keyspace

import (
	"cmp"
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// TextMax is how many bytes of text a key may hold: what a part may, less the byte that says
// what it is.
const TextMax = 64<<10 - 1

// A Value is what a key holds. The zero Value is that of an absent key. Text that is
// an integer is a count: its digits say all there is.
type Value struct {
	Exists     bool
	IsText     bool
	N          int64
	Text       string // if it is text
	Held       string // if it is a sketch or a collection: the bytes that its key holds
	DeadlineMS int64  // Unix milliseconds; 0 is never
}

// String returns what GET would.
func (v Value) String() string {
	if v.IsText {
		return v.Text
	}
	if !v.Exists {
		return ""
	}
	return strconv.FormatInt(v.N, 10)
}

// textValue returns the value that holds some text: a count if it is an integer.
func textValue(text string) Value {
	if n, ok := Integer(text); ok {
		return Value{Exists: true, N: n}
	}
	return Value{Exists: true, IsText: true, Text: text}
}

// Integer returns the number that text is, if it is written as Redis writes it: without a
// plus, leading zeros or spaces.
func Integer[T string | []byte](text T) (int64, bool) {
	if len(text) == 0 || len(text) > len("-9223372036854775808") {
		return 0, false
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	var room [20]byte
	return n, err == nil && string(strconv.AppendInt(room[:0], n, 10)) == string(text)
}

// A Space is a snapshot of keys, and what commands have made of it. It is not safe for
// concurrent use.
type Space struct {
	now  int64
	load func(key string) (Value, error)
	keys map[string]*entry
	// The keys in the order in which they were first named, so that the same commands make
	// the same batch.
	order []string
	fault error  // why a key could not be loaded
	named uint64 // how many sketches in pieces were made

	// Pieces returns the pieces of a key's sketch that have a name, by their indexes; one that does not
	// exist is empty. It is called for sketches in pieces alone.
	Pieces func(key, name string, indexes []int) ([]string, error)

	// Receivers returns how many listen to a channel, or why nobody publishes to it; nil if nobody listens to any.
	Receivers func(channel string) (int64, error)

	published      []Message
	publishedBytes int

	// Single says that one call is all that the Space is for: what its changes do not need is let go.
	Single bool

	// Seed makes the names of pieces others than all before.
	Seed uint64
}

// An entry is a key that was named.
type entry struct {
	key     string
	was, is Value
	lives   int64 // how long it is to live from now, in milliseconds, if its deadline came so; else 0
	sum     int64 // of what was added, as long as it is nothing else
	added   bool
	put     bool // it was assigned, deleted, or its deadline changed
	anew    bool // it was assigned or deleted
	aged    bool // its deadline was changed

	asks   []byte // what is taken into the sketch that it was, as long as it is nothing else
	pieces map[int]*piece
	fresh  bool // its sketch has no pieces that were there before
}

// New returns a Space at a time, in Unix milliseconds. Load is called once for each key
// that a command names. After it has returned an error, the Space is of no use: see Err.
func New(nowMS int64, load func(key string) (Value, error)) *Space {
	return &Space{now: nowMS, load: load, keys: make(map[string]*entry)}
}

// NowMS returns the time of the Space, in Unix milliseconds.
func (s *Space) NowMS() int64 { return s.now }

// Known reports whether a key was named before.
func (s *Space) Known(key []byte) bool { return s.keys[string(key)] != nil }

// Save remembers what all keys are by now. To go back to that, call what it returns; keys that were
// read meanwhile stay read.
func (s *Space) Save() (back func()) {
	saved := make(map[string]entry, len(s.keys))
	for key, e := range s.keys {
		saved[key] = e.copy()
	}
	published, bytes := len(s.published), s.publishedBytes
	return func() {
		s.published, s.publishedBytes = s.published[:published], bytes
		for key, e := range s.keys {
			if was, known := saved[key]; known {
				*e = was
			} else {
				*e = entry{key: key, was: e.was, is: e.was}
			}
		}
	}
}

// copy returns a key as it is by now, whatever becomes of it.
func (e *entry) copy() entry {
	c := *e
	c.asks = slices.Clone(e.asks)
	if c.pieces = maps.Clone(e.pieces); c.pieces != nil {
		for i, p := range c.pieces {
			copied := *p
			copied.asks = slices.Clone(p.asks)
			c.pieces[i] = &copied
		}
	}
	return c
}

// Err returns why a key could not be loaded.
func (s *Space) Err() error { return s.fault }

// Keys returns the keys that were read, in the order in which they were named: what is
// written is right only if all of them are still as they were.
func (s *Space) Keys() []string { return s.order }

func (s *Space) at(key []byte) *entry {
	if e := s.keys[string(key)]; e != nil {
		return e
	}
	e := &entry{key: string(key)}
	if s.fault == nil {
		e.was, s.fault = s.load(string(key))
	}
	if e.was.DeadlineMS != 0 && e.was.DeadlineMS <= s.now {
		e.was = Value{}
	}
	e.is = e.was
	s.keys[string(key)] = e
	s.order = append(s.order, string(key))
	return e
}

// assign makes a key a value, with its deadline.
func (e *entry) assign(v Value, lives int64) {
	e.is, e.lives, e.put, e.anew, e.added, e.sum = v, lives, true, true, false, 0
	e.aged, e.asks, e.pieces, e.fresh = false, nil, nil, false
}

// edit is assign for a value that keeps the deadline.
func (e *entry) edit(v Value) {
	v.DeadlineMS = e.is.DeadlineMS
	e.assign(v, e.lives)
}

// age gives a key another deadline, 0 for none.
func (e *entry) age(ms, lives int64) {
	e.is.DeadlineMS, e.lives, e.put, e.aged = ms, lives, true, true
}

// Op is what is to be done to a key.
type Op uint8

// A Change may do one of these.
const (
	OpDelete Op = iota + 1
	OpAdd       // add N to a count, or to an absent key
	OpSet       // make it a count
	OpPut       // make it text
	OpExpire    // change nothing but the deadline
	OpHold      // make it a sketch or a collection, and change its pieces
	OpMerge     // take what is asked into the sketch that it is, or is to be
)

// A Change is what has become of a key. Several of one key are in their order.
type Change struct {
	Key  string
	Op   Op
	N    int64
	Text string

	Before int64 // what the count was, of OpAdd

	Held   string
	Pieces []Piece
	Asks   []byte

	// Ages says that the deadline is changed too: by OpSet and OpPut it always is. It is
	// then LivesMS from the time of writing, if that is not 0, else DeadlineMS, and none if that is 0.
	Ages       bool
	DeadlineMS int64
	LivesMS    int64

	WasObject bool // the key held text, a sketch or a collection before
}

// Changes returns what is to be written, by the order in which keys were named; but what frees a
// key comes before what needs one.
func (s *Space) Changes() (all []Change) {
	for _, key := range s.order {
		e := s.keys[key]
		c := Change{Key: key, DeadlineMS: e.is.DeadlineMS, LivesMS: e.lives, WasObject: e.was.IsText || e.was.Held != ""}
		pieces := e.changes()
		switch {
		case !e.put && !e.added && e.asks == nil && len(pieces) == 0:
			continue
		case !e.is.Exists:
			if !e.was.Exists {
				continue
			}
			c.Op, c.DeadlineMS, c.LivesMS = OpDelete, 0, 0
		case e.anew && e.is.IsText:
			c.Op, c.Text, c.Ages = OpPut, e.is.Text, true
		case e.anew && e.is.Held != "":
			c.Op, c.Held, c.Pieces, c.Ages = OpHold, e.is.Held, pieces, true
		case len(pieces) > 0:
			c.Op, c.Held, c.Pieces, c.Ages = OpHold, e.is.Held, pieces, e.aged
		case e.asks != nil:
			c.Op, c.Asks, c.Ages = OpMerge, e.asks, e.aged
		case e.anew:
			c.Op, c.N, c.Ages = OpSet, e.is.N, true
		case e.added:
			c.Op, c.N, c.Before, c.Ages = OpAdd, e.sum, e.was.N, e.aged
		default:
			c.Op, c.Ages = OpExpire, true
		}
		all = append(all, c)
	}
	slices.SortStableFunc(all, func(a, b Change) int { return cmp.Compare(b2i(a.Op != OpDelete), b2i(b.Op != OpDelete)) })
	return all
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Is returns what a key is by now.
func (s *Space) Is(key string) Value { return s.at([]byte(key)).is }

// Put makes a key what another one is, unless that is absent, or the key is there and is not to be
// replaced. It reports whether it did.
func (s *Space) Put(key string, v Value, replace bool) (bool, error) {
	if v.DeadlineMS != 0 && v.DeadlineMS <= s.now {
		v = Value{}
	}
	to := s.at([]byte(key))
	switch {
	case !v.Exists, to.is.Exists && !replace:
		return false, nil
	case (&entry{is: v}).inPieces():
		return false, errors.New(strings.TrimPrefix(errPieces, "ERR "))
	}
	to.assign(v, 0)
	return true, nil
}

// Kind is what kind of thing a reply is.
type Kind uint8

// The kinds of replies.
const (
	Null Kind = iota
	Status
	Error // Text begins with its code, such as ERR
	Number
	Bulk
	Array
	Bool   // N is 1 or 0
	Double // F; of scripts also Text, as it is to be written
	Map    // All are names and values in turn
	Pairs  // All are members and scores in turn, which to RESP2 are an array, and to RESP3 an array of pairs

	// Those that only scripts reply.
	BigNumber // Text
	Verbatim  // Text begins with its format, of three letters, and a colon
	Set       // All
)

// A Reply is what a command answers.
type Reply struct {
	Kind Kind
	N    int64
	F    float64
	Text string
	All  []Reply
}

func ok() Reply                { return Reply{Kind: Status, Text: "OK"} }
func number(n int64) Reply     { return Reply{Kind: Number, N: n} }
func bulk(text string) Reply   { return Reply{Kind: Bulk, Text: text} }
func failed(text string) Reply { return Reply{Kind: Error, Text: text} }
func truth(is bool) Reply      { return Reply{Kind: Bool, N: int64(b2i(is))} }

// The errors, in Redis's words.
const (
	errInteger   = "ERR value is not an integer or out of range"
	errOverflow  = "ERR increment or decrement would overflow"
	errFloat     = "ERR value is not a valid float"
	errNaN       = "ERR increment would produce NaN or Infinity"
	errSyntax    = "ERR syntax error"
	errOffset    = "ERR offset is out of range"
	errNoKey     = "ERR no such key"
	errWrongType = "WRONGTYPE Operation against a key holding the wrong kind of value"
	errTooLong   = "ERR string exceeds maximum allowed size (proto-max-bulk-len)"
)

// value is what GET replies.
func (e *entry) value() Reply {
	if !e.is.Exists {
		return Reply{}
	}
	return bulk(e.is.String())
}

// plus adds to a count.
func (e *entry) plus(by int64) Reply {
	switch {
	case e.is.Type() != "string":
		return failed(errWrongType)
	case e.is.IsText, e.is.Held != "": // To Redis a HyperLogLog is text.
		return failed(errInteger)
	}
	n := e.is.N + by
	if (n > e.is.N) != (by > 0) && by != 0 {
		return failed(errOverflow)
	}
	if e.anew { // what it was is no matter
		e.edit(Value{Exists: true, N: n})
		return number(n)
	}
	sum := e.sum + by
	if (sum > e.sum) != (by > 0) && by != 0 {
		e.edit(Value{Exists: true, N: n})
		return number(n)
	}
	e.is.Exists, e.is.N, e.sum, e.added = true, n, sum, true
	return number(n)
}

// deadline returns when what lives so long from now ends; a moment beyond the last is the last.
func (s *Space) deadline(lives int64) int64 { return s.now + min(lives, math.MaxInt64-s.now) }
