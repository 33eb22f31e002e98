package rest

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/quipudb/quipu/internal/access"
	"github.com/quipudb/quipu/internal/duration"
	"github.com/quipudb/quipu/internal/keyring"
	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/store"
)

// A keyOf is an API key as it is told. Its text is told once, to who made it.
type keyOf struct {
	ID        string        `json:"id"`
	Key       string        `json:"key,omitempty"`
	Name      string        `json:"name"`
	Grants    []string      `json:"grants"`
	Quota     *access.Quota `json:"quota,omitempty"`
	State     string        `json:"state"`
	CreatedAt time.Time     `json:"created_at"`
	By        string        `json:"by"`
	ExpiresAt *time.Time    `json:"expires_at,omitempty"`
	RevokedAt *time.Time    `json:"revoked_at,omitempty"`
	// FormerUntil is until when the secret before the last one is taken.
	FormerUntil *time.Time `json:"former_until,omitempty"`
}

func keyJSON(r *access.Record, text string, now time.Time) keyOf {
	k := keyOf{
		ID: r.ID, Key: text, Name: r.Name, Grants: r.Grants, State: "active", CreatedAt: time.UnixMilli(r.CreatedMS).UTC(), By: r.By,
		ExpiresAt: atMS(r.UntilMS), RevokedAt: atMS(r.RevokedMS),
	}
	if r.Quota != (access.Quota{}) {
		k.Quota = &r.Quota
	}
	switch {
	case r.RevokedMS != 0:
		k.State = "revoked"
	case !r.Live(now.UnixMilli()):
		k.State = "expired"
	}
	if len(r.Secrets) > 1 && now.UnixMilli() < r.Secrets[1].UntilMS {
		k.FormerUntil = atMS(r.Secrets[1].UntilMS)
	}
	return k
}

func atMS(ms int64) *time.Time {
	if ms == 0 {
		return nil
	}
	return new(time.UnixMilli(ms).UTC())
}

// ring returns the keys of the store.
func (c *call) ring() (*keyring.Ring, error) {
	if r := c.h.gate.Ring(); r != nil {
		return r, nil
	}
	return nil, store.Errorf(store.KindUnsupported, "this server keeps no API keys in its store")
}

// administers reports whether the caller may give and take all that a key is granted.
func (c *call) administers(k *access.Record) bool {
	for _, r := range k.Rules() {
		if !c.who.Covers(access.Admin, r) {
			return false
		}
	}
	return true
}

// mayChange refuses a change to a key by who does not administer all that it is granted.
func (c *call) mayChange(_ *access.Roll, k *access.Record) error {
	if c.administers(k) {
		return nil
	}
	v := c.who.In(c.namespace())
	_ = c.h.gate.Denied(&v, c.need)
	return &problem{
		status: http.StatusForbidden, kind: "forbidden", title: "Not granted",
		detail: c.who.Name + " does not administer all that this key is granted: " + strings.Join(k.Grants, ", "),
	}
}

func listKeys(c *call) error {
	ring, err := c.ring()
	if err != nil {
		return err
	}
	if err := ring.Load(c.ctx); err != nil {
		return err
	}
	out := struct {
		Keys []keyOf `json:"keys"`
	}{[]keyOf{}}
	all := ring.List()
	for i := range all {
		if c.administers(&all[i]) {
			out.Keys = append(out.Keys, keyJSON(&all[i], "", c.start))
		}
	}
	return c.secretJSON(out)
}

func createKey(c *call) error {
	ring, err := c.ring()
	if err != nil {
		return err
	}
	var body struct {
		Name    string       `json:"name"`
		Grants  []string     `json:"grants"`
		Quota   access.Quota `json:"quota"`
		Expires string       `json:"expires"`
	}
	if err := c.decodeJSON(&body); err != nil {
		return err
	}
	w := keyring.Wish{Name: body.Name, Grants: body.Grants, Quota: body.Quota, By: c.who.Name}
	if w.Life, err = lifeOf("expires", body.Expires); err != nil {
		return err
	}
	first := c.h.gate.Open()
	k, text, err := ring.Create(c.ctx, w, func(roll *access.Roll, k *access.Record) error {
		if err := c.mayChange(roll, k); err != nil {
			return err
		}
		if first && !roll.Administered(c.start.UnixMilli()) {
			return invalid("grants", `once a key exists, the server refuses callers without one: grant the first key "admin:*", or nobody could create another`)
		}
		return nil
	})
	if err != nil {
		return err
	}
	c.target = server.Clip(k.Describe())
	return c.secretJSON(keyJSON(&k, text, c.start))
}

func rotateKey(c *call) error {
	ring, err := c.ring()
	if err != nil {
		return err
	}
	var body struct {
		Grace string `json:"grace"`
	}
	if err := c.decodeJSON(&body); err != nil {
		return err
	}
	grace, err := lifeOf("grace", body.Grace)
	if err != nil {
		return err
	}
	k, text, err := ring.Rotate(c.ctx, c.args.id, grace, c.mayChange)
	if err != nil {
		return err
	}
	c.target = server.Clip(k.Describe())
	return c.secretJSON(keyJSON(&k, text, c.start))
}

func revokeKey(c *call) error {
	ring, err := c.ring()
	if err != nil {
		return err
	}
	raw, err := c.body(bodyBytesMax)
	if err != nil {
		return err
	}
	if err := decodeNothing(raw); err != nil {
		return err
	}
	k, err := ring.Revoke(c.ctx, c.args.id, func(roll *access.Roll, k *access.Record) error {
		if err := c.mayChange(roll, k); err != nil {
			return err
		}
		if c.who.ID == k.ID && !c.h.gate.Administered() && !roll.Administered(c.start.UnixMilli()) {
			return store.Errorf(store.KindInvalid, "this is the last key that can administer the server: create another first")
		}
		return nil
	})
	if err != nil {
		return err
	}
	c.target = server.Clip(k.Describe())
	return c.secretJSON(keyJSON(&k, "", c.start))
}

// lifeOf reads for how long something is to be; "" is 0.
func lifeOf(field, text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	const most = 100 * 366 * 24 * time.Hour
	d, err := duration.Parse(text)
	if err != nil || d <= 0 || d > most {
		return 0, invalid(field, "want a duration such as 24h or 90d, not "+strconv.Quote(text))
	}
	return d, nil
}

// decodeJSON reads a body that is an object, or is not there.
func (c *call) decodeJSON(into any) error {
	raw, err := c.body(bodyBytesMax)
	if err != nil || len(bytes.TrimSpace(raw)) == 0 {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return invalid("body", strings.TrimPrefix(err.Error(), "json: "))
	}
	if d.More() {
		return invalid("body", "something follows the value")
	}
	return nil
}

// secretJSON replies what no cache may keep.
func (c *call) secretJSON(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	c.out = append(append(c.out[:0], text...), '\n')
	c.w.Header()["Cache-Control"] = cacheNever
	return c.reply()
}

// auditDefault is how many acts are told if nobody says, and auditMost at most.
const (
	auditDefault = 100
	auditMost    = 1000
)

// auditTrail replies what administrators have done through this server.
func auditTrail(c *call) error {
	limit, err := c.count("limit")
	if err != nil {
		return err
	}
	if limit > auditMost {
		return invalid("limit", "want at most "+strconv.Itoa(auditMost))
	}
	if limit == 0 {
		limit = auditDefault
	}
	return c.secretJSON(struct {
		Acts []server.Act `json:"acts"`
	}{c.h.gate.Acts(limit)})
}
