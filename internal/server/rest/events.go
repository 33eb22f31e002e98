package rest

import (
	"errors"
	"net/url"
	"strings"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/access"
	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/store"
)

// A mapping says where in an event that somebody else has made is what it counts: paths to
// attributes, or to members of its data. What is not given is as in defaultMapping.
type mapping struct {
	key    []string // joined by colons; nil for data.key, or else subject, or else type
	amount string   // "" for data.amount, or else 1
	who    string   // "" for data.who
	dims   []part   // nil for the members of data.dims
}

// A part is a dimension, and the path to its value.
type part struct{ name, path string }

// mappingOf reads the parameters key, amount, who and dims.
func mappingOf(q url.Values) (m mapping, err error) {
	one := func(name string) string {
		if q.Has(name) && err == nil {
			err = checkPath(name, q.Get(name))
		}
		return q.Get(name)
	}
	m.amount, m.who = one("amount"), one("who")
	if q.Has("key") {
		for path := range strings.SplitSeq(q.Get("key"), ",") {
			m.key = append(m.key, path)
			err = errors.Join(err, checkPath("key", path))
		}
	}
	if q.Has("dims") {
		for text := range strings.SplitSeq(q.Get("dims"), ",") {
			name, path, named := strings.Cut(text, ":")
			if !named {
				path = name
				name = path[strings.LastIndexByte(path, '.')+1:]
			}
			m.dims = append(m.dims, part{name, path})
			err = errors.Join(err, checkPath("dims", path))
		}
	}
	if len(m.dims) > quipu.DimsMax {
		return m, invalid("dims", "too many")
	}
	if p, ok := errors.AsType[*problem](err); ok { // the first of them
		return m, p
	}
	return m, nil
}

// checkPath returns an error if a path can't be one.
func checkPath(field, path string) error {
	if path == "" || strings.HasPrefix(path, ".") || strings.HasSuffix(path, ".") || strings.Contains(path, "..") {
		return invalid(field, "want the name of an attribute, or a path such as data.user.id, not "+quoted([]byte(path)))
	}
	return nil
}

// event returns what an event counts.
func (m *mapping) event(e *cloudEvent) (quipu.Event, error) {
	out := quipu.Event{Delta: 1}
	err := e.check()
	if err != nil {
		return out, err
	}
	out.Token = e.token()
	if out.At, err = e.at(); err != nil {
		return out, err
	}
	if out.Key, err = m.keyOf(e); err != nil {
		return out, err
	}
	amount := e.find("data.amount")
	if m.amount != "" {
		if amount = e.find(m.amount); amount == nil {
			return out, invalid("amount", "the event has no "+m.amount)
		}
	}
	if amount != nil {
		d := decoder{b: amount}
		out.Delta = d.integer("amount")
		if d.end() != nil {
			return out, invalid("amount", wantInteger+", not "+quoted(amount))
		}
	}
	who := "data.who"
	if m.who != "" {
		who = m.who
	}
	out.Who, _ = scalar(e.find(who))
	return out, m.dimsOf(e, &out)
}

func (m *mapping) keyOf(e *cloudEvent) (string, error) {
	if m.key == nil {
		for _, path := range []string{"data.key", "subject", "type"} {
			if text, ok := scalar(e.find(path)); ok {
				return text, nil
			}
		}
	}
	parts := make([]string, len(m.key))
	for i, path := range m.key {
		var ok bool
		if parts[i], ok = scalar(e.find(path)); !ok {
			return "", invalid("key", "the event has no "+path+" that is text or a number")
		}
	}
	return strings.Join(parts, ":"), nil
}

// dimsOf adds the dimensions of an event. One that it does not have is left out.
func (m *mapping) dimsOf(e *cloudEvent, out *quipu.Event) (err error) {
	add := func(name string, value []byte) {
		text, ok := scalar(value)
		switch {
		case !ok:
		case len(out.Dims) == quipu.DimsMax:
			err = ofKind(store.KindTooLarge, "dims: too many of them")
		default:
			out.Dims = append(out.Dims, quipu.Dimension{Name: name, Value: text})
		}
	}
	if m.dims == nil {
		eachMember(e.find("data.dims"), add)
	}
	for _, p := range m.dims {
		add(p.name, e.find(p.path))
	}
	return err
}

// events counts events of the CloudEvents specification, each once.
func events(c *call) error {
	m, err := mappingOf(c.query)
	if err != nil {
		return err
	}
	if token, err := c.token(); err != nil || token != "" {
		return invalid(tokenHeader, "leave it out: the source and the id of an event are its token")
	}
	if _, guarded, _ := c.precondition(); guarded {
		return invalid("If-Match", "an event has no version")
	}
	raw, err := c.body(batchBytesMax)
	if err != nil {
		return err
	}
	came, batch, err := decodeCloudEvents(c.r.Header, raw)
	if err != nil {
		return err
	}
	all := make([]quipu.Event, 0, len(came))
	receipts := make([]quipu.Receipt, len(came))
	places := make([]int, 0, len(came)) // in receipts
	for i := range came {
		e, err := m.event(&came[i])
		if receipts[i].Key = e.Key; err != nil {
			receipts[i].Err = err
			continue
		}
		e.WantValue = !c.minimal()
		all, places = append(all, e), append(places, i)
	}
	if err := c.permitKeys(len(all), func(i int) string { return all[i].Key }); err != nil {
		return err
	}
	if err := c.pay(access.Cost{Writes: int64(max(len(all)-1, 0))}); err != nil {
		return err
	}
	if len(all) > 0 {
		done, err := c.db.AddBatch(c.ctx, all)
		if err != nil {
			return err
		}
		for i, place := range places {
			receipts[place] = done[i]
		}
	}
	if !batch {
		if err := receipts[0].Err; err != nil {
			return ofEvent(err)
		}
		return c.receipt(&receipts[0], true)
	}
	return c.eventReceipts(receipts)
}

// eventReceipts replies event by event. If something may still become of one, the whole
// call has no outcome yet: senders look at the status, and send it again.
func (c *call) eventReceipts(receipts []quipu.Receipt) error {
	for i := range receipts {
		if err := receipts[i].Err; err != nil && pending(err) {
			return store.Errorf(store.KindUnknown, "event %d: %w", i, err)
		}
		if receipts[i].Err != nil {
			receipts[i].Err = ofEvent(receipts[i].Err)
			c.log(problemOf(receipts[i].Err, server.Detail))
		}
	}
	c.out = appendReceipts(c.out[:0], receipts, func(int) string { return "id" })
	return c.reply()
}

// pending reports whether something else may become of an event that is sent again.
func pending(err error) bool {
	k := store.KindOf(err)
	return k == store.KindUnavailable || k == store.KindUnknown || k == store.KindClosed || k == store.KindLost
}

// ofEvent says of an error with a token that it is about the id of the event.
func ofEvent(err error) error { return problemOf(err, server.Detail).of("id") }
