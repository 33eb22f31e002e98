package rest

import (
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/server"
)

// appendString appends s as a JSON string. Bytes that are not UTF-8 become
// the replacement character.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	first := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c < utf8.RuneSelf && c != '"' && c != '\\' { // Fast path.
			i++
			continue
		}
		size := 1
		if c >= utf8.RuneSelf {
			var r rune
			if r, size = utf8.DecodeRuneInString(s[i:]); r != utf8.RuneError || size > 1 {
				i += size
				continue
			}
		}
		b = append(b, s[first:i]...)
		switch {
		case c >= utf8.RuneSelf:
			b = append(b, "\ufffd"...)
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		default:
			b = append(b, `\u00`...)
			b = append(b, hex[c>>4], hex[c&15])
		}
		i += size
		first = i
	}
	return append(append(b, s[first:]...), '"')
}

func appendTime(b []byte, t time.Time) []byte {
	b = append(b, '"')
	b = t.UTC().AppendFormat(b, time.RFC3339Nano)
	return append(b, '"')
}

// appendReceipt appends what became of a write.
func appendReceipt(b []byte, r *quipu.Receipt, added bool) []byte {
	b = append(b, `{"key":`...)
	b = appendString(b, r.Key)
	if added || r.HasValue {
		b = append(b, `,"applied":`...)
		b = strconv.AppendInt(b, r.Applied, 10)
	}
	if r.HasValue {
		b = append(b, `,"value":`...)
		b = strconv.AppendInt(b, r.Value, 10)
		b = append(b, `,"before":`...)
		b = strconv.AppendInt(b, r.Before, 10)
	}
	b = appendVersion(b, r.Version)
	b = append(b, `,"replayed":`...)
	b = strconv.AppendBool(b, r.Replayed)
	if r.Late {
		b = append(b, `,"late":true`...)
	}
	if r.Duplicate {
		b = append(b, `,"duplicate":true`...)
		if r.DuplicateError != 0 {
			b = append(b, `,"duplicate_error":`...)
			b = strconv.AppendFloat(b, r.DuplicateError, 'g', -1, 64)
		}
	}
	b = append(b, `,"durability":"`...)
	b = append(b, r.Durability.String()...)
	b = append(b, `","session":"`...)
	b = append(b, r.Session()...)
	return append(b, `"}`...)
}

// appendReceipts appends the results of a batch, each a receipt or an error. Named
// says which part of the request has named an operation.
func appendReceipts(b []byte, rs []quipu.Receipt, named func(i int) string) []byte {
	b = append(b, `{"results":[`...)
	for i := range rs {
		if i > 0 {
			b = append(b, ',')
		}
		r := &rs[i]
		if r.Err == nil {
			b = appendReceipt(b, r, true)
			continue
		}
		b = append(b, `{"key":`...)
		b = appendString(b, r.Key)
		b = append(b, `,"error":`...)
		b = appendProblem(b, problemOf(r.Err, server.Detail).of(named(i)), "")
		b = append(b, '}')
	}
	return append(b, "]}\n"...)
}

// appendCount appends a counter as it was read. Bounds that are not proved are
// left out.
func appendCount(b []byte, c *quipu.Count) []byte {
	b = append(b, `{"key":`...)
	b = appendString(b, c.Key)
	b = append(b, `,"value":`...)
	b = strconv.AppendInt(b, c.Value, 10)
	if c.Bounded {
		b = append(b, `,"lower":`...)
		b = strconv.AppendInt(b, c.Lower, 10)
		b = append(b, `,"upper":`...)
		b = strconv.AppendInt(b, c.Upper, 10)
	}
	b = append(b, `,"exact":`...)
	b = strconv.AppendBool(b, c.Exact)
	b = append(b, `,"complete":`...)
	b = strconv.AppendBool(b, c.Complete)
	b = append(b, `,"exists":`...)
	b = strconv.AppendBool(b, c.Exists)
	if !c.ExpiresAt.IsZero() {
		b = append(b, `,"expires_at":`...)
		b = appendTime(b, c.ExpiresAt)
	}
	b = append(b, `,"as_of":`...)
	b = appendTime(b, c.AsOf)
	b = append(b, `,"staleness_ms":`...)
	b = strconv.AppendInt(b, c.Staleness.Milliseconds(), 10)
	b = append(b, `,"source":`...)
	b = appendString(b, c.Source)
	b = append(b, `,"shards":`...)
	b = strconv.AppendInt(b, int64(c.Shards), 10)
	b = appendVersion(b, c.Version)
	return append(b, '}')
}

