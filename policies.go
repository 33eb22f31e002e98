package quipu

import "github.com/quipudb/quipu/policy"

// A Policy says how the keys it names are counted and read. Package policy has its
// fields and how it is written.
type Policy = policy.Policy

// A Policy may choose one of these: when the shards of a counter are summed for its readers,
// and which shard an add goes to.
const (
	FanIn  = policy.FanIn  // at every read, which asks the store
	Rollup = policy.Rollup // every Interval, while the counter is read here
	Hybrid = policy.Hybrid // like Rollup, and counts what was written through this DB since

	SpreadRandom = policy.SpreadRandom // any shard
	SpreadWho    = policy.SpreadWho    // one shard for all adds with the same Who
	SpreadTime   = policy.SpreadTime   // one shard of each DB for all adds of a second, then the next
)

// SetPolicies replaces the policies of the DB, for all its views at once: a call
// that begins afterwards goes by the new ones. If one of them is not valid,
// nothing changes.
func (db *DB) SetPolicies(policies []Policy) error { return db.port.SetPolicies(policies) }

// Policies returns the policies of the DB, of all namespaces, in their order.
func (db *DB) Policies() []Policy { return db.port.Policies().All() }

// PolicyOf returns the policy that holds for a key, with its defaults filled in,
// and its index in Policies. The index is -1 if no policy names the key.
func (db *DB) PolicyOf(key string) (p Policy, index int) {
	rules := db.port.Rules()
	if r := rules.Of(key); r != nil {
		return r.Policy, r.Index
	}
	return *rules.Policy(key), -1
}

// durabilityOf returns what a write to key must be before it is acknowledged.
func (db *DB) durabilityOf(key string) Durability { return db.port.Rules().Policy(key).Durability }
