package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/policy"
	"github.com/quipudb/quipu/store"
)

// Policies keeps the policies that are made here, beside those of the server's
// configuration.
type Policies interface {
	// Policies returns all, in their order, and how many of them, the first,
	// were made here.
	Policies() (all []quipu.Policy, made int)

	// ReplacePolicies replaces those that were made here, or returns
	// store.ErrChanged if they are not the old ones. It may have to wait for who
	// else replaces them, and does so until ctx ends.
	ReplacePolicies(ctx context.Context, old, made []quipu.Policy) error
}

// fixed are the policies of a DB that nobody may change.
type fixed struct{ db *quipu.DB }

// Policies returns those of the DB.
func (f fixed) Policies() ([]quipu.Policy, int) { return f.db.Policies(), 0 }

// ReplacePolicies refuses.
func (fixed) ReplacePolicies(_ context.Context, _, _ []quipu.Policy) error {
	return store.Errorf(store.KindUnsupported, "this server does not store policies made through the API")
}

func listPolicies(c *call) error {
	all, made := c.h.policies.Policies()
	return c.replyPolicies(all, made)
}

// replyPolicies sends policies, with the tag of those made here.
func (c *call) replyPolicies(all []quipu.Policy, made int) error {
	header := c.w.Header()
	header["Etag"] = []string{policyTag(all[:made])}
	header["Cache-Control"] = cacheRevalidate
	c.out = append(c.out[:0], `{"policies":[`...)
	for i, p := range all {
		if i > 0 {
			c.out = append(c.out, ',')
		}
		c.out = append(appendPlaced(c.out, p, i, made), '}')
	}
	c.out = append(c.out, "]}\n"...)
	return c.reply()
}

// appendPlaced appends a policy and its place, and leaves the object open.
func appendPlaced(b []byte, p quipu.Policy, i, made int) []byte {
	b = append(b, `{"index":`...)
	b = strconv.AppendInt(b, int64(i), 10)
	b = append(b, `,"source":"`...)
	if i < made {
		b = append(b, `api","policy":`...)
	} else {
		b = append(b, `file","policy":`...)
	}
	return appendPolicy(b, p, false)
}

// policyTag returns the ETag of the policies made here. It depends on nothing
// else, so that it holds over a restart.
func policyTag(made []quipu.Policy) string {
	h := fnv.New64a()
	for _, p := range made {
		_, _ = h.Write(append([]byte(p.String()), '\n')) // never fails
	}
	return `"p` + strconv.FormatUint(h.Sum64(), 16) + `"`
}

func replacePolicies(c *call) error {
	match := c.r.Header["If-Match"]
	if len(match) != 1 || strings.Contains(match[0], ",") {
		return invalid("If-Match", "want the ETag of the policies, as a GET returned it, or * to replace any version")
	}
	raw, err := c.body(batchBytesMax)
	if err != nil {
		return err
	}
	next, err := decodePolicies(raw)
	if err != nil {
		return err
	}
	dry, err := c.truth("dry_run")
	if err != nil {
		return err
	}
	for {
		all, made := c.h.policies.Policies()
		if dry && (match[0] == "*" || match[0] == policyTag(all[:made])) {
			would := slices.Concat(next, all[made:])
			if err := (quipu.Options{Policies: would}).Validate(); err != nil {
				return err
			}
			return c.replyPolicies(would, len(next))
		}
		if match[0] != "*" && match[0] != policyTag(all[:made]) {
			return errPoliciesChanged()
		}
		err := c.h.policies.ReplacePolicies(c.ctx, all[:made], next)
		if errors.Is(err, store.ErrChanged) && match[0] == "*" && c.ctx.Err() == nil {
			continue
		}
		if errors.Is(err, store.ErrChanged) {
			return errPoliciesChanged()
		}
		if err != nil {
			return err
		}
		return c.replyPolicies(c.h.policies.Policies())
	}
}

func errPoliciesChanged() *problem {
	p := ofKind(store.KindChanged, "the policies are not those of If-Match: read them again")
	p.title = "Policies changed"
	return p
}

