package sketch

import (
	"bytes"
	"fmt"
	"slices"
	"unsafe"
)

// The precisions of a sketch of uniques. One of precision p has 2^p registers of a
// byte each. Above PrecisionPlain it is several states: see Chunks.
const (
	PrecisionMin     = 3
	PrecisionMax     = 26
	PrecisionPlain   = 15 // the highest whose registers and head fit into StateBytesMax
	PrecisionDefault = 13 // 8 KiB, and a standard error of 0.84%
)

// A state, and a request, of uniques:
//
//	byte 0    KindUnique
//	byte 1    version, 1
//	byte 2    precision, PrecisionMin to PrecisionPlain
//	byte 3    form, 0 or 1
//	the rest  form 0: the tokens of all items, in rising order
//	          form 1: the registers
//
// A list that would be longer than the registers becomes registers. So two
// sketches of the same items have the same bytes, whatever the order in which they came, and
// however they were merged. A request is the state of a sketch of the items that are
// asked for.
const (
	uniqueVersion = 1
	uniqueHead    = 4
	formList      = 0
	formRegisters = 1
)

// listBytesMax is the length of the longest list of precision p.
func listBytesMax(p int) int { return 1 << p / tokenBytes * tokenBytes }

// A Unique is a sketch of uniques in memory, for those who add many items or merge
// many states. It takes no memory after NewUnique. It is not safe for concurrent
// use, and its zero value is not ready.
type Unique struct {
	b []byte // a state, with room for the longest one of its precision
}

// NewUnique returns an empty sketch with a precision from PrecisionMin to
// PrecisionPlain; another precision panics.
func NewUnique(precision int) *Unique {
	mustBePlain(precision)
	b := make([]byte, 0, uniqueHead+1<<precision)
	return &Unique{appendUniqueHead(b, precision, formList)}
}

// mustBePlain panics unless a state can have the precision: callers choose it, or
// have checked it.
func mustBePlain(precision int) {
	if precision < PrecisionMin || precision > PrecisionPlain {
		panic(fmt.Sprintf("sketch: a state of uniques has no precision of %d", precision))
	}
}

// ParseUnique returns a sketch with a state. The error wraps ErrBad if it is none.
func ParseUnique(state string) (*Unique, error) {
	if err := checkUnique([]byte(state)); err != nil {
		return nil, err
	}
	b := make([]byte, 0, uniqueHead+1<<state[2])
	return &Unique{append(b, state...)}, nil
}

// Precision returns the precision of the sketch. Merging may lower it.
func (u *Unique) Precision() int { return int(u.b[2]) }

// Exact reports whether the sketch still lists its items.
func (u *Unique) Exact() bool { return u.b[3] == formList }

// Append appends the state of the sketch to dst.
func (u *Unique) Append(dst []byte) []byte { return append(dst, u.b...) }

// Reset empties the sketch. Its precision stays.
func (u *Unique) Reset() { u.b = appendUniqueHead(u.b[:0], u.Precision(), formList) }

// Add takes in an item by its Hash, and reports whether that changed the sketch. An
// item that was added before never does.
func (u *Unique) Add(hash uint64) bool {
	if u.b[3] == formList {
		return u.addToken(tokenOf(hash))
	}
	return addRegister(u.b[uniqueHead:], int(u.b[2]), hash)
}

// addRegister takes an item into registers.
func addRegister(registers []byte, p int, hash uint64) bool {
	index, level := locate(hash, p)
	was := registers[index]
	is := raise(was, level)
	registers[index] = is
	return is != was
}

// addToken takes an item into the list, which may become registers by it.
func (u *Unique) addToken(token uint64) bool {
	list := u.b[uniqueHead:]
	at, found := findToken(list, token)
	if found {
		return false
	}
	if len(list) == listBytesMax(u.Precision()) {
		u.unlist()
		addRegister(u.b[uniqueHead:], u.Precision(), hashOf(token))
		return true
	}
	at += uniqueHead
	u.b = append(u.b, zeroToken[:]...)
	copy(u.b[at+tokenBytes:], u.b[at:])
	putToken(u.b[at:], token)
	return true
}

