// Package advise recommends a policy for a counter, so that nobody has to guess
// shards, intervals or stores.
//
// It makes the decisions for a sharded counter in the order of their cost:
// which cell decides a write, how many cells share the counter, when they are
// added up, and what an acknowledgement survives. It uses measured limits and
// gives its reasons. It promises that each recommended setting has a reason,
// and that each figure names the file in which it is recorded.
package advise

import (
	"fmt"
	"math"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/policy"
	"github.com/quipudb/quipu/store"
)

// An Accuracy is what a reader needs of a count.
type Accuracy string

// The accuracies.
const (
	Exact       Accuracy = "exact"       // every write acknowledged before the read
	Bounded     Accuracy = "bounded"     // may be old, and says how old; nothing acknowledged is lost
	Approximate Accuracy = "approximate" // a crash may lose some, an outage hide some
)

// An Engine is where counts are kept.
type Engine string

// The engines.
const (
	Embedded Engine = "embedded"
	Postgres Engine = "postgres"
	Redis    Engine = "redis"
)

// RateMax is the highest rate that there is advice for.
const RateMax = 1e12

// Needs are what is asked of a counter: the hottest that the policy names.
type Needs struct {
	Pattern   string
	Writes    float64 // a second
	Reads     float64 // a second
	Accuracy  Accuracy
	Freshness time.Duration // how old a read may be; 0 is not at all
	Bounded   bool          // it must not cross a floor or a ceiling
	Unique    bool          // it counts different things, each once
	Regions   int
	Nodes     int    // servers
	Store     Engine // "" leaves the choice
}

// Advice is a policy, why it is so, and what it will cost.
type Advice struct {
	Needs    Needs             `json:"-"`
	Policy   quipu.Policy      `json:"-"`
	Store    Engine            `json:"store"`
	Reasons  map[string]string `json:"reasons"` // by the name of a setting; "pattern" has that of the whole
	Cost     Cost              `json:"cost"`
	Notes    []string          `json:"notes"`    // what else is to be known
	Rejected []Rejected        `json:"rejected"` // what was considered
	NotBuilt []string          `json:"not_built"`
}

// Cost is what the counter is expected to take.
type Cost struct {
	Cells int `json:"cells"`
	// Calls of the store a second: for writes between Least, as they were
	// combined where that was measured, and Most, if none can be.
	WriteCallsLeast float64 `json:"write_calls_least"`
	WriteCallsMost  float64 `json:"write_calls_most"`
	ReadCalls       float64 `json:"read_calls"`
	Bytes           float64 `json:"bytes"` // of memory; 0 if it was not measured
	// Servers that writes and reads take together: over REST as increments were
	// measured embedded, whatever the store, since nothing else was; over RESP writes
	// as with the store, and reads as from memory.
	ServersREST int `json:"servers_rest"`
	ServersRESP int `json:"servers_resp"`
}

// A Rejected is a way that was considered.
type Rejected struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// For returns advice, or an error if the needs contradict themselves.
func For(n Needs) (*Advice, error) {
	if err := n.check(); err != nil {
		return nil, err
	}
	a := &Advice{
		Needs: n, Store: n.Store, Policy: quipu.Policy{Pattern: n.Pattern}, Reasons: map[string]string{},
		Notes: []string{}, Rejected: []Rejected{}, NotBuilt: []string{},
	}
	a.chooseStore()
	a.chooseCells()
	a.chooseTiming()
	a.chooseDurability()
	a.sayNotBuilt()
	a.reckon()
	if len(a.Reasons) == 0 {
		a.because("pattern", "the defaults do: a counter is one cell until it is hot, every read is exact, every acknowledgement survives power loss")
	}
	return a, nil
}

