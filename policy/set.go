package policy

import (
	"slices"
	"strings"
)

// unnamed is the policy of keys that no policy names.
var unnamed = Policy{Pattern: "*"}.Effective()

// A Set is the policies of a DB, prepared for lookup. It never changes. A nil
// Set has no policies.
type Set struct {
	Hybrid bool // a policy is

	policies []Policy
	named    map[string]Rules // of the namespaces that policies name
	rest     Rules            // of all others
}

// NewSet returns a set of valid policies, nil if there are none.
func NewSet(policies []Policy) *Set {
	if len(policies) == 0 {
		return nil
	}
	s := &Set{policies: slices.Clone(policies), rest: rulesFor(policies, "")}
	for _, p := range policies {
		s.Hybrid = s.Hybrid || p.Timing == Hybrid
		if _, known := s.named[p.Namespace]; known || p.Namespace == "" {
			continue
		}
		if s.named == nil {
			s.named = map[string]Rules{}
		}
		s.named[p.Namespace] = rulesFor(policies, p.Namespace)
	}
	return s
}

// All returns the policies of all namespaces, in their order.
func (s *Set) All() []Policy {
	if s == nil {
		return nil
	}
	return slices.Clone(s.policies)
}

// In returns the rules of a namespace.
func (s *Set) In(namespace string) Rules {
	if s == nil { // Fast path: BenchmarkAddOverhead.
		return nil
	}
	if named, ok := s.named[namespace]; ok {
		return named
	}
	return s.rest
}

// A Rule is a policy of one namespace, prepared for lookup.
type Rule struct {
	Index  int    // in all policies
	Policy Policy // with its defaults

	text   string // the key or the prefix
	prefix bool
}

// Rules are the rules of one namespace, in order. They may be replaced, so a
// call that looks more than once must get them once.
type Rules []Rule

// rulesFor returns the rules that hold in a namespace; "" is one that no policy
// names.
func rulesFor(policies []Policy, namespace string) Rules {
	var rs Rules
	for i, p := range policies {
		if p.Namespace != "" && p.Namespace != namespace {
			continue
		}
		text, prefix := strings.CutSuffix(p.Pattern, "*")
		rs = append(rs, Rule{text: text, prefix: prefix, Index: i, Policy: p.Effective()})
	}
	return rs
}

// Keeps reports whether a policy keeps totals for readers.
func (rs Rules) Keeps() bool {
	for i := range rs {
		if rs[i].Policy.Timing != FanIn {
			return true
		}
	}
	return false
}

// Of returns the rule that applies to key, or nil.
func (rs Rules) Of(key string) *Rule {
	for i := range rs {
		r := &rs[i]
		if r.prefix && strings.HasPrefix(key, r.text) || r.text == key {
			return r
		}
	}
	return nil
}

// Policy returns the policy that applies to key. It is shared and must not be
// changed.
func (rs Rules) Policy(key string) *Policy {
	if r := rs.Of(key); r != nil {
		return &r.Policy
	}
	return &unnamed
}
