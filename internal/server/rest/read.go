package rest

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/duration"
)

func get(c *call) error {
	need, err := decodeNeed(c.query, c.start.UTC())
	if err != nil {
		return err
	}
	return c.read(need)
}

func getExact(c *call) error {
	return c.read(need{options: []quipu.ReadOption{quipu.Exact()}})
}

// read replies a counter, or 304 if the caller has this version of it.
func (c *call) read(n need) error {
	count, err := c.db.Read(c.ctx, c.args.key, n.options...)
	if err != nil {
		return err
	}
	header := c.w.Header()
	tag := etag(count.Version)
	header["Etag"] = []string{tag}
	age := int64((count.Staleness + time.Second - 1) / time.Second) // not less than it is
	header["Age"] = []string{strconv.FormatInt(age, 10)}
	header["Cache-Control"] = c.cacheControl(n, count.Staleness, age)
	if vs := c.r.Header["If-None-Match"]; vs != nil && listed(vs, tag, count.Exists) {
		header["Vary"] = varyAccept
		c.send(http.StatusNotModified)
		return nil
	}
	c.out = append(appendCount(c.out[:0], &count), '\n')
	return c.reply()
}

// listed reports whether an If-None-Match names tag. For reads the weak form
// will do. A * names any counter that exists; that one does not has a tag as well.
func listed(values []string, tag string, exists bool) bool {
	tag = strings.TrimPrefix(tag, weak)
	for _, v := range values {
		for t := range strings.SplitSeq(v, ",") {
			t = strings.TrimSpace(t)
			if t == "*" && exists || strings.TrimPrefix(t, weak) == tag {
				return true
			}
		}
	}
	return false
}

// A need is what a caller needs of a read.
type need struct {
	options []quipu.ReadOption
	age     time.Duration // how old an answer may be that a cache serves
}

// decodeNeed returns what the parameters of a read ask for.
func decodeNeed(q url.Values, now time.Time) (need, error) {
	var n need
	if q == nil { // Fast path.
		return n, nil
	}
	// One that is empty is a variable that its sender forgot to set, and not the
	// same as none.
	if q.Has("max_staleness") {
		v := q.Get("max_staleness")
		d, err := duration.Parse(v)
		if err != nil || d < 0 {
			return need{}, invalid("max_staleness", "want a duration such as 5s, not "+strconv.Quote(v))
		}
		n.age = d
		n.options = append(n.options, quipu.MaxStaleness(d))
	}
	if q.Has("max_error") {
		v := q.Get("max_error")
		e, err := strconv.ParseInt(v, 10, 64)
		if err != nil || e < 0 {
			return need{}, invalid("max_error", "want an integer of at least 0, not "+strconv.Quote(v))
		}
		n.options = append(n.options, quipu.MaxError(e))
		n.age = 0 // nobody knows how far off it will be
	}
	session := q.Get("session")
	if session == "" && (q.Has("session") || q.Get("read") == "session") {
		return need{}, invalid("session", "want the session of a write")
	}
	switch v := q.Get("read"); {
	case v == "exact":
		n.options = append(n.options, quipu.Exact())
		n.age = 0
	case v != "cached" && v != "session" && q.Has("read"):
		return need{}, invalid("read", "want cached, session or exact, not "+strconv.Quote(v))
	}
	if session != "" {
		n.options = append(n.options, quipu.Session(session))
		n.age = 0
	}
	if q.Has("at") {
		at, err := moment(q, "at", now)
		if err != nil {
			return need{}, err
		}
		n.options = append(n.options, quipu.AsOf(at))
		n.age = 0
	}
	return n, nil
}

// cacheControl lets caches keep an answer that is so stale already for as long as
// it is not older than the caller, or the counter's policy, said it may be; otherwise
// they must ask again, which the ETag makes cheap.
//
// Their clock begins at the Age of the answer, which has whole seconds and is rounded
// up: so max-age is that and what is left, or a total of a moment ago would be stale
// when it arrives.
func (c *call) cacheControl(n need, stale time.Duration, age int64) []string {
	left := n.age - stale
	if len(n.options) == 0 {
		switch p, _ := c.db.PolicyOf(c.args.key); p.Timing {
		case quipu.FanIn:
		case quipu.Rollup:
			// This server keeps a total for two intervals at most, and a cache one more. What
			// is older was recalled because the store can't be reached.
			left = min(p.Interval, 3*p.Interval-stale)
		case quipu.Hybrid:
			return cacheOwn // whoever writes here must read it here at once
		}
	}
	if s := int64(left / time.Second); s > 0 {
		return []string{"max-age=" + strconv.FormatInt(age+s, 10)}
	}
	return cacheRevalidate
}

func readMany(c *call) error {
	need, err := decodeNeed(c.query, c.start.UTC())
	if err != nil {
		return err
	}
	raw, err := c.body(batchBytesMax)
	if err != nil {
		return err
	}
	keys, err := decodeKeys(raw)
	if err != nil {
		return err
	}
	if err := c.permitKeys(len(keys), func(i int) string { return keys[i] }); err != nil {
		return err
	}
	counts, err := c.db.ReadBatch(c.ctx, keys, need.options...)
	if err != nil {
		return err
	}
	c.out = append(appendCounts(c.out[:0], counts), "}\n"...)
	return c.reply()
}

func list(c *call) error {
	o := quipu.ListOptions{Cursor: c.query.Get("cursor")}
	if v := c.query.Get("limit"); v != "" {
		var err error
		o.Limit, err = strconv.Atoi(v)
		if err != nil || o.Limit < 1 { // one above PageMax is too large, as List says
			return invalid("limit", "want an integer between 1 and "+strconv.Itoa(quipu.PageMax)+", not "+strconv.Quote(v))
		}
	}
	if err := c.take(int64(min(o.Limit, quipu.PageMax)) * entryBytes); err != nil {
		return err
	}
	page, err := c.db.List(c.ctx, c.query.Get("prefix"), o)
	if err != nil {
		return err
	}
	c.out = appendCounts(c.out[:0], page.Counts)
	if page.Next != "" {
		c.out = append(c.out, `,"next":`...)
		c.out = appendString(c.out, page.Next)
	}
	c.out = append(c.out, "}\n"...)
	c.w.Header()["Cache-Control"] = cacheRevalidate
	return c.reply()
}

// sum replies what the counters with a prefix add up to.
func sum(c *call) error {
	if err := c.take(quipu.SumPage * entryBytes); err != nil {
		return err
	}
	s, err := c.db.Sum(c.ctx, c.query.Get("prefix"), c.query.Get("cursor"))
	if err != nil {
		return err
	}
	c.out = append(appendSum(c.out[:0], c.query.Get("prefix"), &s), '\n')
	c.w.Header()["Cache-Control"] = cacheRevalidate
	return c.reply()
}