func (n *Needs) check() error {
	switch {
	case !(n.Writes >= 0 && n.Writes <= RateMax && n.Reads >= 0 && n.Reads <= RateMax):
		return fmt.Errorf("writes a second: %v, reads a second: %v: want numbers from 0 to %s", n.Writes, n.Reads, Number(RateMax))
	case n.Freshness < 0:
		return fmt.Errorf("freshness %s: want a duration such as 5s", n.Freshness)
	case n.Accuracy != Exact && n.Accuracy != Bounded && n.Accuracy != Approximate:
		return fmt.Errorf("accuracy %q: want %s, %s or %s", n.Accuracy, Exact, Bounded, Approximate)
	case n.Store != "" && n.Store != Embedded && n.Store != Postgres && n.Store != Redis:
		return fmt.Errorf("store %q: want %s, %s or %s", n.Store, Embedded, Postgres, Redis)
	case n.Nodes < 1 || n.Regions < 1:
		return fmt.Errorf("servers: %d, regions: %d: want one at least", n.Nodes, n.Regions)
	case n.Nodes > 1 && n.Store == Embedded:
		return fmt.Errorf("an embedded store has one server: %d need %s or %s", n.Nodes, Postgres, Redis)
	case n.Bounded && n.Unique:
		return fmt.Errorf("a count of distinct things can't have a floor or a ceiling: choose one of them")
	case n.Bounded && n.Accuracy != Exact:
		return fmt.Errorf("a counter with a floor or a ceiling is exact, so %s is not possible", n.Accuracy)
	}
	return nil
}

func (a *Advice) because(setting, format string, args ...any) {
	a.Reasons[setting] = fmt.Sprintf(format, args...)
}

func (a *Advice) note(format string, args ...any) {
	a.Notes = append(a.Notes, fmt.Sprintf(format, args...))
}

func (a *Advice) reject(what, format string, args ...any) {
	a.Rejected = append(a.Rejected, Rejected{what, fmt.Sprintf(format, args...)})
}

// chooseStore keeps what was asked for, or takes the one that needs the least.
func (a *Advice) chooseStore() {
	switch {
	case a.Store != "":
	case a.Needs.Nodes > 1:
		a.Store = Postgres
		a.note("%s: %d servers share a store, and of those it is the one that loses nothing at a failover with a synchronous standby", Postgres, a.Needs.Nodes)
	default:
		a.Store = Embedded
		a.note("%s: for one server, it needs nothing else", Embedded)
	}
}

// ceiling returns what one counter took in the store, of writes that each were
// durable when they were acknowledged.
func (a *Advice) ceiling() Figure {
	switch a.Store {
	case Postgres:
		return postgresHot
	case Redis:
		return redisHot
	default:
		return embeddedDeep
	}
}

// chooseCells says over how many cells a counter is laid out, and who decides.
func (a *Advice) chooseCells() {
	n, ceiling := a.Needs, a.ceiling()
	shards := max(1, math.Ceil(n.Writes/ceiling.Value))
	switch {
	case n.Bounded:
		a.Policy.Single = true
		a.because("single", "a floor or a ceiling is decided by one cell: shards that do not know each other would oversell")
		a.reject("shards", "each would need a part of the stock, and refuse while another has some left")
		a.note("the floor or the ceiling is part of a definition, which all servers share (docs/decided.md): definitions: [{pattern: ..., floor: 0}]")
		if shards > 1 {
			a.note("%s more than one cell took, %s: keep several counters, each with its own part of the stock", rate(n.Writes, "write"), ceiling)
		}
		return
	case a.Store == Embedded:
		a.reject("shards", "one log takes all writes of an embedded store: a hot counter is one record in it, whatever its cells")
		if shards > 1 {
			a.note("%s more than one embedded server took, %s: combine them in the client (docs/client.md: %s), or share a store among servers",
				rate(n.Writes, "write"), ceiling, clientStream)
		}
		return
	case shards > policy.ShardsMax:
		a.note("%s more than %d cells of %s: combine them in the client first (docs/client.md)", rate(n.Writes, "write"), policy.ShardsMax, ceiling)
		shards = policy.ShardsMax
		fallthrough
	case shards > 1:
		a.Policy.Shards = int(shards)
		a.because("shards", "%s a second, over the %s that one cell took, and rounded up", Count(n.Writes, "write"), ceiling)
		a.note("shards take adds that ask for no value: Prefer: return=minimal, or Q.ADD with NOVALUE")
	default:
		a.reject("shards from the start", "%s within the %s that one cell took; if it gets hotter, it is split without being told", rate(n.Writes, "write"), ceiling)
	}
	a.rejectByHand(n.Writes)
}

