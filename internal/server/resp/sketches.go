package resp

import (
	"slices"

	"github.com/quipudb/quipu/internal/keyspace"
	"github.com/quipudb/quipu/store"
)

// A key may hold a sketch: see package keyspace, which executes the commands on them on a snapshot of their
// keys. PFADD needs none: it is one delta, and those of many callers are one batch.

const errNotUniques = wireError("WRONGTYPE Key is not a valid HyperLogLog string value.")

func sketchCommands() []*command {
	uniques := []*command{
		{name: "PFADD", arity: -2, flags: flagGrow | writes, keys: oneKey.used("RW insert"), plan: planPFAdd, since: "2.8.9", about: "Adds items to a sketch of uniques."},
		{name: "PFCOUNT", arity: -2, flags: flagText | flagRead, keys: allKeys.used("RW access"), slow: textCommand, since: "2.8.9", about: "Returns how many different items sketches have together."},
		{name: "PFMERGE", arity: -2, flags: flagText | flagGrow | flagWrite, keys: allKeys.used("RW access insert", "RO access"), slow: textCommand, since: "2.8.9", about: "Merges sketches of uniques into one."},
	}
	filters := []*command{
		{name: "BF.RESERVE", arity: -4, flags: flagText | flagGrow | writes, keys: oneKey.used("RW insert"), since: "1.0.0", about: "Makes a filter of a capacity and an error rate."},
		{name: "BF.ADD", arity: 3, flags: flagText | flagGrow | writes, keys: oneKey.used("RW insert"), since: "1.0.0", about: "Adds an item to a filter."},
		{name: "BF.MADD", arity: -3, flags: flagText | flagGrow | writes, keys: oneKey.used("RW insert"), since: "1.0.0", about: "Adds items to a filter."},
		{name: "BF.INSERT", arity: -4, flags: flagText | flagGrow | writes, keys: oneKey.used("RW insert"), since: "1.0.0", about: "Adds items to a filter, which it makes as it is told."},
		{name: "BF.EXISTS", arity: 3, flags: flagText | reads, keys: oneKey.used("RO access"), since: "1.0.0", about: "Returns whether an item was added to a filter."},
		{name: "BF.MEXISTS", arity: -3, flags: flagText | reads, keys: oneKey.used("RO access"), since: "1.0.0", about: "Returns which items were added to a filter."},
		{name: "BF.INFO", arity: -2, flags: flagText | reads, keys: oneKey.used("RO access"), since: "1.0.0", about: "Returns how large a filter is, and how full."},
		{name: "BF.CARD", arity: 2, flags: flagText | reads, keys: oneKey.used("RO access"), since: "2.4.4", about: "Returns how many items were added to a filter."},
	}
	counts := []*command{
		{name: "CMS.INITBYDIM", arity: 4, flags: flagText | flagGrow | writes, keys: oneKey.used("RW insert"), since: "2.0.0", about: "Makes a sketch of frequencies of a width and a depth."},
		{name: "CMS.INITBYPROB", arity: 4, flags: flagText | flagGrow | writes, keys: oneKey.used("RW insert"), since: "2.0.0", about: "Makes a sketch of frequencies that is seldom wrong by more than a share."},
		{name: "CMS.INCRBY", arity: -4, flags: flagText | writes, keys: oneKey.used("RW update"), since: "2.0.0", about: "Counts items in a sketch of frequencies."},
		{name: "CMS.QUERY", arity: -3, flags: flagText | reads, keys: oneKey.used("RO access"), since: "2.0.0", about: "Returns how often items came."},
		{name: "CMS.MERGE", arity: -4, flags: flagText | flagWrite, keys: oneKey.used("RW update"), since: "2.0.0", about: "Makes a sketch of frequencies the sum of others."},
		{name: "CMS.INFO", arity: 2, flags: flagText | reads, keys: oneKey.used("RO access"), since: "2.0.0", about: "Returns the size of a sketch of frequencies, and its total."},
	}
	tops := []*command{
		{name: "TOPK.RESERVE", arity: -3, flags: flagText | flagGrow | writes, keys: oneKey.used("RW insert"), since: "2.0.0", about: "Makes a list of the most frequent items."},
		{name: "TOPK.ADD", arity: -3, flags: flagText | writes, keys: oneKey.used("RW update"), since: "2.0.0", about: "Counts items in a top list."},
		{name: "TOPK.INCRBY", arity: -4, flags: flagText | writes, keys: oneKey.used("RW update"), since: "2.0.0", about: "Counts amounts of items in a top list."},
		{name: "TOPK.QUERY", arity: -3, flags: flagText | reads, keys: oneKey.used("RO access"), since: "2.0.0", about: "Returns which items are in a top list."},
		{name: "TOPK.COUNT", arity: -3, flags: flagText | reads, keys: oneKey.used("RO access"), since: "2.0.0", about: "Returns how often items came."},
		{name: "TOPK.LIST", arity: -2, flags: flagText | reads, keys: oneKey.used("RO access"), since: "2.0.0", about: "Returns the most frequent items."},
		{name: "TOPK.INFO", arity: 2, flags: flagText | reads, keys: oneKey.used("RO access"), since: "2.0.0", about: "Returns the size of a top list."},
	}
	for _, c := range slices.Concat(filters, counts, tops) {
		c.slow = textCommand
	}
	return slices.Concat(grouped("hyperloglog", uniques), grouped("bf", filters), grouped("cms", counts), grouped("topk", tops))
}

func planPFAdd(c *cycle, _ *session, args [][]byte) (encode, error) {
	d, err := c.delta(store.OpMerge, args[1])
	if err != nil {
		return nil, err
	}
	d.Event = &store.Event{Part: store.Object, Bytes: keyspace.UniquesAsk(args[2:])}
	c.db.Port().FoundText() // What comes after it may meet the sketch.
	return encodePFAdd, nil
}

// encodePFAdd replies whether the sketch has changed.
func encodePFAdd(e *encoder, results []store.Result) {
	switch r := &results[0]; {
	case r.Outcome == store.Unmet:
		e.fail(string(errNotUniques))
	case !refusal(e, r):
		e.flag(r.Before != 0)
	}
}