// appendVersion appends a version, unless no write can be made at it.
func appendVersion(b []byte, version uint64) []byte {
	if version >= quipu.VersionMixed {
		return b
	}
	b = append(b, `,"version":`...)
	return strconv.AppendUint(b, version, 10)
}

// appendCounts appends an object with counters, and leaves it open.
func appendCounts(b []byte, cs []quipu.Count) []byte {
	b = append(b, `{"counters":[`...)
	for i := range cs {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendCount(b, &cs[i])
	}
	return append(b, ']')
}

// appendSum appends what counters add up to.
func appendSum(b []byte, prefix string, s *quipu.Sum) []byte {
	b = append(b, `{"prefix":`...)
	b = appendString(b, prefix)
	b = append(b, `,"sum":`...)
	b = strconv.AppendInt(b, s.Value, 10)
	b = append(b, `,"keys":`...)
	b = strconv.AppendInt(b, s.Keys, 10)
	b = append(b, `,"exact":`...)
	b = strconv.AppendBool(b, s.Exact)
	b = append(b, `,"complete":`...)
	b = strconv.AppendBool(b, s.Complete)
	b = append(b, `,"as_of":`...)
	b = appendTime(b, s.AsOf)
	if s.Next != "" {
		b = append(b, `,"next":`...)
		b = appendString(b, s.Next)
	}
	return append(b, '}')
}

// appendFate appends what is known of a token.
func appendFate(b []byte, key, token string, f *quipu.Fate) []byte {
	b = append(b, `{"id":`...)
	b = appendString(b, token)
	b = append(b, `,"key":`...)
	b = appendString(b, key)
	b = append(b, `,"state":"`...)
	b = append(b, f.State.String()...)
	b = append(b, '"')
	if !f.At.IsZero() {
		b = append(b, `,"at":`...)
		b = appendTime(b, f.At)
	}
	if f.Reacted {
		b = append(b, `,"choice":`...)
		b = appendString(b, f.Choice)
		b = append(b, `,"before":`...)
		b = appendString(b, f.Before)
	}
	if f.State == quipu.TokenApplied {
		b = append(b, `,"result":`...)
		// The change that an assignment made is known only with its value: without
		// one it is zero.
		b = appendReceipt(b, &f.Receipt, f.Receipt.Applied != 0)
	}
	return append(b, '}')
}

// appendAudit appends the result of a verify.
func appendAudit(b []byte, a *quipu.Audit) []byte {
	b = append(b, `{"ok":`...)
	b = strconv.AppendBool(b, len(a.Drift) == 0)
	b = append(b, `,"cells":`...)
	b = strconv.AppendInt(b, a.Cells, 10)
	b = append(b, `,"tokens":`...)
	b = strconv.AppendInt(b, a.Tokens, 10)
	b = append(b, `,"deltas":`...)
	b = strconv.AppendUint(b, a.Deltas, 10)
	b = append(b, `,"drift":[`...)
	for i, d := range a.Drift {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"what":`...)
		b = appendString(b, d.What)
		b = append(b, `,"have":`...)
		b = appendString(b, d.Have)
		b = append(b, `,"want":`...)
		b = appendString(b, d.Want)
		b = append(b, '}')
	}
	b = append(b, `],"unproved":[`...)
	for i, text := range a.Unproved {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, text)
	}
	return append(b, `]}`...)
}
