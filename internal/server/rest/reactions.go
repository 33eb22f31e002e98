package rest

import (
	"context"
	"strconv"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/store"
)

// A reaction is what became of what a user chose.
type reaction struct {
	Key        string           `json:"key"`
	User       string           `json:"user"`
	Choice     string           `json:"choice"`
	Before     string           `json:"before"`
	Changed    bool             `json:"changed"`
	Counts     map[string]int64 `json:"counts,omitempty"`
	Version    *uint64          `json:"version,omitempty"`
	Replayed   bool             `json:"replayed"`
	Durability string           `json:"durability"`
	Session    string           `json:"session,omitempty"`
}

func react(c *call) error {
	raw, err := c.body(bodyBytesMax)
	if err != nil {
		return err
	}
	choice, err := decodeChoice(raw)
	if err != nil {
		return err
	}
	return c.reacted(func(ctx context.Context, key, user string, opts ...quipu.WriteOption) (quipu.Reaction, error) {
		return c.db.React(ctx, key, user, choice, opts...)
	})
}

func unreact(c *call) error {
	raw, err := c.body(bodyBytesMax)
	if err != nil {
		return err
	}
	if err := decodeNothing(raw); err != nil {
		return err
	}
	return c.reacted(c.db.Unreact)
}

// reacted makes a reaction, and replies what became of it.
func (c *call) reacted(do func(ctx context.Context, key, user string, opts ...quipu.WriteOption) (quipu.Reaction, error)) error {
	if err := c.writeOptions(); err != nil {
		return err
	}
	if _, guarded, _ := c.precondition(); guarded {
		return invalid("If-Match", "a reaction has no version")
	}
	r, err := do(c.ctx, c.args.key, c.args.user, c.opts...)
	if err != nil {
		return err
	}
	if r.Replayed {
		c.w.Header()["Idempotent-Replayed"] = replayedTrue
	}
	out := reaction{
		Key: r.Key, User: r.User, Choice: r.Choice, Before: r.Before, Changed: r.Changed, Counts: countsOf(r.Counts),
		Replayed: r.Replayed, Durability: r.Durability.String(), Session: r.Session(),
	}
	if r.Version != 0 {
		out.Version = &r.Version
	}
	return c.json(out)
}

func countsOf(counts []quipu.ChoiceCount) map[string]int64 {
	if len(counts) == 0 {
		return nil
	}
	out := make(map[string]int64, len(counts))
	for _, n := range counts {
		out[n.Choice] = n.Users
	}
	return out
}

// chosen replies what one user has chosen of one counter.
func chosen(c *call) error {
	choices, err := c.db.Choice(c.ctx, c.args.user, c.args.key)
	if err != nil {
		return err
	}
	return c.json(struct {
		Key    string `json:"key"`
		User   string `json:"user"`
		Choice string `json:"choice"`
	}{c.args.key, c.args.user, choices[0]})
}

// chosenOf replies what one user has chosen of many counters.
func chosenOf(c *call) error {
	raw, err := c.body(batchBytesMax)
	if err != nil {
		return err
	}
	user, keys, err := decodeChosen(raw)
	if err != nil {
		return err
	}
	if err := c.permitKeys(len(keys), func(i int) string { return keys[i] }); err != nil {
		return err
	}
	choices, err := c.db.Choice(c.ctx, user, keys...)
	if err != nil {
		return err
	}
	out := struct {
		User    string            `json:"user"`
		Choices map[string]string `json:"choices"`
	}{user, make(map[string]string, len(keys))}
	for i, key := range keys {
		out.Choices[key] = choices[i]
	}
	return c.json(out)
}

// reactionsOf replies how many users have each choice of a counter.
func reactionsOf(c *call) error {
	all, err := c.db.Reactions(c.ctx, c.args.key)
	if err != nil {
		return err
	}
	return c.json(struct {
		Key    string           `json:"key"`
		Counts map[string]int64 `json:"counts"`
		Users  int64            `json:"users"`
	}{all.Key, countsOf(all.Counts), all.Users})
}

// A member is a user who has a choice.
type member struct {
	User   string `json:"user"`
	Choice string `json:"choice"`
}

// members replies a page of the users of a counter.
func members(c *call) error {
	o := quipu.MembersOptions{Choice: c.query.Get("choice"), Cursor: c.query.Get("cursor")}
	var err error
	if o.Limit, err = c.count("limit"); err != nil {
		return err
	}
	if err := c.take(int64(min(o.Limit, quipu.MembersMax)) * entryBytes); err != nil {
		return err
	}
	p, err := c.db.Members(c.ctx, c.args.key, o)
	if err != nil {
		return err
	}
	out := struct {
		Key     string   `json:"key"`
		Members []member `json:"members"`
		Next    string   `json:"next,omitempty"`
	}{c.args.key, make([]member, len(p.Members)), p.Next}
	for i, m := range p.Members {
		out.Members[i] = member{m.User, m.Choice}
	}
	return c.json(out)
}

// decodeChoice reads {"choice":"like"}.
func decodeChoice(body []byte) (choice string, err error) {
	d := decoder{b: body}
	d.begin('{', "body")
	var seen uint
	for n := 0; d.more('}', n, "body"); n++ {
		if d.member("body", &seen, "choice") == 0 {
			choice = d.text("choice")
		}
	}
	if d.err == nil && seen == 0 {
		d.fail(d.i, "choice", `it is missing; want {"choice":"like"}`)
	}
	return choice, d.end()
}

// decodeChosen reads {"user":"ana","keys":["post:1",…]}.
func decodeChosen(body []byte) (user string, keys []string, err error) {
	d := decoder{b: body}
	d.begin('{', "body")
	var seen uint
	for n := 0; d.more('}', n, "body"); n++ {
		switch d.member("body", &seen, "user", "keys") {
		case 0:
			user = d.text("user")
		case 1:
			d.begin('[', "keys")
			for i := 0; d.more(']', i, "keys"); i++ {
				if i == quipu.KeysMax {
					d.refuse(store.KindTooLarge, d.i, "keys", "more than "+strconv.Itoa(quipu.KeysMax)+" keys")
					break
				}
				keys = append(keys, d.text("keys"))
			}
		}
	}
	const both = 1<<0 | 1<<1
	if d.err == nil && seen != both {
		d.fail(d.i, "body", `want {"user":"ana","keys":["post:1"]}`)
	}
	return user, keys, d.end()
}
