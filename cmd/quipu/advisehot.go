package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/advise"
)

// adviseHotMax is for how many of a server's counters there is advice.
const adviseHotMax = 5

// A hotAdvice is what is advised for one hot counter, as it is printed.
type hotAdvice struct {
	hotCounter

	Policy  *policyJSON     `json:"policy"`  // that it has; nil is the defaults
	Advised *policyJSON     `json:"advised"` // the same, if nothing has to change
	Changes []advise.Change `json:"changes"`
	Notes   []string        `json:"notes"`

	has   string // where its policy comes from
	place string // where what is advised must stand; "" is anywhere
	few   bool   // too little was seen of it
}

// advise looks at a server, and advises for its hottest counters.
func (c *adviseCmd) advise(ctx context.Context, out *output, command *kong.Context, n advise.Needs) error {
	for _, flag := range []string{"writes-per-second", "bounded", "unique", "regions", "store", "pattern"} {
		if given(command, flag) {
			return usage("--addr measures that: leave out --%s", flag)
		}
	}
	switch {
	case c.For <= 0:
		return usage("--for %s: want a duration such as 10s", c.For)
	case n.Accuracy != "":
		if err := c.missing(&advise.Needs{Accuracy: n.Accuracy, Freshness: n.Freshness}); err != nil {
			return err
		}
		n.Freshness = max(n.Freshness, 0)
	case n.Freshness != unknown:
		return usage("--freshness needs --accuracy")
	}
	seen, err := c.look(ctx, out, &n)
	if err != nil {
		return err
	}
	if n.Reads == unknown {
		n.Reads = seen.reads + seen.resp
	}
	all, err := c.judge(ctx, n)
	if err != nil {
		return err
	}
	if c.JSON {
		raw, err := json.Marshal(map[string][]hotAdvice{"counters": all})
		return printRaw(out, raw, err)
	}
	if !slices.ContainsFunc(all, func(a hotAdvice) bool { return !a.few }) {
		writes := 0.0
		for _, a := range all {
			writes += c.seen(a.Rate)
		}
		return out.print("# Too little was seen in %s to advise: %s, %s; look longer with --for.",
			c.For, advise.Count(writes, "write"), advise.Count(c.seen(seen.reads+seen.resp), "read"))
	}
	return printHotAdvice(out, all)
}

// seen returns how many calls of a rate there were in the look.
func (c *adviseCmd) seen(rate float64) float64 { return math.Round(rate * c.For.Seconds()) }

// look returns the rates of a server, and notes its store.
func (c *adviseCmd) look(ctx context.Context, out *output, n *advise.Needs) (rates, error) {
	before, err := c.sample(ctx)
	if err != nil {
		return rates{}, err
	}
	out.hint(fmt.Sprintf("watching %s for %s", c.Addr, c.For))
	begin := time.Now()
	select {
	case <-time.After(c.For):
	case <-ctx.Done():
		return rates{}, ctx.Err()
	}
	after, err := c.sample(ctx)
	if err != nil {
		return rates{}, err
	}
	seen := after.since(before, time.Since(begin))
	n.Store = after.store()
	out.hint(fmt.Sprintf("store %s: %s a second, and %s a second that may be reads too", n.Store,
		advise.Count(seen.reads, "read"), advise.Count(seen.resp, "RESP command")))
	return seen, nil
}

// judge advises for the hottest counters of the server.
func (c *adviseCmd) judge(ctx context.Context, n advise.Needs) ([]hotAdvice, error) {
	raw, err := (&hotCmd{Addr: c.Addr, APIKey: c.APIKey, Limit: adviseHotMax}).ask(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]hotAdvice, len(raw))
	for i := range raw {
		a := &all[i]
		if err := json.Unmarshal(raw[i], &a.hotCounter); err != nil {
			return nil, fmt.Errorf("decode the reply of %s: %w", c.Addr, err)
		}
		k := policyKey{remote: remote{Addr: c.Addr, APIKey: c.APIKey, Namespace: word(a.Namespace)}, Key: word(a.Key)}
		e, _, err := k.ask(ctx)
		if err != nil {
			return nil, err
		}
		h := advise.Hot{Namespace: a.Namespace, Key: a.Key, Writes: a.Rate, Shards: a.Shards, Waiting: a.WaitingRatio, Asked: a.ValueRatio, Decided: a.DecidedRatio}
		a.has = "the defaults: no policy names it"
		if e.Holds != nil {
			h.Policy, a.Policy = e.Holds.Policy.Policy, &e.Holds.Policy
			a.has = e.Holds.place() + ": " + h.Policy.String()
		}
		if a.few = c.seen(a.Rate) < advise.SeenMin; a.few {
			a.Advised, a.Changes = a.Policy, []advise.Change{}
			a.Notes = []string{fmt.Sprintf("too little was seen of it in %s to advise: %s; look longer with --for", c.For, advise.Count(c.seen(a.Rate), "write"))}
			continue
		}
		v, err := advise.Judge(h, n)
		if err != nil {
			return nil, usage("%w", err)
		}
		a.Advised, a.Changes, a.Notes = a.Policy, v.Changes, v.Notes
		if len(v.Changes) > 0 {
			a.Advised, a.place = &policyJSON{Policy: v.Policy}, placeFor(v.Policy, e.Holds)
		}
	}
	return all, nil
}

// placeFor says where a policy for one key must stand to hold instead of the one
// that holds for it.
func placeFor(p quipu.Policy, holds *placed) string {
	switch {
	case holds == nil:
		return ""
	case holds.Policy.Namespace == p.Namespace && holds.Policy.Pattern == p.Pattern:
		return "replaces that one"
	case holds.Source == sourceAPI:
		return "would come after that one in a configuration file, and never hold: make it with quipu policy set, which puts it before"
	}
	return fmt.Sprintf("must stand before %s in the configuration file, or be made with quipu policy set: the first that names a key holds", strconv.Quote(holds.Policy.Pattern))
}

// printHotAdvice prints advice as a configuration file: what should change as
// policies, and the rest as comments.
func printHotAdvice(out *output, all []hotAdvice) error {
	var b strings.Builder
	var policies []string
	for _, a := range all {
		fmt.Fprintf(&b, "# %s in %s: %s a second through this server, over %s\n", printable(a.Key), a.Namespace, advise.Count(a.Rate, "write"), cellsText(a.Shards))
		fmt.Fprintf(&b, "#   it has %s\n", a.has)
		for _, change := range a.Changes {
			fmt.Fprintf(&b, "#   change %s from %s to %s: %s\n", change.Setting, change.From, change.To, change.Why)
		}
		switch {
		case a.few:
		case len(a.Changes) == 0:
			b.WriteString("#   nothing has to change in it\n")
		case strings.Contains(a.Key, "*"):
			b.WriteString("#   no policy can name it alone, since its key has a *: change the one that it has\n")
		default:
			policies = append(policies, "  - "+a.Advised.String())
			if a.place != "" {
				fmt.Fprintf(&b, "#   its policy below %s\n", a.place)
			}
		}
		for _, note := range a.Notes {
			fmt.Fprintf(&b, "#   note: %s\n", note)
		}
	}
	if policies != nil {
		b.WriteString("policies:\n" + strings.Join(policies, "\n") + "\n")
	}
	return out.print("%s", strings.TrimSuffix(b.String(), "\n"))
}

func cellsText(n int) string {
	if n == 1 {
		return "one cell"
	}
	return strconv.Itoa(n) + " cells"
}
