package store

import (
	"math"
	"time"
	"unicode"
	"unicode/utf8"
)

// The limits of what one call may carry. They are the same for every store.
const (
	KeyBytesMax       = 512
	NamespaceBytesMax = 64
	TokenBytesMax     = 255
	BatchDeltasMax    = 10_000
	BatchBytesMax     = 4 << 20 // of namespaces, keys, tokens, and what parts are called and hold
	ScanMax           = 10_000
	ReadCellsMax      = 10_000
	PartNameBytesMax  = 255
	PartBytesMax      = 64 << 10 // that a part holds
	EventRidersMax    = 64

	// ownKeyBytesMax is of keys in the store's own namespace, which may hold an
	// address.
	ownKeyBytesMax = KeyBytesMax + NamespaceBytesMax + 16
)

// Limits bound what a store keeps. The zero value of a field means its
// default.
type Limits struct {
	KeysMax       int64         // keys in one namespace; default 1 billion
	TokensMax     int64         // tokens remembered in one namespace; default 10 million
	TokenWindow   time.Duration // how long a repeat returns the first result; default 24 h
	NamespacesMax int           // namespaces with a key or a token; default 10,000
	WritersMax    int           // marks in one partition; default 10,000

	// Those of a namespace that servers keep, by what they have counted: about.
	UsersMax int64 // that have a choice of some counter, once for each; default 1 billion
	HoldsMax int64 // reservations open; default 10 million
}

// WithDefaults returns l with each zero field at its default.
func (l Limits) WithDefaults() Limits {
	if l.KeysMax == 0 {
		l.KeysMax = 1_000_000_000
	}
	if l.TokensMax == 0 {
		l.TokensMax = 10_000_000
	}
	if l.TokenWindow == 0 {
		l.TokenWindow = 24 * time.Hour
	}
	if l.NamespacesMax == 0 {
		l.NamespacesMax = 10_000
	}
	if l.WritersMax == 0 {
		l.WritersMax = 10_000
	}
	if l.UsersMax == 0 {
		l.UsersMax = 1_000_000_000
	}
	if l.HoldsMax == 0 {
		l.HoldsMax = 10_000_000
	}
	return l
}

// RefusalsMax returns the number of tokens of a namespace that may remember a
// refusal. It is a tenth of all, so that refused callers leave room for others.
func (l Limits) RefusalsMax() int64 { return (l.TokensMax + 9) / 10 }

// Share returns the limits of one of a store's partitions, for stores whose
// partitions know nothing of each other. A single partition has all. One of
// several has its share of the keys and tokens of a namespace plus four
// standard deviations, because keys are not spread evenly. So a namespace
// surely has room for about its limit, and never exceeds the sum of the shares.
// The limits on namespaces and writers already are those of one partition.
func (l Limits) Share(partitions int) Limits {
	if partitions <= 1 {
		return l
	}
	share := func(all int64) int64 {
		part := float64(all) / float64(partitions)
		return min(all, int64(math.Ceil(part+4*math.Sqrt(part)+1)))
	}
	l.KeysMax, l.TokensMax = share(l.KeysMax), share(l.TokensMax)
	return l
}

// CheckWindow returns an error if a shared store has a token window other than
// the one asked for, if any. Otherwise a token that is new to one server could
// be old to another, and its write could count twice.
func CheckWindow(has, asked time.Duration) error {
	if asked == 0 || has == asked.Truncate(time.Millisecond) {
		return nil
	}
	return Errorf(KindInvalid, "the store was created with a token window of %s, not %s: all servers that share it must use the same --token-window", has, asked)
}

// CheckNamespace returns an error if namespace is not a valid name.
func CheckNamespace(namespace string) error {
	switch {
	case namespace == "":
		return Errorf(KindInvalid, "namespace is empty")
	case len(namespace) > NamespaceBytesMax:
		return Errorf(KindTooLarge, "namespace of %d bytes: at most %d", len(namespace), NamespaceBytesMax)
	case !utf8.ValidString(namespace):
		return Errorf(KindInvalid, "namespace is not UTF-8")
	}
	for _, r := range namespace {
		if r == '/' || unicode.IsControl(r) {
			return Errorf(KindInvalid, "namespace %q: / and control characters are not allowed", namespace)
		}
	}
	return nil
}

