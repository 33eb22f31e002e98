package redisstore

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/store"
)

// The server's contents are described in docs/formats/redis.md. This file and
// the scripts alone know it.

const (
	slots         = 16384 // of a Redis Cluster
	partitionsMax = 4096
	layoutVersion = 2
)

// A partition is the names of the keys of one partition. They share a hash tag, so
// that they are in one slot.
type partition struct {
	number                   int
	slot                     uint16
	prefix                   string // of the keys
	head, marks, names, dues string
	drawers, tally           string
	meta                     string // head was here in layout 1
}

// partitions returns those of a store of n.
func partitions(prefix string, n int) []partition {
	ps := make([]partition, n)
	for i, tag := range tags(n) {
		p := prefix + ":{" + tag + "}:"
		ps[i] = partition{
			number: i, slot: slot(tag), prefix: p, drawers: p + "drawers", tally: p + "tally",
			head: p + "head", meta: p + "meta", marks: p + "marks", names: p + "names", dues: p + "due",
		}
	}
	return ps
}

// tags returns the hash tags of n partitions. Slots come in n equal rows, as they
// mostly do on masters, and each partition has the first number in its row: so
// they are spread as evenly as the slots.
func tags(n int) []string {
	ts := make([]string, n)
	for number, found := 0, 0; found < n; number++ {
		tag := strconv.Itoa(number)
		if row := int(slot(tag)) * n / slots; ts[row] == "" {
			ts[row] = tag
			found++
		}
	}
	return ts
}

