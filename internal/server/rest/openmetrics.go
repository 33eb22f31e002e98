package rest

import (
	"strconv"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/store"
)

const (
	typeOpenMetrics = "application/openmetrics-text; version=1.0.0; charset=utf-8"

	// scrapeDefault and scrapeMax are how many counters a scrape has at most.
	scrapeDefault = 1000
	scrapeMax     = 10_000
)

// openMetrics replies the counters with a prefix as OpenMetrics, for Prometheus to scrape.
// If there are more than the limit it replies none: a part would look like the whole.
func openMetrics(c *call) error {
	prefix := c.query.Get("prefix")
	if prefix == "" {
		return invalid("prefix", "name the counters: ?prefix=…")
	}
	limit, err := c.count("limit")
	switch {
	case err != nil:
		return err
	case limit == 0:
		limit = scrapeDefault
	case limit > scrapeMax:
		return invalid("limit", "want an integer between 1 and "+strconv.Itoa(scrapeMax))
	}
	family, err := familyOf(c.query.Get("name"), c.query.Get("type"))
	if err != nil {
		return err
	}
	if err := c.take(int64(limit) * entryBytes); err != nil {
		return err
	}
	b := family.appendHead(c.out[:0])
	found := 0
	for o := (quipu.ListOptions{Limit: min(limit+1, quipu.PageMax)}); ; {
		page, err := c.db.List(c.ctx, prefix, o)
		if err != nil {
			return err
		}
		if found += len(page.Counts); found > limit {
			return ofKind(store.KindTooLarge, "prefix: more than "+strconv.Itoa(limit)+" counters begin so: name a longer prefix, or raise the limit")
		}
		for i := range page.Counts {
			b = family.appendSample(b, c.namespace(), &page.Counts[i])
		}
		if o.Cursor = page.Next; o.Cursor == "" {
			break
		}
	}
	c.out = append(b, "# EOF\n"...)
	header := c.w.Header()
	header.Set("Content-Type", typeOpenMetrics)
	header["Cache-Control"] = cacheNever
	c.quoted = false
	c.send(200)
	return nil
}

// A family is what the samples of a scrape are called.
type family struct {
	name    string
	counter bool // they never fall, and are called name_total
}

// familyOf returns the family of a name and a type, which may both be "".
func familyOf(name, kind string) (family, error) {
	f := family{name: name, counter: kind == "counter"}
	if name == "" {
		f.name = "quipu_value"
	}
	for i := range len(f.name) {
		b := f.name[i]
		if letter := 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || b == '_' || b == ':'; !letter && (i == 0 || b < '0' || b > '9') {
			return f, invalid("name", "want letters, digits, _ and :, and no digit first, not "+quoted([]byte(name)))
		}
	}
	if kind != "" && kind != "counter" && kind != "gauge" {
		return f, invalid("type", "want counter or gauge, not "+quoted([]byte(kind)))
	}
	return f, nil
}

func (f *family) appendHead(b []byte) []byte {
	kind := " gauge\n"
	if f.counter {
		kind = " counter\n"
	}
	b = append(append(append(b, "# TYPE "...), f.name...), kind...)
	return append(append(append(b, "# HELP "...), f.name...), " Values of counters.\n"...)
}

func (f *family) appendSample(b []byte, namespace string, c *quipu.Count) []byte {
	b = append(b, f.name...)
	if f.counter {
		b = append(b, "_total"...)
	}
	b = appendLabel(append(b, `{namespace="`...), namespace)
	b = appendLabel(append(b, `",key="`...), c.Key)
	return append(strconv.AppendInt(append(b, `"} `...), c.Value, 10), '\n')
}

// appendLabel appends the value of a label, escaped.
func appendLabel(b []byte, s string) []byte {
	for i := range len(s) {
		switch s[i] {
		case '\n':
			b = append(b, `\n`...)
		case '"', '\\':
			b = append(b, '\\', s[i])
		default:
			b = append(b, s[i])
		}
	}
	return b
}
