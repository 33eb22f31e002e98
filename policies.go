package quipu

import "github.com/quipudb/quipu/policy"

// A Policy says how the keys that it names are counted and read. Package policy
// has its fields and its text form.
type Policy = policy.Policy

// A Policy chooses one of these. FanIn, Rollup and Hybrid say when the parts of
// a split counter are added up for readers. SpreadRandom, SpreadWho and
// SpreadTime say which part an add goes to.
const (
	FanIn  = policy.FanIn  // at every read, which asks the store
	Rollup = policy.Rollup // every Interval, while the counter is read here
	Hybrid = policy.Hybrid // like Rollup, and counts what was written through this DB since

	SpreadRandom = policy.SpreadRandom // any shard
	SpreadWho    = policy.SpreadWho    // one shard for all adds with the same Who
	SpreadTime   = policy.SpreadTime   // one shard of each DB for all adds of a second, then the next
)

// SetPolicies replaces the policies of the DB and all its views at once. Calls
// that begin later use the new policies. If a policy is not valid, nothing
// changes.
func (db *DB) SetPolicies(policies []Policy) error { return db.port.SetPolicies(policies) }

// Policies returns the policies of the DB, of all namespaces, in their order.
func (db *DB) Policies() []Policy { return db.port.Policies().All() }

// PolicyOf returns the policy that applies to a key, with its defaults filled
// in, and its index in Policies. The index is -1 if no policy matches the key.
func (db *DB) PolicyOf(key string) (p Policy, index int) {
	rules := db.port.Rules()
	if r := rules.Of(key); r != nil {
		return r.Policy, r.Index
	}
	return *rules.Policy(key), -1
}

// durabilityOf returns what a write to key must be before it is acknowledged.
func (db *DB) durabilityOf(key string) Durability { return db.port.Rules().Policy(key).Durability }