// slot returns the slot of a hash tag: CRC-16/XMODEM.
func slot(tag string) uint16 {
	var crc uint16
	for i := range len(tag) {
		crc ^= uint16(tag[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc % slots
}

func (p *partition) values(namespace string) string { return p.prefix + "v:" + namespace }
func (p *partition) stamps(namespace string) string { return p.prefix + "s:" + namespace }
func (p *partition) index(namespace string) string  { return p.prefix + "i:" + namespace }
func (p *partition) tokens(namespace string) string { return p.prefix + "t:" + namespace }
func (p *partition) queue(namespace string) string  { return p.prefix + "q:" + namespace }

// appendSpace appends all keys of a namespace.
func (p *partition) appendSpace(keys []string, namespace string) []string {
	return append(keys, p.values(namespace), p.stamps(namespace), p.index(namespace), p.tokens(namespace), p.queue(namespace))
}

// objectText is the value of a cell that is an object. It is no number, and it is longer than
// one that scripts add to without a look: so those of older servers fail, before they write.
const objectText = "this key holds bytes"

// valueText is the value of a cell as it is stored.
func valueText(v store.Value) string {
	if v.Layout == store.LayoutObject {
		return objectText
	}
	return strconv.FormatInt(v.N, 10)
}

// A stamp is the version of a cell, and its deadline or its layout if it has one; of an
// object an o, with its deadline. It changes with every change of the cell.
func stamp(v store.Value) string {
	s := strconv.FormatUint(v.Version, 10)
	switch {
	case v.Layout == store.LayoutObject && v.DeadlineMS != 0:
		s += " o" + strconv.FormatInt(v.DeadlineMS, 10)
	case v.Layout == store.LayoutObject:
		s += " o"
	case v.DeadlineMS != 0:
		s += " " + strconv.FormatInt(v.DeadlineMS, 10)
	case v.Layout != 0:
		s += " " + word(v.Layout)
	}
	return s
}

// word is a layout as stamps have it; "" is none. It is no number, so that whoever
// takes it for a deadline finds an error, and not a cell that has expired.
func word(layout int64) string {
	if layout == 0 {
		return ""
	}
	return "l" + strconv.FormatInt(layout, 10)
}

// cellValue returns what a stamp and a value say; without a stamp there is no
// cell.
func cellValue(stamp, value string) (store.Value, error) {
	if stamp == "" {
		return store.Value{}, nil
	}
	version, extra, more := strings.Cut(stamp, " ")
	d := decoder{}
	v := store.Value{Exists: true, Version: d.uint(version)}
	if deadline, object := strings.CutPrefix(extra, "o"); object {
		if v.Layout = store.LayoutObject; deadline != "" {
			v.DeadlineMS = d.int(deadline)
		}
		if value != objectText {
			return v, store.Errorf(store.KindCorrupt, "value %q of an object", value)
		}
		return v, d.err
	}
	v.N = d.int(value)
	if layout, laid := strings.CutPrefix(extra, "l"); laid {
		v.Layout = d.int(layout)
	} else if more {
		v.DeadlineMS = d.int(extra)
	}
	return v, d.err
}

// score is where a deadline is in the order of deadlines: a float64, so the
// very far ones are at one place.
func score(deadlineMS int64) string {
	return strconv.FormatInt(min(deadlineMS, 1<<53), 10)
}

// dueCell returns the cell that a member of the set of deadlines names.
func dueCell(member string) (store.Cell, error) {
	length, rest, ok := strings.Cut(member, ":")
	n, err := strconv.Atoi(length)
	if !ok || err != nil || n < 0 || n > len(rest) {
		return store.Cell{}, store.Errorf(store.KindCorrupt, "deadline of %q", member)
	}
	return store.Cell{Namespace: rest[:n], Key: rest[n:]}, nil
}

// tokenField is the name of a token among those of a namespace.
func tokenField(key, token string) string {
	return strconv.Itoa(len(key)) + ":" + key + token
}

// tokenRest is what is stored of a token behind the time, for the script that
// knows the version and the value that was met: the rest is relative to it.
func tokenRest(t decide.Token, before, after int64) string {
	return fmt.Sprintf("%s %d %d", tokenWrite(t), before, after)
}

// tokenWrite is what is stored of the write that has a token.
func tokenWrite(t decide.Token) string {
	return fmt.Sprintf("%d %d %s %d", t.Op, t.N, flag(t.Want), t.Digest)
}

// tokenText is what is stored of a token behind the time.
func tokenText(t decide.Token) string {
	if t.Settled {
		return "s"
	}
	if r := &t.Result; t.Refused() {
		return fmt.Sprintf("r %d %d %d %s", r.Outcome, r.Refused, r.Before, tokenWrite(t))
	}
	return fmt.Sprintf("a %d %d %s", t.Result.Version, t.Result.Before, tokenRest(t, 0, t.Result.After-t.Result.Before))
}

// parseToken returns what a stored token says.
func parseToken(s string) (decide.Token, error) {
	f := strings.Split(s, " ")
	d := decoder{}
	t := decide.Token{AtMS: d.int(f[0])}
	switch {
	case len(f) == 2 && f[1] == "s":
		t.Settled = true
	case len(f) == 10 && f[1] == "a":
		t.Op, t.N, t.Want, t.Digest = store.Op(d.uint(f[4])), d.int(f[5]), f[6] == "1", d.uint(f[7])
		t.Result = store.Result{Outcome: store.Applied, Version: d.uint(f[2])}
		if met := d.int(f[3]); t.Want {
			t.Result.Before, t.Result.After = met+d.int(f[8]), met+d.int(f[9])
		}
	case len(f) == 9 && f[1] == "r":
		t.Op, t.N, t.Want, t.Digest = store.Op(d.uint(f[5])), d.int(f[6]), f[7] == "1", d.uint(f[8])
		t.Result = store.Result{Outcome: store.Outcome(d.uint(f[2])), Refused: uint8(d.uint(f[3]))}
		if met := d.int(f[4]); t.Want {
			t.Result.Before, t.Result.After = met, met
		}
	default:
		return t, store.Errorf(store.KindCorrupt, "token %q", s)
	}
	return t, d.err
}

// markText is what is stored of a decided batch.
func markText(m *decide.Mark) string {
	b := fmt.Appendf(nil, "%d %d r", m.Seq, m.Digest)
	for i := range m.Results {
		r := &m.Results[i]
		flags := uint64(r.Outcome)<<2 | uint64(r.Refused)<<7
		if r.Replayed {
			flags |= 1
		}
		if r.Existed {
			flags |= 2
		}
		if r.Forgotten {
			flags |= 64
		}
		b = binary.AppendUvarint(b, flags)
		b = binary.AppendVarint(b, r.Before)
		b = binary.AppendVarint(b, r.After)
		b = binary.AppendUvarint(b, r.Version)
		b = binary.AppendVarint(b, r.DeadlineMS)
	}
	return string(b)
}

// asBegun returns a batch as add.lua has taken it. It took no bound, and one that
// is inward may have come since: see store.Batch.Digest.
func asBegun(b *store.Batch) *store.Batch {
	bound := func(d store.Delta) bool { return d.Guard.Bound != nil && d.Guard.Bound.Inward }
	if !slices.ContainsFunc(b.Deltas, bound) {
		return b
	}
	was := *b
	was.Deltas = slices.Clone(b.Deltas)
	for i := range was.Deltas {
		if bound(was.Deltas[i]) {
			was.Deltas[i].Guard.Bound = nil
		}
	}
	return &was
}

// parseMark returns the mark that is stored; its results only if b is the batch
// that it is about. "" is the mark of a writer that is not known.
func parseMark(s string, b *store.Batch, digest uint64) (m decide.Mark, err error) {
	if s == "" {
		return m, nil
	}
	f := strings.SplitN(s, " ", 3)
	if len(f) != 3 || f[2] == "" {
		return m, store.Errorf(store.KindCorrupt, "mark %q", s)
	}
	d := decoder{}
	m.Seq, m.Digest = d.uint(f[0]), d.uint(f[1])
	if d.err != nil || m.Seq != b.Seq || m.Digest != digest {
		return m, d.err
	}
	if f[2][0] == 'f' { // the reply of add.lua to the same adds
		adds, ok := leadsOf(asBegun(b))
		if !ok {
			return m, store.Errorf(store.KindCorrupt, "mark %q of a batch that is no plain adds", s)
		}
		m.Results, err = adds.results(strings.Split(f[2][1:], " "), nil)
		return m, err
	}
	m.Results, err = parseResults([]byte(f[2][1:]))
	return m, err
}

func parseResults(b []byte) ([]store.Result, error) {
	var rs []store.Result
	bad := false
	unsigned := func() uint64 {
		x, n := binary.Uvarint(b)
		bad = bad || n <= 0
		b = b[max(n, 0):]
		return x
	}
	signed := func() int64 {
		x, n := binary.Varint(b)
		bad = bad || n <= 0
		b = b[max(n, 0):]
		return x
	}
	for len(b) > 0 && !bad {
		flags := unsigned()
		rs = append(rs, store.Result{
			Outcome: store.Outcome(flags >> 2 & 15), Replayed: flags&1 != 0, Existed: flags&2 != 0, Forgotten: flags&64 != 0, Refused: uint8(flags >> 7),
			Before: signed(), After: signed(), Version: unsigned(), DeadlineMS: signed(),
		})
	}
	if bad {
		return nil, store.Errorf(store.KindCorrupt, "results of a mark are cut off")
	}
	return rs, nil
}

// A decoder parses numbers and keeps the first error.
type decoder struct{ err error }

func (d *decoder) int(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	d.failed(s, err)
	return n
}

func (d *decoder) uint(s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	d.failed(s, err)
	return n
}

func (d *decoder) failed(s string, err error) {
	if err != nil && d.err == nil {
		d.err = store.Errorf(store.KindCorrupt, "stored number %q", s)
	}
}

// halves returns a 64-bit number as the scripts take it.
func halves(n uint64) (high, low string) {
	return strconv.FormatUint(n>>32, 10), strconv.FormatUint(n&math.MaxUint32, 10)
}
