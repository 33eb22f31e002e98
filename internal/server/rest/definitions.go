package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/draft"
	"github.com/quipudb/quipu/store"
)

// json replies a value that changes with every event.
func (c *call) json(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	c.out = append(append(c.out[:0], text...), '\n')
	c.w.Header()["Cache-Control"] = cacheRevalidate
	return c.reply()
}

// given returns a time, or nil if there is none.
func given(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return new(t.UTC())
}

// A viewOf is one answer that a definition keeps up to date.
type viewOf struct {
	Pattern string          `json:"pattern"`
	Name    string          `json:"name"`
	Since   *time.Time      `json:"since,omitempty"`
	Keep    definition.Keep `json:"keep,omitempty"` // not there: for ever
}

// A bookOf is the definitions of a namespace.
type bookOf struct {
	Namespace   string                  `json:"namespace"`
	ID          int64                   `json:"id"`
	InForce     *time.Time              `json:"in_force,omitempty"`
	Definitions []definition.Definition `json:"definitions"`
	Views       []viewOf                `json:"views"`
}

// bookJSON returns a book as it is told.
func bookJSON(namespace string, b *quipu.Book) bookOf {
	out := bookOf{Namespace: namespace, ID: b.ID, InForce: given(b.InForce), Definitions: b.Definitions, Views: make([]viewOf, len(b.Views))}
	if out.Definitions == nil {
		out.Definitions = []definition.Definition{}
	}
	for i, v := range b.Views {
		out.Views[i] = viewOf{v.Pattern, v.Name, given(v.Since), v.Keep}
	}
	return out
}

// bookTag returns the ETag of the book with an id.
func bookTag(id int64) string { return `"d` + strconv.FormatInt(id, 10) + `"` }

// namespace returns the namespace of the call.
func (c *call) namespace() string {
	if c.inNamespace {
		return c.args.ns
	}
	return "default"
}

func definitions(c *call) error {
	b, err := c.db.Definitions(c.ctx)
	if err != nil {
		return err
	}
	c.w.Header()["Etag"] = []string{bookTag(b.ID)}
	return c.json(bookJSON(c.namespace(), &b))
}

func define(c *call) error {
	o, err := c.defineOptions()
	if err != nil {
		return err
	}
	raw, err := c.body(batchBytesMax)
	if err != nil {
		return err
	}
	defs, err := decodeDefinitions(raw, c.namespace())
	if err != nil {
		return err
	}
	change, err := c.db.Define(c.ctx, defs, o)
	if err == nil && o.IfNone && len(change.Changes) == 0 && change.ID != 0 { // There are some.
		err = store.ErrChanged
	}
	if errors.Is(err, store.ErrChanged) {
		p := ofKind(store.KindChanged, "the definitions are not those of If-Match: read them again")
		p.title = "Definitions changed"
		return p
	}
	if err != nil {
		return err
	}
	if change.Changes == nil {
		change.Changes = []string{}
	}
	return c.json(struct {
		ID      int64    `json:"id"`
		DryRun  bool     `json:"dry_run"`
		Changes []string `json:"changes"`
	}{change.ID, o.DryRun, change.Changes})
}

// defineOptions returns what the headers and parameters say of definitions.
func (c *call) defineOptions() (o quipu.DefineOptions, err error) {
	if o.DryRun, err = c.truth("dry_run"); err != nil {
		return o, err
	}
	match := c.r.Header["If-Match"]
	switch {
	case len(match) == 1 && match[0] == "*", len(match) == 0 && o.DryRun:
		return o, nil
	case len(match) != 1 || strings.Contains(match[0], ","):
		return o, invalid("If-Match", "want the ETag of the definitions, as a GET returned it, or * to replace any version")
	}
	digits, ok := strings.CutPrefix(strings.TrimSuffix(match[0], `"`), `"d`)
	o.IfID, err = strconv.ParseInt(digits, 10, 64)
	switch {
	case !ok || err != nil || bookTag(o.IfID) != match[0]:
		return o, invalid("If-Match", "want the ETag of the definitions, as a GET returned it, or * to replace any version")
	case o.IfID == 0:
		o.IfNone = true
	}
	return o, nil
}

// decodeDefinitions reads {"definitions":[{"pattern":…},…]}, which are all of one
// namespace.
func decodeDefinitions(body []byte, namespace string) ([]definition.Definition, error) {
	var list struct {
		Definitions json.RawMessage `json:"definitions"`
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&list); err != nil {
		return nil, invalid("body", strings.TrimPrefix(err.Error(), "json: ")+`; want {"definitions":[…]}`)
	}
	if d.More() {
		return nil, invalid("body", "something follows the value")
	}
	if list.Definitions == nil {
		return nil, invalid("definitions", "it is missing; want an array")
	}
	drafts, err := draft.Reader{Namespace: namespace, Zone: zoneExists}.Parse(list.Definitions)
	if err != nil {
		p := ofKind(store.KindOf(err), "definitions: "+strings.TrimPrefix(err.Error(), "quipu: "))
		p.field = "definitions"
		return nil, p
	}
	defs := make([]definition.Definition, len(drafts))
	for i, one := range drafts {
		if one.Namespace != namespace {
			return nil, invalid("definitions", "the one of "+strconv.Quote(one.Definition.Pattern)+" is for a namespace other than that of the path")
		}
		defs[i] = one.Definition
	}
	return defs, nil
}

// zoneExists returns an error if there is no time zone of a name.
func zoneExists(name string) error {
	_, err := time.LoadLocation(name)
	return err
}
