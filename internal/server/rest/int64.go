package rest

import (
	"mime"
	"strconv"
	"strings"
)

// Numbers of JavaScript are exact up to 2^53, and those of Quipu reach 2^63. A
// caller that asks for int64=string gets each integer of 64 bits as a string.
//
// It is done once for all replies, to what was encoded already: the name of a
// member tells its type, because the OpenAPI document gives no name to an
// integer of 64 bits in one place and to another number elsewhere. Tests hold
// the table below to that document, and every reply to both. So an encoder
// can't forget it, and costs nothing to those who don't ask.

// int64Parameter asks for it, after the question mark or in Accept.
const int64Parameter = "int64"

// parseInt64 reads what the caller asks for.
func (c *call) parseInt64() error {
	if c.anyQuery {
		return nil
	}
	if c.query.Has(int64Parameter) {
		return c.askInt64(int64Parameter, c.query.Get(int64Parameter))
	}
	for _, accept := range c.r.Header["Accept"] {
		if !strings.Contains(accept, int64Parameter) { // Fast path.
			continue
		}
		for one := range strings.SplitSeq(accept, ",") {
			kind, params, err := mime.ParseMediaType(one)
			if how, ok := params[int64Parameter]; err == nil && ok && (kind == "application/json" || kind == "application/*" || kind == "*/*") {
				return c.askInt64("Accept", how)
			}
		}
	}
	return nil
}

func (c *call) askInt64(field, how string) error {
	switch how {
	case "string":
		c.quoted = true
	case "number":
	default:
		return invalid(field, "want int64=string or int64=number, not "+strconv.Quote(how))
	}
	return nil
}

// isInt64 reports whether a member of a reply is an integer of 64 bits, if it is a
// number.
func isInt64(name string) bool {
	switch name {
	case "after", "amount", "applied", "asked", "available", "before", "burst", "ceiling", "cells", "clients", "committed", "count",
		"counters", "delta", "deltas", "floor", "id", "keys", "limit", "lines", "looked", "lower", "max", "n", "open", "other", "outside",
		"per_who", "reactions", "remaining", "reserved", "reset_after_ms", "rest", "retry_after_ms", "rollup_age_ms", "rollup_interval_ms",
		"staleness_ms", "step_ms", "sum", "tokens", "total", "upper", "users", "value", "version", "who_total", "windows":
		return true
	}
	return false
}

// countsMember is the member whose own members are named by users, and are
// integers of 64 bits.
const countsMember = "counts"

// quoteInt64 returns a reply with its integers of 64 bits as strings.
func quoteInt64(reply []byte) []byte {
	out := make([]byte, 0, len(reply)+len(reply)/8+16)
	var text, name []byte // the last string, and the last that was a name
	counts := false       // between the braces of countsMember
	for i := 0; i < len(reply); {
		first := i
		switch b := reply[i]; {
		case b == '"':
			i = endOfString(reply, i)
			text = reply[first+1 : max(first+1, i-1)] // or it has no end
		case b == '-' || '0' <= b && b <= '9':
			for i < len(reply) && isOfNumber(reply[i]) {
				i++
			}
			if counts || isInt64(string(name)) {
				out = append(append(append(out, '"'), reply[first:i]...), '"')
				continue
			}
		default:
			i++
			switch b {
			case ':':
				name = text
			case '{':
				counts = string(name) == countsMember
				name = nil
			case '}':
				counts = false
				name = nil
			}
		}
		out = append(out, reply[first:i]...)
	}
	return out
}

// endOfString returns where the string that begins at i has ended.
func endOfString(b []byte, i int) int {
	for i++; i < len(b) && b[i] != '"'; i++ {
		if b[i] == '\\' {
			i++
		}
	}
	return min(i+1, len(b))
}

func isOfNumber(b byte) bool {
	return '0' <= b && b <= '9' || b == '-' || b == '+' || b == '.' || b == 'e' || b == 'E'
}
