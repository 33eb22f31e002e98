package quipu

import (
	"slices"
	"strings"

	"github.com/quipudb/quipu/store"
)

// SetPolicies replaces the policies of the DB, for all its views at once: a call
// that begins afterwards goes by the new ones. If one of them is not valid,
// nothing changes.
func (db *DB) SetPolicies(policies []Policy) error {
	if db.shared.err != nil {
		return db.shared.err
	}
	if err := checkPolicies(policies); err != nil {
		return err
	}
	db.policies.Store(newPolicySet(policies))
	return nil
}

// Policies returns the policies of the DB, of all namespaces, in their order.
func (db *DB) Policies() []Policy {
	if s := db.policies.Load(); s != nil {
		return slices.Clone(s.policies)
	}
	return nil
}

// PolicyOf returns the policy that holds for a key, with its defaults filled in,
// and its index in Policies. The index is -1 if no policy names the key.
func (db *DB) PolicyOf(key string) (p Policy, index int) {
	if r := db.rules().of(key); r != nil {
		return r.policy, r.index
	}
	return unnamed, -1
}

// unnamed is the policy of keys that no policy names.
var unnamed = Policy{Pattern: "*"}.Effective()

// A policySet is the policies of a DB, made ready to be looked up. It does not
// change: it is replaced.
type policySet struct {
	policies []Policy
	named    map[string]rules // of the namespaces that policies name
	rest     rules            // of all others
	hybrid   bool             // a policy is
	bounded  bool             // a policy has a floor or a ceiling
}

// newPolicySet returns a set of valid policies, nil if there are none.
func newPolicySet(policies []Policy) *policySet {
	if len(policies) == 0 {
		return nil
	}
	s := &policySet{policies: slices.Clone(policies), rest: rulesFor(policies, "")}
	for _, p := range policies {
		s.hybrid = s.hybrid || p.Timing == Hybrid
		s.bounded = s.bounded || p.bound() != nil
		if _, known := s.named[p.Namespace]; known || p.Namespace == "" {
			continue
		}
		if s.named == nil {
			s.named = map[string]rules{}
		}
		s.named[p.Namespace] = rulesFor(policies, p.Namespace)
	}
	return s
}

// A rule is a policy made ready for one namespace.
type rule struct {
	text   string // the key or the prefix
	prefix bool
	index  int    // in all policies
	policy Policy // with its defaults
	bound  *store.Bound
}

// rules are those of one namespace, in order. A call that looks more than once
// takes them once, since they may be replaced.
type rules []rule

// rulesFor returns the rules that hold in a namespace; "" is one that no policy
// names.
func rulesFor(policies []Policy, namespace string) rules {
	var rs rules
	for i, p := range policies {
		if p.Namespace != "" && p.Namespace != namespace {
			continue
		}
		text, prefix := strings.CutSuffix(p.Pattern, "*")
		rs = append(rs, rule{text: text, prefix: prefix, index: i, policy: p.Effective(), bound: p.bound()})
	}
	return rs
}

// rules returns the rules of the view's namespace as they are now.
func (db *DB) rules() rules { return db.rulesIn(db.namespace) }

func (s *shared) rulesIn(namespace string) rules {
	set := s.policies.Load()
	if set == nil { // Fast path: BenchmarkAddOverhead.
		return nil
	}
	if named, ok := set.named[namespace]; ok {
		return named
	}
	return set.rest
}

// keeps reports whether a policy has totals kept for readers.
func (rs rules) keeps() bool {
	for i := range rs {
		if rs[i].policy.Timing != FanIn {
			return true
		}
	}
	return false
}

// of returns the rule that holds for key, or nil.
func (rs rules) of(key string) *rule {
	for i := range rs {
		r := &rs[i]
		if r.prefix && strings.HasPrefix(key, r.text) || r.text == key {
			return r
		}
	}
	return nil
}

// policy returns what holds for key. It is shared: nobody may change it.
func (rs rules) policy(key string) *Policy {
	if r := rs.of(key); r != nil {
		return &r.policy
	}
	return &unnamed
}

// policyOf returns what holds for key now. It is shared: nobody may change it.
func (db *DB) policyOf(key string) *Policy { return db.rules().policy(key) }

// durabilityOf returns what a write to key must be before it is acknowledged.
func (db *DB) durabilityOf(key string) Durability { return db.policyOf(key).Durability }
