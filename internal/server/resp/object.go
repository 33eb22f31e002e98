package resp

import (
	"context"

	"github.com/quipudb/quipu/store"
)

// objectCommands are what tools ask about single keys and about memory.
func objectCommands() []*command {
	key := secondKey.used("RO")
	return []*command{
		{name: "OBJECT", arity: -2, group: "generic", since: "2.2.3", about: "Commands about how counters are kept.", subs: map[string]*command{
			"ENCODING": {name: "OBJECT|ENCODING", arity: 3, flags: flagRead, keys: key, plan: planObject(encodeEncoding), since: "2.2.3", syntax: "ENCODING <key>", about: "Returns how Redis would keep the value: int, embstr or raw."},
			"FREQ":     {name: "OBJECT|FREQ", arity: 3, flags: flagRead, keys: key, plan: planObject(func(e *encoder) { e.fail(string(errNoLFU)) }), since: "4.0.0", syntax: "FREQ <key>", about: "Refused: how often counters are used is not kept."},
			"IDLETIME": {name: "OBJECT|IDLETIME", arity: 3, flags: flagRead, keys: key, plan: planObject(func(e *encoder) { e.integer(0) }), since: "2.2.3", syntax: "IDLETIME <key>", about: "Returns 0: when counters were used is not kept."},
			"REFCOUNT": {name: "OBJECT|REFCOUNT", arity: 3, flags: flagRead, keys: key, plan: planObject(func(e *encoder) { e.integer(1) }), since: "2.2.3", syntax: "REFCOUNT <key>", about: "Returns 1: counters share no values."},
		}},
		{name: "MEMORY", arity: -2, group: "server", since: "4.0.0", about: "Commands about memory.", subs: map[string]*command{
			"USAGE":        {name: "MEMORY|USAGE", arity: -3, flags: flagRead, keys: key, plan: planMemoryUsage, since: "4.0.0", syntax: "USAGE <key> [SAMPLES <count>]", about: "Returns about how many bytes of memory a counter takes."},
			"STATS":        {name: "MEMORY|STATS", arity: 2, slow: memoryStats, since: "4.0.0", syntax: "STATS", about: "Returns what memory the server uses."},
			"DOCTOR":       {name: "MEMORY|DOCTOR", arity: 2, local: memoryDoctor, since: "4.0.0", syntax: "DOCTOR", about: "Names the metrics to look at."},
			"MALLOC-STATS": {name: "MEMORY|MALLOC-STATS", arity: 2, local: memoryMalloc, since: "4.0.0", syntax: "MALLOC-STATS", about: "There are none of the allocator's own."},
		}},
	}
}

const errNoLFU = wireError("ERR An LFU maxmemory policy is not selected, access frequency not tracked. " +
	"Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.")

// planObject plans a command that replies the same for every counter, and null for
// what is none.
func planObject(reply func(*encoder)) func(*cycle, *session, [][]byte) (encode, error) {
	return func(c *cycle, _ *session, args [][]byte) (encode, error) {
		return encodeIfExists(reply), c.get(args[2])
	}
}

func encodeEncoding(e *encoder) {
	if e.told == nil || e.told[0] == nil {
		e.text("int")
	} else {
		e.text(e.told[0].Encoding())
	}
}

func encodeIfExists(reply func(*encoder)) encode {
	return func(e *encoder, results []store.Result) {
		switch {
		case refusal(e, &results[0]):
		case results[0].Existed:
			reply(e)
		default:
			e.null()
		}
	}
}

// counterBytes is about what a counter takes in memory besides its key, while it is
// there: in the embedded store's table, and in its index.
const counterBytes = 64

func planMemoryUsage(c *cycle, _ *session, args [][]byte) (encode, error) {
	switch {
	case len(args) == 3:
	case len(args) == 5 && is(args[3], "SAMPLES"):
		if n, err := integer(args[4]); err != nil {
			return nil, err
		} else if n < 0 {
			return nil, errSyntax
		}
	default:
		return nil, errSyntax
	}
	bytes := int64(counterBytes + len(args[2]))
	return encodeIfExists(func(e *encoder) { e.integer(bytes) }), c.get(args[2])
}

// memoryStats replies those of Redis's figures that mean something here.
func memoryStats(ctx context.Context, s *session, _ [][]byte) error {
	m := readHeap()
	ctx, cancel := s.d.deadline(ctx)
	defer cancel()
	keys, err := s.db.Size(ctx)
	if err != nil {
		return err
	}
	fields := []struct {
		name  string
		value int64
	}{
		{"total.allocated", m.inUse},
		{"clients.slaves", 0},
		{"clients.normal", s.d.buffered.Load()},
		{"keys.count", keys},
		{"keys.bytes-per-key", counterBytes},
		{"allocator.allocated", m.allocated},
		{"allocator.active", m.inUse},
		{"allocator.resident", m.resident},
		{"allocator-fragmentation.bytes", m.inUse - m.allocated},
		{"rss-overhead.bytes", m.resident - m.inUse},
	}
	s.fields(len(fields))
	for _, f := range fields {
		s.text(f.name)
		s.integer(f.value)
	}
	return nil
}

func memoryDoctor(s *session, _ [][]byte) error {
	s.verbatim("There is no doctor here. The metrics whose names begin with quipu_memory_ and quipu_resp_ say what memory is used for.")
	return nil
}

func memoryMalloc(s *session, _ [][]byte) error {
	s.verbatim("Stats not supported for the current allocator")
	return nil
}
