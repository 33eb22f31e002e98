package sketch

import (
	"encoding/binary"
	"math"
)

// A cutter cuts numbers and texts from bytes, and remembers how far it has come. After a short or
// wrong one bad is set, and nothing is left.
type cutter struct {
	s   string
	at  int
	bad bool
}

// left returns how many bytes are left.
func (c *cutter) left() int { return len(c.s) - c.at }

// rest returns the bytes that are left.
func (c *cutter) rest() string { return c.s[c.at:] }

func (c *cutter) fail() { c.at, c.bad = len(c.s), true }

// byte takes one byte.
func (c *cutter) byte() byte {
	b := c.text(1)
	if c.bad {
		return 0
	}
	return b[0]
}

// text takes n bytes.
func (c *cutter) text(n int) string {
	if n > c.left() {
		c.fail()
		return ""
	}
	c.at += n
	return c.s[c.at-n : c.at]
}

// number takes an uvarint up to a limit. It takes the shortest form only, so that a number
// has one form.
func (c *cutter) number(limit int64) int64 {
	v := uint64(0)
	for i := 0; c.at+i < len(c.s) && i < binary.MaxVarintLen64-1; i++ {
		b := c.s[c.at+i]
		v |= uint64(b&0x7f) << (7 * i)
		if b >= 0x80 {
			continue
		}
		if b == 0 && i > 0 || v > uint64(limit) {
			break
		}
		c.at += i + 1
		return int64(v)
	}
	c.fail()
	return 0
}

// amount takes a number that is at least 1.
func (c *cutter) amount() int64 {
	n := c.number(math.MaxInt64)
	c.bad = c.bad || n == 0
	return n
}

// topHead takes the kind and the version that all bytes of top lists begin with.
func (c *cutter) topHead() {
	if c.text(2) != string([]byte{byte(KindTop), topVersion}) {
		c.bad = true
	}
}

// hash takes a hash, whose bytes are in the order of the number.
func (c *cutter) hash() uint64 {
	t := c.text(8)
	if c.bad {
		return 0
	}
	v := uint64(0)
	for i := range 8 {
		v = v<<8 | uint64(t[i])
	}
	return v
}

// Bytes are read where they are, in a string or in a slice. The compiler makes
// one load of each.
type bytesOrString interface{ ~[]byte | ~string }

func le16[B bytesOrString](b B, i int) uint16 { return uint16(b[i]) | uint16(b[i+1])<<8 }

func le32[B bytesOrString](b B, i int) uint32 {
	return uint32(b[i]) | uint32(b[i+1])<<8 | uint32(b[i+2])<<16 | uint32(b[i+3])<<24
}

func le64[B bytesOrString](b B, i int) uint64 {
	return uint64(b[i]) | uint64(b[i+1])<<8 | uint64(b[i+2])<<16 | uint64(b[i+3])<<24 |
		uint64(b[i+4])<<32 | uint64(b[i+5])<<40 | uint64(b[i+6])<<48 | uint64(b[i+7])<<56
}