// Any plain sketch fits into these, and its list.
const (
	uniqueBytesMost = uniqueHead + 1<<PrecisionPlain
	listBytesMost   = 1 << PrecisionPlain / tokenBytes * tokenBytes
)

// zeroToken is room for a token.
var zeroToken [tokenBytes]byte

// unlist makes registers of a list, if there is one.
func (u *Unique) unlist() {
	if u.b[3] == formList {
		var kept [listBytesMost]byte
		list := kept[:copy(kept[:], u.b[uniqueHead:])]
		u.b = appendRegisters(u.b[:0], u.Precision())
		addList(u.b[uniqueHead:], u.Precision(), list)
	}
}

// Merge takes in all items of another sketch, which stays as it is. The precision
// becomes the lower one of both.
func (u *Unique) Merge(other *Unique) { u.merge(other.b) }

// MergeState takes in all items of a state. If it returns an error, which wraps
// ErrBad, nothing has changed.
func (u *Unique) MergeState(state string) error {
	if err := checkUnique([]byte(state)); err != nil {
		return err
	}
	u.merge([]byte(state))
	return nil
}

// TrustUnique is ParseUnique for a state that Decide has made, as stores keep them: it looks at the head and the length
// alone.
func TrustUnique(state string) (*Unique, error) {
	if b := unsafe.Slice(unsafe.StringData(state), len(state)); !shapedUnique(b) {
		return nil, bad("%d bytes are no state of uniques", len(state))
	}
	b := make([]byte, 0, uniqueHead+1<<state[2])
	return &Unique{append(b, state...)}, nil
}

// MergeTrusted is MergeState for a state that Decide has made, as stores keep them: it looks at the head and the length
// alone.
func (u *Unique) MergeTrusted(state string) error {
	if b := unsafe.Slice(unsafe.StringData(state), len(state)); shapedUnique(b) { // It is not changed.
		u.merge(b)
		return nil
	}
	return bad("%d bytes are no state of uniques", len(state))
}

// merge takes in the items of a good state.
func (u *Unique) merge(b []byte) {
	switch {
	case u.b[3] == formRegisters && b[2] >= u.b[2]:
		addState(u.b[uniqueHead:], u.Precision(), b)
		return
	case len(u.b) == uniqueHead && b[2] <= u.b[2]: // as every union begins
		u.b = append(u.b[:0], b...)
		return
	}
	var kept [uniqueBytesMost]byte
	u.b = mergeUnique(u.b[:0], kept[:copy(kept[:], u.b)], b)
}

// mergeUnique appends to dst the state of the items of two good states.
func mergeUnique(dst, a, b []byte) []byte {
	p := int(min(a[2], b[2]))
	if a[3] == formList && b[3] == formList {
		from := len(dst)
		dst = appendUniqueHead(dst, p, formList)
		var ok bool
		if dst, ok = mergeLists(dst, a[uniqueHead:], b[uniqueHead:], listBytesMax(p)); ok {
			return dst
		}
		dst = dst[:from]
	}
	if b[3] == formRegisters && int(b[2]) == p {
		a, b = b, a
	}
	if a[3] == formRegisters && int(a[2]) == p {
		from := len(dst)
		dst = append(dst, a...)
		addState(dst[from+uniqueHead:], p, b)
		return dst
	}
	from := len(dst)
	dst = appendRegisters(dst, p)
	addState(dst[from+uniqueHead:], p, a)
	addState(dst[from+uniqueHead:], p, b)
	return dst
}

// addState takes the items of a good state, of precision p or higher, into registers
// of precision p.
func addState(registers []byte, p int, b []byte) {
	switch body := b[uniqueHead:]; {
	case b[3] == formList:
		addList(registers, p, body)
	case int(b[2]) == p:
		joinRegisters(registers, body)
	default:
		joinFiner(registers, body, p, int(b[2]), finer{})
	}
}

// addList takes the items of a list into registers.
func addList(registers []byte, p int, list []byte) {
	for ; len(list) > 0; list = list[tokenBytes:] {
		addRegister(registers, p, hashOf(getToken(list)))
	}
}