// CheckCell returns an error if c is not the address of a counter.
func CheckCell(c Cell) error {
	if len(c.Namespace) > NamespaceBytesMax {
		return Errorf(KindTooLarge, "namespace of %d bytes: at most %d", len(c.Namespace), NamespaceBytesMax)
	}
	if !validUTF8(c.Namespace) {
		return Errorf(KindInvalid, "namespace is not UTF-8")
	}
	if c.Namespace == "" {
		return checkKey(c.Key, ownKeyBytesMax)
	}
	return checkKey(c.Key, KeyBytesMax)
}

// CheckKey returns an error if key is not the key of a counter.
func CheckKey(key string) error { return checkKey(key, KeyBytesMax) }

func checkKey(key string, bytesMax int) error {
	switch {
	case key == "":
		return Errorf(KindInvalid, "key is empty")
	case len(key) > bytesMax:
		return Errorf(KindTooLarge, "key of %d bytes: at most %d", len(key), bytesMax)
	case !validUTF8(key):
		return Errorf(KindInvalid, "key is not UTF-8")
	}
	return nil
}

// CheckToken returns an error if token is not valid.
func CheckToken(token string) error {
	switch {
	case token == "":
		return Errorf(KindInvalid, "token is empty")
	case len(token) > TokenBytesMax:
		return Errorf(KindTooLarge, "token of %d bytes: at most %d", len(token), TokenBytesMax)
	case !validUTF8(token):
		return Errorf(KindInvalid, "token is not UTF-8")
	}
	return nil
}

// CheckRead returns an error if no store can read cells into values.
func CheckRead(cells []Cell, values []Value) error {
	if len(cells) != len(values) {
		return Errorf(KindInvalid, "read %d cells into %d values", len(cells), len(values))
	}
	if len(cells) > ReadCellsMax {
		return Errorf(KindTooLarge, "read of %d cells: at most %d", len(cells), ReadCellsMax)
	}
	for _, c := range cells {
		if err := CheckCell(c); err != nil {
			return err
		}
	}
	return nil
}

// CheckBatch returns an error if no store with this many partitions can apply
// b.
func CheckBatch(b *Batch, partitions int) error {
	if b.Partition < 0 || b.Partition >= partitions {
		return Errorf(KindInvalid, "partition %d: the store has %d", b.Partition, partitions)
	}
	if b.Writer != 0 && b.Seq <= b.Prev {
		return Errorf(KindInvalid, "sequence %d does not follow %d", b.Seq, b.Prev)
	}
	if b.Durability > Synced {
		return Errorf(KindInvalid, "unknown durability %d", b.Durability)
	}
	if len(b.Deltas) > BatchDeltasMax {
		return Errorf(KindTooLarge, "batch of %d deltas: at most %d", len(b.Deltas), BatchDeltasMax)
	}
	if len(b.If) > BatchDeltasMax {
		return Errorf(KindTooLarge, "batch of %d conditions: at most %d", len(b.If), BatchDeltasMax)
	}
	if len(b.Books) > 0 {
		if err := checkBooks(b.Books); err != nil {
			return err
		}
	}
	if len(b.Floors) > 0 {
		if err := checkFloors(b); err != nil {
			return err
		}
	}
	bytes, riders := 0, 0
	for i := range b.If {
		if err := CheckCell(b.If[i].Cell); err != nil {
			return err
		}
		bytes += len(b.If[i].Cell.Namespace) + len(b.If[i].Cell.Key)
	}
	for i := range b.Deltas {
		d := &b.Deltas[i]
		if d.Event != nil {
			size, err := checkEvent(d)
			if err != nil {
				return err
			}
			bytes, riders = bytes+size, riders+d.Event.Len()
		} else if err := checkDelta(d); err != nil {
			return err
		}
		if d.Op == OpRetire && b.Writer != 0 && d.N >= int64(b.Writer) {
			return Errorf(KindInvalid, "writer %d retires itself", b.Writer)
		}
		bytes += len(d.Cell.Namespace) + len(d.Cell.Key) + len(d.Guard.Token)
	}
	if n := len(b.Deltas) + riders; n > BatchDeltasMax {
		return Errorf(KindTooLarge, "batch of %d deltas and riders: at most %d", n, BatchDeltasMax)
	}
	if bytes > BatchBytesMax {
		return Errorf(KindTooLarge, "batch of %d bytes: at most %d", bytes, BatchBytesMax)
	}
	return nil
}

