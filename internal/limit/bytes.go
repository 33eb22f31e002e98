package limit

import "encoding/binary"

// The bytes of a request, and of what is known of a client. Numbers are uvarints.
//
//	request: version | flags: 1 is burn | cost | n | n × (tag | algorithm | rate | …)
//	  bucket: per | burst   window, sliding: per   calendar: n | n × (µs since the edge before)
//	state: version | n | n × (tag | 1 | at | used | rest | rate | per)          a bucket
//	                   n × (tag | 2 | start | length | cur)                     windows
//	                   n × (tag | 3 | start | length | cur | prev)              sliding
const version = 1

const (
	flagBurn = 1

	kindBucket  = 1
	kindWindows = 2
	kindSliding = 3
)

// Append appends the bytes of a request.
func (r *Request) Append(dst []byte) []byte {
	flags := byte(0)
	if r.Burn {
		flags |= flagBurn
	}
	dst = append(dst, version, flags)
	dst = binary.AppendUvarint(dst, uint64(r.Cost))
	dst = append(dst, byte(r.NRules))
	for i := range r.NRules {
		x := &r.Rules[i]
		dst = append(binary.AppendUvarint(dst, uint64(x.Tag)), byte(x.Algorithm))
		dst = binary.AppendUvarint(dst, uint64(x.Rate))
		if x.Algorithm != Calendar {
			dst = binary.AppendUvarint(dst, uint64(x.PerUS))
		}
		switch x.Algorithm {
		case Bucket:
			dst = binary.AppendUvarint(dst, uint64(x.Burst))
		case Calendar:
			dst = append(dst, byte(x.NEdges))
			last := int64(0)
			for _, e := range x.Edges[:x.NEdges] {
				dst = binary.AppendUvarint(dst, uint64(e-last))
				last = e
			}
		default:
		}
	}
	return dst
}

// Parse returns the request that Append made; ok is false if it has made no such bytes.
func Parse(request []byte) (r Request, ok bool) {
	ok = r.parse(request)
	return r, ok
}

func (r *Request) parse(request []byte) bool {
	c := cutter{b: request}
	if r.Cost, r.Burn, r.NRules = c.head(); c.bad || r.NRules > RulesMax {
		return false
	}
	for i := range r.NRules {
		c.rule(&r.Rules[i])
	}
	return !c.bad && len(c.b) == 0 && r.Check() == nil
}

// head takes what comes before the rules of a request.
func (c *cutter) head() (cost int64, burn bool, rules int) {
	if c.byte() != version {
		c.bad = true
	}
	flags := c.byte()
	c.bad = c.bad || flags&^flagBurn != 0
	return c.int(), flags&flagBurn != 0, int(c.byte())
}

// rule takes a rule, which may be none that is valid.
func (c *cutter) rule(x *Rule) {
	x.Tag, x.Algorithm, x.Rate = c.tag(), Algorithm(c.byte()), c.int()
	if x.Algorithm != Calendar {
		x.PerUS = c.int()
	}
	switch x.Algorithm {
	case Bucket:
		x.Burst = c.int()
	case Calendar:
		x.NEdges = int(c.byte())
		last := int64(0)
		for j := range min(x.NEdges, EdgesMax) {
			last += c.time()
			x.Edges[j] = last
		}
	default:
	}
}

// entries are what is known of a client.
type entries struct {
	all [RulesMax]entry
	n   int
}

func (s *entries) find(tag uint32) *entry {
	for i := range s.n {
		if s.all[i].tag == tag {
			return &s.all[i]
		}
	}
	return nil
}

func (s *entries) parse(state string) bool {
	if state == "" {
		return true
	}
	c := cutter{b: []byte(state)}
	if c.byte() != version {
		return false
	}
	if s.n = int(c.byte()); s.n < 1 || s.n > RulesMax {
		return false
	}
	for i := range s.n {
		c.entry(&s.all[i])
		for j := range i {
			c.bad = c.bad || s.all[j].tag == s.all[i].tag
		}
	}
	return !c.bad && len(c.b) == 0
}

// entry takes what is known of one limit.
func (c *cutter) entry(e *entry) {
	e.tag = c.tag()
	switch kind := c.byte(); kind {
	case kindBucket:
		e.bucket, e.atUS, e.used, e.rest, e.rate, e.per = true, c.time(), c.int(), c.int(), c.int(), c.int()
		c.bad = c.bad || e.rate < 1 || e.per < 1 || e.per > PerUSMax || e.rest >= e.per ||
			e.rate > AmountMax || e.used > AmountMax
	case kindWindows, kindSliding:
		e.startUS, e.length, e.cur = c.time(), c.time(), c.int()
		if e.slides = kind == kindSliding; e.slides {
			e.prev = c.int()
		}
		c.bad = c.bad || e.length < 1 || e.cur > countMax || e.prev > countMax
	default:
		c.bad = true
	}
}