// explainPolicy replies which policy a key has, and why not another.
func explainPolicy(c *call) error {
	key := c.query.Get("key")
	err := store.CheckKey(key)
	if err != nil {
		return err
	}
	namespace := c.namespace()
	if c.inNamespace {
		if namespace == "" { // of a policy it would mean any
			return invalid("namespace", "it is empty")
		}
		if err := (quipu.Options{Policies: []quipu.Policy{{Namespace: namespace, Pattern: "*"}}}).Validate(); err != nil {
			return err
		}
	}
	all, made := c.h.policies.Policies()
	b := append(c.out[:0], `{"namespace":`...)
	b = appendString(b, namespace)
	b = append(b, `,"key":`...)
	b = appendString(b, key)
	effective := quipu.Policy{Pattern: "*"}
	var others []byte
	held := false
	for i, p := range all {
		switch {
		case !p.Names(namespace, key):
		case !held:
			held, effective = true, p
			b = append(b, `,"holds":`...)
			b = append(appendPlaced(b, p, i, made), '}')
		default:
			if others != nil {
				others = append(others, ',')
			}
			others = append(appendPlaced(others, p, i, made), '}')
		}
	}
	b = append(b, `,"effective":`...)
	b = appendPolicy(b, effective.Effective(), true)
	b = append(b, `,"others":[`...)
	b = append(append(b, others...), ']')
	if b, err = c.appendDefinition(b, namespace, key); err != nil {
		return err
	}
	c.out = append(b, "}\n"...)
	c.w.Header()["Cache-Control"] = cacheRevalidate
	return c.reply()
}

// appendDefinition appends the definition that holds for a key, and since when.
func (c *call) appendDefinition(b []byte, namespace, key string) ([]byte, error) {
	book, err := c.db.DefinitionOf(c.ctx, key)
	if err != nil || len(book.Definitions) == 0 {
		return b, err
	}
	text, err := json.Marshal(bookJSON(namespace, &book))
	if err != nil {
		return b, err
	}
	return append(append(b, `,"definition":`...), text...), nil
}

// appendPolicy appends a policy: what is not a default, or all of it.
func appendPolicy(b []byte, p quipu.Policy, all bool) []byte {
	between := byte('{')
	for _, s := range p.Settings() {
		if !s.Given && (!all || s.Value == nil) {
			continue
		}
		b = append(b, between, '"')
		b = append(b, jsonName(s.Name)...)
		b = append(b, '"', ':')
		switch v := s.Value.(type) {
		case int:
			b = strconv.AppendInt(b, int64(v), 10)
		case int64:
			b = strconv.AppendInt(b, v, 10)
		case bool:
			b = strconv.AppendBool(b, v)
		default: // text, or what is written as text
			b = appendString(b, fmt.Sprint(v))
		}
		between = ','
	}
	return append(b, '}')
}

// jsonName returns the name of a setting as JSON has it.
func jsonName(name string) string { return strings.ReplaceAll(name, "-", "_") }

// decodePolicies reads {"policies":[{"pattern":…},…]}.
func decodePolicies(body []byte) ([]quipu.Policy, error) {
	return decodeList(body, "policies", "policies", policy.Max, (*decoder).policy)
}

// policySettings are the settings of a policy in JSON.
var policySettings = []string{
	"shards", "max_shards", "floor", "ceiling", // integers
	"single", "partial", // true or false
	"preset", "namespace", "pattern", "durability", "spread", "cool_down", "timing", "interval", "stale",
}

// policy reads one policy.
func (d *decoder) policy(int) quipu.Policy {
	d.space()
	at := d.i
	settings, places := map[string]string{}, map[string]int{}
	d.begin('{', "policies")
	var seen uint
	for n := 0; d.more('}', n, "policies"); n++ {
		d.space()
		place := d.i
		i := d.member("policies", &seen, policySettings...)
		if i < 0 {
			break
		}
		name := policySettings[i]
		var value string
		switch {
		case i < 4:
			value = strconv.FormatInt(d.integer(name), 10)
		case i < 6:
			value = strconv.FormatBool(d.truth(name))
		default:
			value = d.text(name)
		}
		name = strings.ReplaceAll(name, "_", "-")
		settings[name], places[name] = value, place
	}
	if d.err != nil {
		return quipu.Policy{}
	}
	p, err := policy.Parse(settings)
	if err != nil {
		field, why := "policies", server.Detail(err)
		if e, ok := errors.AsType[*policy.SettingError](err); ok {
			at, field, why = places[e.Name], jsonName(e.Name), strings.TrimPrefix(why, e.Name+": ")
		}
		d.refuse(store.KindOf(err), at, field, why)
	}
	return p
}

// truth reads true or false.
func (d *decoder) truth(field string) bool {
	d.space()
	for _, word := range []string{"true", "false"} {
		if bytes.HasPrefix(d.b[d.i:], []byte(word)) {
			d.i += len(word)
			return word == "true"
		}
	}
	d.unlike(d.i, field, "want true or false")
	return false
}