// rejectByHand says what the usual cures were measured to do.
func (a *Advice) rejectByHand(writes float64) {
	const perRow, perKey, spare = 1000, 10_000, 10 // of the rule of thumb
	if a.Store == Postgres {
		a.reject("rows by hand", "the rule of thumb, %d × rate ÷ %s a row, gives %s; 100 rows took %s",
			spare, Number(perRow), Count(math.Ceil(spare*writes/perRow), "row"), postgresByHand)
		return
	}
	a.reject("keys by hand", "the rule of thumb, %d × rate ÷ %s a key, gives %s to sum at every read; a plain INCR of one took %s",
		spare, Number(perKey), Count(math.Ceil(spare*writes/perKey), "key"), redisByHand)
}

// chooseTiming says when cells are summed for readers.
func (a *Advice) chooseTiming() {
	n := a.Needs
	if n.Accuracy == Exact || n.Freshness == 0 {
		why := "a total that is kept is older than the last write"
		if n.Accuracy == Exact && n.Freshness > 0 {
			why += fmt.Sprintf("; to let reads be %s old, ask for %s", n.Freshness, Bounded)
		}
		a.reject("rollup, hybrid", "%s", why)
		return
	}
	if a.Store == Embedded {
		a.reject("rollup, hybrid", "an embedded store reads from its own memory, %s reads a second: a total beside it saves nothing", embeddedGet)
		return
	}
	// A refresh may take as long as the pause before it, and still be in time.
	interval := min(max(n.Freshness/2, policy.IntervalMin), policy.IntervalMax)
	refreshes := float64(n.Nodes) / interval.Seconds()
	switch {
	case n.Freshness < 2*policy.IntervalMin:
		a.reject("rollup, hybrid", "a total is refreshed every %s at most, and a refresh takes time too: reads that may be %s old ask the store", policy.IntervalMin, n.Freshness)
		return
	case n.Reads <= refreshes:
		a.reject("rollup, hybrid", "refreshing it would take %s of the store a second, for %s", Count(refreshes, "call"), Count(n.Reads, "read"))
		return
	}
	a.Policy.Timing, a.Policy.Interval = quipu.Hybrid, interval
	if n.Accuracy == Approximate {
		a.Policy.Timing = quipu.Rollup
		a.because("timing", "%s served from a total, for %s of the store", rate(n.Reads, "read"), Count(refreshes, "call"))
		a.reject("hybrid", "it also adds what this server wrote since, at every read: reads that may be %s old do without", n.Freshness)
	} else {
		a.because("timing", "%s served from a total, for %s of the store, and who writes here reads it here at once", rate(n.Reads, "read"), Count(refreshes, "call"))
		a.reject("rollup", "a caller would not see its own write for up to %s", n.Freshness)
	}
	a.because("interval", "half of the %s that a read may be old, so that a refresh may take the other half", n.Freshness)
	if interval < n.Freshness/2 {
		a.because("interval", "the longest that there is; reads may be %s old", n.Freshness)
	}
	a.reject("fan-in", "every read would ask the store: %s a second", Count(n.Reads, "call"))
}