// mergeLists appends to dst the tokens that are in a or in b. If they are more than
// limit bytes, ok is false.
func mergeLists(dst, a, b []byte, limit int) (list []byte, ok bool) {
	limit += len(dst)
	for len(a) > 0 && len(b) > 0 && len(dst) < limit {
		x, y := getToken(a), getToken(b)
		if x <= y {
			dst = append(dst, a[:tokenBytes]...)
			a = a[tokenBytes:]
			if x == y {
				b = b[tokenBytes:]
			}
		} else {
			dst = append(dst, b[:tokenBytes]...)
			b = b[tokenBytes:]
		}
	}
	if len(dst)+len(a)+len(b) > limit {
		return dst, false
	}
	return append(append(dst, a...), b...), true
}

// appendUniqueHead appends the head of a state.
func appendUniqueHead(dst []byte, p, form int) []byte {
	return append(dst, byte(KindUnique), uniqueVersion, byte(p), byte(form))
}

// appendRegisters appends a state of empty registers.
func appendRegisters(dst []byte, p int) []byte {
	dst = appendUniqueHead(dst, p, formRegisters)
	from := len(dst)
	dst = slices.Grow(dst, 1<<p)[:from+1<<p]
	clear(dst[from:])
	return dst
}

// AppendUniqueRequest appends to dst the request to take items into a sketch of a
// precision from PrecisionMin to PrecisionPlain, by their hashes; another precision
// panics. It overwrites the hashes, to sort them without further memory. A request
// without items makes a sketch where there is none.
func AppendUniqueRequest(dst []byte, precision int, hashes []uint64) []byte {
	mustBePlain(precision)
	for i, hash := range hashes {
		hashes[i] = tokenOf(hash)
	}
	slices.Sort(hashes)
	tokens := slices.Compact(hashes)
	if len(tokens)*tokenBytes > listBytesMax(precision) {
		from := len(dst)
		dst = appendRegisters(dst, precision)
		for _, token := range tokens {
			addRegister(dst[from+uniqueHead:], precision, hashOf(token))
		}
		return dst
	}
	dst = appendUniqueHead(dst, precision, formList)
	for _, token := range tokens {
		dst = append(dst, zeroToken[:]...)
		putToken(dst[len(dst)-tokenBytes:], token)
	}
	return dst
}

// UniquesToldMost is how many items of a request for uniques are answered each by itself.
const UniquesToldMost = 64

// AppendUniqueRequestAt is AppendUniqueRequest for at most UniquesToldMost items. It leaves the hashes as they are, and
// puts into at the bit of each in the second number of the answer.
func AppendUniqueRequestAt(dst []byte, precision int, hashes []uint64, at []uint8) []byte {
	mustBePlain(precision)
	var room [UniquesToldMost]uint64
	order := room[:len(hashes)]
	for i, hash := range hashes {
		order[i] = tokenOf(hash)<<8 | uint64(i)
	}
	slices.Sort(order)
	dst = appendUniqueHead(dst, precision, formList)
	n := 0
	for i, x := range order {
		if i == 0 || x>>8 != order[i-1]>>8 {
			dst = append(dst, zeroToken[:]...)
			putToken(dst[len(dst)-tokenBytes:], x>>8)
			n++
		}
		at[x&0xff] = uint8(n - 1)
	}
	if n*tokenBytes > listBytesMax(precision) { // No precision that is told apart is as low.
		return AppendUniqueRequest(dst[:len(dst)-n*tokenBytes-uniqueHead], precision, slices.Clone(hashes))
	}
	return dst
}

