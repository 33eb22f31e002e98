package rest

import (
	"errors"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/server"
)

// A reservation is one as it is replied.
type reservation struct {
	ID        string     `json:"id"`
	Key       string     `json:"key"`
	Amount    int64      `json:"amount"`
	Who       string     `json:"who,omitempty"`
	State     string     `json:"state"`
	Committed *int64     `json:"committed,omitempty"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	*stock
	Replayed   *bool  `json:"replayed,omitempty"`
	Durability string `json:"durability,omitempty"`
}

// A stock is what a counter has that has reservations.
type stock struct {
	Value     int64 `json:"value"`
	Reserved  int64 `json:"reserved"`
	Available int64 `json:"available"`
	Open      int64 `json:"open"`
	Exact     bool  `json:"exact"`
}

func stockOf(s *quipu.Stock) *stock { return &stock{s.Value, s.Reserved, s.Available, s.Open, s.Exact} }

func reservationOf(r *quipu.Reservation) reservation {
	out := reservation{ID: r.ID, Key: r.Key, Amount: r.Amount, Who: r.Who, State: r.State.String(), ExpiresAt: given(r.ExpiresAt)}
	if r.State == quipu.HoldCommitted {
		out.Committed = &r.Committed
	}
	if r.HasStock {
		out.stock = stockOf(&r.Stock)
	}
	return out
}

// held replies what became of a step in the life of a reservation.
func (c *call) held(r *quipu.Reservation) error {
	if r.Replayed {
		c.w.Header()["Idempotent-Replayed"] = replayedTrue
	}
	out := reservationOf(r)
	out.Replayed, out.Durability = &r.Replayed, r.Durability.String()
	return c.json(out)
}

// stepOptions returns what the headers of such a step ask for. It happens once by itself, so
// a token names nothing more.
func (c *call) stepOptions() (opts []quipu.WriteOption, err error) {
	if _, err := c.token(); err != nil {
		return nil, err
	}
	if _, guarded, _ := c.precondition(); guarded {
		return nil, invalid("If-Match", "a reservation has no version")
	}
	if c.minimal() {
		c.w.Header()["Preference-Applied"] = appliedMinimal
		return nil, nil
	}
	return []quipu.WriteOption{quipu.WantValue()}, nil
}

func reserve(c *call) error {
	raw, err := c.body(bodyBytesMax)
	if err != nil {
		return err
	}
	want, err := decodeReserve(raw)
	if err != nil {
		return err
	}
	opts, err := c.stepOptions()
	if err != nil {
		return err
	}
	if token, _ := c.token(); token != "" {
		opts = append(opts, quipu.Token(token))
	}
	if want.who != "" {
		opts = append(opts, quipu.Who(want.who))
	}
	if want.floor != nil {
		opts = append(opts, quipu.Floor(*want.floor))
	}
	r, err := c.db.Reserve(c.ctx, c.args.key, want.amount, want.ttl, opts...)
	if err != nil {
		return notReserved(err)
	}
	return c.held(&r)
}

// notReserved returns the error of a reservation, which tells what was asked for and what is
// available.
func notReserved(err error) error {
	b, ok := errors.AsType[*quipu.BoundError](err)
	if !ok {
		return err
	}
	p := problemOf(err, server.Detail)
	asked := *b
	asked.Asked = -b.Asked
	p.bound, p.available = &asked, &asked.Value
	return p
}

func commit(c *call) error {
	raw, err := c.body(bodyBytesMax)
	if err != nil {
		return err
	}
	amount, err := decodeCommit(raw)
	if err != nil {
		return err
	}
	return c.step(func(opts []quipu.WriteOption) (quipu.Reservation, error) {
		return c.db.Commit(c.ctx, c.args.id, amount, opts...)
	})
}

func release(c *call) error {
	raw, err := c.body(bodyBytesMax)
	if err != nil {
		return err
	}
	if err := decodeNothing(raw); err != nil {
		return err
	}
	return c.step(func(opts []quipu.WriteOption) (quipu.Reservation, error) {
		return c.db.Release(c.ctx, c.args.id, opts...)
	})
}

func extend(c *call) error {
	raw, err := c.body(bodyBytesMax)
	if err != nil {
		return err
	}
	ttl, err := decodeExtend(raw)
	if err != nil {
		return err
	}
	return c.step(func(opts []quipu.WriteOption) (quipu.Reservation, error) {
		return c.db.Extend(c.ctx, c.args.id, ttl, opts...)
	})
}

// step makes a step in the life of a reservation.
func (c *call) step(do func(opts []quipu.WriteOption) (quipu.Reservation, error)) error {
	opts, err := c.stepOptions()
	if err != nil {
		return err
	}
	r, err := do(opts)
	if err != nil {
		return err
	}
	return c.held(&r)
}

// reserved replies what has become of a reservation.
func reserved(c *call) error {
	r, err := c.db.Reservation(c.ctx, c.args.id)
	if err != nil {
		return err
	}
	return c.json(reservationOf(&r))
}

// reservedOf replies a page of the open reservations of a counter.
func reservedOf(c *call) error {
	key := c.query.Get("key")
	if key == "" {
		return invalid("key", "name the counter: ?key=…")
	}
	o := quipu.ReservationOptions{Who: c.query.Get("who"), Cursor: c.query.Get("cursor")}
	var err error
	if o.Limit, err = c.count("limit"); err != nil {
		return err
	}
	if err := c.take(int64(min(o.Limit, quipu.ReservationsMax)) * entryBytes); err != nil {
		return err
	}
	p, err := c.db.Reservations(c.ctx, key, o)
	if err != nil {
		return err
	}
	out := struct {
		Key string `json:"key"`
		*stock
		Reservations []reservation `json:"reservations"`
		Next         string        `json:"next,omitempty"`
	}{key, stockOf(&p.Stock), make([]reservation, len(p.Reservations)), p.Next}
	for i := range p.Reservations {
		out.Reservations[i] = reservationOf(&p.Reservations[i])
	}
	return c.json(out)
}

// A wanted is what is to be reserved.
type wanted struct {
	amount int64
	ttl    time.Duration
	who    string
	floor  *int64
}

// decodeReserve reads {"amount":1,"ttl":"30s","who":…,"floor":…}, of which the ttl must be
// there; the amount is 1 if it is not.
func decodeReserve(body []byte) (w wanted, err error) {
	w.amount = 1
	d := decoder{b: body}
	d.begin('{', "body")
	var seen uint
	for n := 0; d.more('}', n, "body"); n++ {
		switch d.member("body", &seen, "amount", "ttl", "who", "floor") {
		case 0:
			w.amount = d.integer("amount")
		case 1:
			w.ttl = d.lifetime()
		case 2:
			w.who = d.text("who")
		case 3:
			w.floor = new(d.integer("floor"))
		}
	}
	if d.err == nil && seen&(1<<1) == 0 {
		d.fail(d.i, "ttl", `it is missing; want {"amount":1,"ttl":"30s"}`)
	}
	return w, d.end()
}

// decodeCommit reads {"amount":1}; without it all is committed.
func decodeCommit(body []byte) (amount int64, err error) {
	amount = quipu.All
	d := decoder{b: body}
	if d.empty() {
		return amount, nil
	}
	d.begin('{', "body")
	var seen uint
	for n := 0; d.more('}', n, "body"); n++ {
		if d.member("body", &seen, "amount") == 0 {
			d.space()
			at := d.i
			if amount = d.integer("amount"); amount < 0 {
				d.fail(at, "amount", "want 0 or more")
			}
		}
	}
	return amount, d.end()
}

// decodeExtend reads {"ttl":"30s"}.
func decodeExtend(body []byte) (ttl time.Duration, err error) {
	d := decoder{b: body}
	d.begin('{', "body")
	var seen uint
	for n := 0; d.more('}', n, "body"); n++ {
		if d.member("body", &seen, "ttl") == 0 {
			ttl = d.lifetime()
		}
	}
	if d.err == nil && seen == 0 {
		d.fail(d.i, "ttl", `it is missing; want {"ttl":"30s"}`)
	}
	return ttl, d.end()
}