// countMax is the most that a window counts: what two windows of other lengths had in all.
const countMax = 4 * AmountMax

// append appends what is known after a decision: the limits of the request, and as many of
// the others as there is room for that something is used of.
func (s *entries) append(dst []byte, req *Request, all *[RulesMax]judged, nowUS int64) []byte {
	var kept [RulesMax]entry
	n := req.NRules
	for i := range n {
		kept[i] = all[i].is
	}
	for i := range s.n {
		e := &s.all[i]
		if n < RulesMax && e.ends() > nowUS && !req.has(e.tag) {
			kept[n] = *e
			n++
		}
	}
	dst = append(dst, version, byte(n))
	for i := range n {
		dst = kept[i].append(dst)
	}
	return dst
}

// append appends what is known of one limit.
func (e *entry) append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(e.tag))
	if e.bucket {
		dst = append(dst, kindBucket)
		for _, v := range [...]int64{e.atUS, e.used, e.rest, e.rate, e.per} {
			dst = binary.AppendUvarint(dst, uint64(v))
		}
		return dst
	}
	kind := byte(kindWindows)
	if e.slides {
		kind = kindSliding
	}
	dst = append(dst, kind)
	for _, v := range [...]int64{e.startUS, e.length, min(e.cur, countMax)} {
		dst = binary.AppendUvarint(dst, uint64(v))
	}
	if e.slides {
		dst = binary.AppendUvarint(dst, uint64(min(e.prev, countMax)))
	}
	return dst
}

// has reports whether a request has a rule of a tag.
func (r *Request) has(tag uint32) bool {
	for i := range r.NRules {
		if r.Rules[i].Tag == tag {
			return true
		}
	}
	return false
}

// A cutter cuts numbers from bytes. After a short or wrong one bad is set.
type cutter struct {
	b   []byte
	bad bool
}

func (c *cutter) byte() byte {
	if len(c.b) == 0 {
		c.bad = true
		return 0
	}
	v := c.b[0]
	c.b = c.b[1:]
	return v
}

// uvarint takes a number in as few bytes as it can have: so that there is one way to say
// a thing.
func (c *cutter) uvarint() uint64 {
	v := uint64(0)
	for i := 0; i < len(c.b) && i < binary.MaxVarintLen64; i++ {
		b := c.b[i]
		if i == binary.MaxVarintLen64-1 && b > 1 {
			break
		}
		if v |= uint64(b&0x7f) << (7 * i); b < 0x80 {
			if b == 0 && i > 0 {
				break
			}
			c.b = c.b[i+1:]
			return v
		}
	}
	c.b, c.bad = c.b[:0], true
	return 0
}

// upTo takes a number up to a limit.
func (c *cutter) upTo(limit uint64) int64 {
	v := c.uvarint()
	if v > limit {
		c.bad = true
		return 0
	}
	return int64(v)
}

func (c *cutter) int() int64  { return c.upTo(1 << 60) }
func (c *cutter) time() int64 { return c.upTo(TimeUSMax) }
func (c *cutter) tag() uint32 { return uint32(c.upTo(TagMax)) }

// A reply is two numbers, which fit where results are: bits from the lowest on
//
//	first:  allowed 1 | behind 1 | outside 1 | unknown 1 | rule 3 | remaining 42 | retry, its upper part 8
//	second: reset 36 | retry, its lower part 28
const (
	replyMSBits    = 36
	retryLowBits   = 64 - replyMSBits
	remainingShift = 7
	remainingBits  = 42
	retryHighShift = remainingShift + remainingBits
)

// Pack returns the reply as two numbers.
func (r Reply) Pack() (first, second int64) {
	bit := func(at int, set bool) {
		if set {
			first |= 1 << at
		}
	}
	bit(0, r.Allowed)
	bit(1, r.Behind)
	bit(2, r.Outside)
	bit(3, r.Unknown)
	first |= int64(r.Rule&(RulesMax-1)) << 4
	first |= min(r.Remaining, 1<<remainingBits-1) << remainingShift
	first |= r.RetryMS >> retryLowBits << retryHighShift
	second = int64(uint64(r.ResetMS) | uint64(r.RetryMS)<<replyMSBits)
	return first, second
}

// Unpack returns the reply that Pack made two numbers of.
func Unpack(first, second int64) Reply {
	return Reply{
		Allowed: first&1 != 0, Behind: first&2 != 0, Outside: first&4 != 0, Unknown: first&8 != 0,
		Rule:      int(first >> 4 & (RulesMax - 1)),
		Remaining: first >> remainingShift & (1<<remainingBits - 1),
		RetryMS:   first>>retryHighShift&0xff<<retryLowBits | int64(uint64(second)>>replyMSBits),
		ResetMS:   second & (1<<replyMSBits - 1),
	}
}