// chooseDurability says what an acknowledgement survives, and what is served when
// the store can't be reached.
func (a *Advice) chooseDurability() {
	n := a.Needs
	shared := a.Store != Embedded
	if n.Accuracy != Exact && n.Freshness > 0 && shared {
		a.Policy.Stale = n.Freshness
		a.because("stale", "what was read so long ago will do, so an outage of the store that is shorter is not seen")
	}
	if n.Accuracy != Approximate {
		a.reject("weaker durability", "a crash would lose what was acknowledged")
		return
	}
	switch a.Store {
	case Embedded:
		a.Policy.Durability = store.Written
		a.because("durability", "a power loss may take the last moments, the death of the process nothing: %s writes a second against %s", embeddedLess, embeddedRESP)
	case Postgres:
		a.Policy.Durability = store.Memory
		a.because("durability", "commits are not waited for (synchronous_commit = off): a crash of PostgreSQL may take the last moments")
	default:
		a.reject("weaker durability", "in Redis it is the server's own: appendfsync everysec makes replies say written")
	}
	if shared {
		a.Policy.Partial = true
		a.because("partial", "if a shard can't be read, the sum of the others is better than none; it says that it is not complete")
	}
}

// sayNotBuilt says what was asked for and can't be had yet, or not from a policy.
func (a *Advice) sayNotBuilt() {
	if a.Needs.Unique {
		a.because("pattern", "this counts visits; give it a definition with unique: who to count visitors too")
		a.reject("a set of all seen", "exact, but its memory grows with every one that is different")
	}
	if a.Needs.Regions > 1 {
		a.NotBuilt = append(a.NotBuilt, fmt.Sprintf("replication between regions: until it is, keep one store in one of the %d, "+
			"and let the others call it; or a store and a key for each, and add them up", a.Needs.Regions))
		a.reject("one store that spans regions", "every durable write would wait for the farthest")
	}
	if a.Needs.Accuracy == Approximate && a.Needs.Writes > policy.ShardsMax*a.ceiling().Value {
		a.NotBuilt = append(a.NotBuilt, "approximate counters (Count-Min, Morris)")
	}
}

// serverRESP returns what servers took over RESP in pipelines of 16, and how many
// of them that were.
func (a *Advice) serverRESP() (rate Figure, servers float64) {
	switch a.Store {
	case Postgres:
		return postgresHot, 2
	case Redis:
		return redisHot, 1
	default:
		return embeddedRESP, 1
	}
}

// reads returns how many reads one server took over RESP in pipelines of 16 that it
// answers from its memory.
func (a *Advice) reads() Figure {
	if a.Store != Embedded && !a.asked() {
		return keptGet
	}
	return embeddedGet
}

// asked reports whether every read asks a store that others share.
func (a *Advice) asked() bool { return a.Store != Embedded && a.Policy.Timing == quipu.FanIn }

// reckon says what it will cost.
func (a *Advice) reckon() {
	n, c := a.Needs, &a.Cost
	c.Cells = max(1, a.Policy.Shards) // home is one of them
	each, of := a.serverRESP()
	servers := func(load float64) int { return int(max(1, math.Ceil(load))) }
	c.ServersREST = servers((n.Writes + n.Reads) / embeddedREST.Value)
	c.ServersRESP = servers(n.Writes*of/each.Value + n.Reads/a.reads().Value)
	if a.Store == Embedded {
		c.Bytes = embeddedBytes.Value * float64(c.Cells)
		return
	}
	calls := postgresCalls
	if a.Store == Redis {
		calls = redisCalls
	}
	c.WriteCallsLeast, c.WriteCallsMost = n.Writes*calls.Value/1000, n.Writes
	c.ReadCalls = n.Reads
	if !a.asked() {
		c.ReadCalls = float64(n.Nodes) / a.Policy.Interval.Seconds()
	}
	a.warnOfReads()
}

// warnOfReads says that a store is asked more often than it was measured to answer.
func (a *Advice) warnOfReads() {
	took, what := redisGet, "one Redis took of plain GETs"
	if a.Store == Postgres {
		took, what = postgresByHand, "PostgreSQL took of updates of one row; its reads were not measured"
	}
	if !a.asked() || a.Needs.Reads <= took.Value {
		return
	}
	help := "keep several counters"
	if older := a.Needs.older(); older != "" {
		help = older + ", and servers answer them from memory"
	}
	a.note("%s calls of the store, more than the %s that %s: %s", rate(a.Needs.Reads, "read"), took, what, help)
}