// freshUniques returns which of the first items that a request lists change a state, one bit for each, if they are taken into
// it in their order.
func freshUniques(state string, asks []byte) (fresh uint64) {
	list := asks[uniqueHead:]
	if asks[3] != formList {
		return 0
	}
	if state == "" {
		n := min(len(list)/tokenBytes, UniquesToldMost)
		return 1<<n - 1
	}
	known, at, is := state[uniqueHead:], ^uint64(0), byte(0)
	for i := 0; i < UniquesToldMost && len(list) > 0; i, list = i+1, list[tokenBytes:] {
		token := getToken(list)
		if state[3] == formList {
			for len(known) > 0 && getToken(known) < token {
				known = known[tokenBytes:]
			}
			if len(known) == 0 || getToken(known) != token {
				fresh |= 1 << i
			}
			continue
		}
		// Items of one register follow each other.
		index, level := locate(hashOf(token), int(state[2]))
		if index != at {
			at, is = index, state[uniqueHead+int(index)]
		}
		if next := raise(is, level); next != is {
			fresh, is = fresh|1<<i, next
		}
	}
	return fresh
}

// decideUnique is Decide for uniques. The first number of the answer is 1 if the sketch
// changed, which is what PFADD replies, and else 0. The second has a bit for each of the first UniquesToldMost items that
// a request lists, in its order: 1 if it has changed the sketch. A lower precision of
// the request lowers that of the state.
func decideUnique(dst []byte, state string, asks []byte) (next []byte, changed bool, answer [2]int64, ok bool) {
	if checkUnique(asks) != nil || state != "" && !shapedUnique([]byte(state)) {
		return dst, false, answer, false
	}
	if state == "" {
		return append(dst, asks...), true, [2]int64{1, int64(freshUniques(state, asks))}, true
	}
	if hasUnique(state, asks) {
		return dst, false, answer, true
	}
	from := len(dst)
	next = mergeUnique(dst, []byte(state), asks)
	if string(next[from:]) == state {
		return dst, false, answer, true
	}
	return next, true, [2]int64{1, int64(freshUniques(state, asks))}, true
}

// hasUnique reports whether it is plain that a state has all items of a request, and
// no higher precision.
//
// Fast path: most visitors have been here before. Nothing is copied for
// them (BenchmarkUniqueDecide).
func hasUnique(state string, asks []byte) bool {
	if state[3] != formRegisters || asks[3] != formList || asks[2] < state[2] {
		return false
	}
	for list := asks[uniqueHead:]; len(list) > 0; list = list[tokenBytes:] {
		index, level := locate(hashOf(getToken(list)), int(state[2]))
		if was := state[uniqueHead+index]; raise(was, level) != was {
			return false
		}
	}
	return true
}

// combineUnique is Combine for uniques. Any two requests combine.
func combineUnique(dst, a, b []byte) (both []byte, ok bool) {
	if checkUnique(a) != nil || checkUnique(b) != nil {
		return dst, false
	}
	return mergeUnique(dst, a, b), true
}

// shapedUnique reports whether b has a head and a length with which it can be read
// as a state. What follows the head may be anything.
func shapedUnique(b []byte) bool {
	if len(b) < uniqueHead || Kind(b[0]) != KindUnique || b[1] != uniqueVersion ||
		b[2] < PrecisionMin || b[2] > PrecisionPlain {
		return false
	}
	size := len(b) - uniqueHead
	switch b[3] {
	case formList:
		return size%tokenBytes == 0 && size <= listBytesMax(int(b[2]))
	case formRegisters:
		return size == 1<<b[2]
	default:
		return false
	}
}

// checkUnique is Check for uniques, and for their requests.
func checkUnique(b []byte) error {
	if !shapedUnique(b) {
		// A copy: nothing that is checked is moved to the heap for the error's sake.
		return bad("%d bytes of uniques that begin with %x", len(b), string(b[:min(len(b), uniqueHead)]))
	}
	body := b[uniqueHead:]
	if b[3] == formRegisters {
		if at := badRegister(body, int(b[2])); at >= 0 {
			return bad("register %d of uniques is %d", at, body[at])
		}
		if len(bytes.Trim(body, "\x00")) == 0 {
			return bad("registers of uniques without items")
		}
		return nil
	}
	last := int64(-1)
	for at := 0; at < len(body); at += tokenBytes {
		token := getToken(body[at:])
		if !goodToken(token) || int64(token) <= last {
			return bad("token %d of uniques is %x", at/tokenBytes, token)
		}
		last = int64(token)
	}
	return nil
}