func checkDelta(d *Delta) error {
	switch d.Op {
	case OpAdd, OpSet, OpDelete, OpExpire:
	case OpLayout:
		if !d.Guard.Laid || d.N < 0 || ofObject(d.N) || d.Guard.Token != "" {
			return Errorf(KindInvalid, "layout %d: want 0 or more, the layout that it replaces, and no token", d.N)
		}
	case OpGet:
		if d.Guard.Token != "" {
			return Errorf(KindInvalid, "get with a token: it changes nothing")
		}
	case OpSettle:
		if d.Guard.Token == "" {
			return Errorf(KindInvalid, "settle without a token")
		}
	case OpRetire:
		if d.N <= 0 {
			return Errorf(KindInvalid, "retire of writer %d", d.N)
		}
		return nil
	default:
		return Errorf(KindInvalid, "unknown operation %d", d.Op)
	}
	if d.Guard.Token != "" {
		if err := CheckToken(d.Guard.Token); err != nil {
			return err
		}
	}
	if d.Guard.Laid && (d.Guard.Layout < 0 || ofObject(d.Guard.Layout) || d.Expiry != ExpiryKeep) {
		return Errorf(KindInvalid, "layout %d with expiry %d", d.Guard.Layout, d.Expiry)
	}
	if d.Expiry != ExpiryKeep || d.DeadlineMS != 0 || d.Guard.Bound != nil || d.Guard.Exists != ExistsAny || d.Op == OpExpire {
		if err := checkConditions(d); err != nil {
			return err
		}
	}
	return CheckCell(d.Cell)
}

// checkConditions checks what only some deltas have.
func checkConditions(d *Delta) error {
	const withSet = ExpiryIfNone | ExpiryIfSome | ExpiryIfLater | ExpiryIfSooner | ExpiryAfter
	do := d.Expiry &^ withSet
	switch {
	case do > ExpirySet, do != ExpirySet && d.Expiry != do:
		return Errorf(KindInvalid, "unknown expiry %d", d.Expiry)
	case (do == ExpirySet) != (d.DeadlineMS != 0), d.DeadlineMS < 0:
		return Errorf(KindInvalid, "expiry %d with deadline %d", d.Expiry, d.DeadlineMS)
	case do != ExpiryKeep && d.Op != OpAdd && d.Op != OpSet && d.Op != OpExpire && !d.IsObject(), do == ExpiryKeep && d.Op == OpExpire:
		return Errorf(KindInvalid, "operation %d with expiry %d", d.Op, d.Expiry)
	case d.Guard.Exists > ExistsNot:
		return Errorf(KindInvalid, "unknown condition on existence %d", d.Guard.Exists)
	case d.Guard.Bound != nil:
		return checkBound(d)
	}
	return nil
}

// checkBound checks a delta that has a bound.
func checkBound(d *Delta) error {
	b := d.Guard.Bound
	switch {
	case d.Op == OpAdd:
		if b.Saturate && !b.Inward && b.Low > b.High {
			return Errorf(KindInvalid, "bound from %d to %d is empty: it has no limit to take", b.Low, b.High)
		}
	case d.Op != OpSet && d.Op != OpLayout, b.Saturate:
		return Errorf(KindInvalid, "operation %d with a bound", d.Op)
	}
	return nil
}

// validUTF8 is utf8.ValidString, faster on the short ASCII strings that keys
// mostly are: it looks at eight bytes at a time, the last eight perhaps twice.
func validUTF8(s string) bool {
	const high = 0x8080808080808080
	seen := uint64(0)
	if len(s) < 8 {
		for i := range len(s) {
			seen |= uint64(s[i])
		}
	} else {
		seen = word(s[len(s)-8:])
		for i := 0; i+8 <= len(s); i += 8 {
			seen |= word(s[i:])
		}
	}
	return seen&high == 0 || utf8.ValidString(s)
}

// word returns the first eight bytes of s; the compiler makes it one load.
func word(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}
