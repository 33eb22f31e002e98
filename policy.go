package quipu

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/quipudb/quipu/store"
)

// A Policy says how the keys it names are counted. Of the policies of a DB, the
// first that names a key holds for it.
type Policy struct {
	// Namespace is the namespace whose keys are meant; empty means any.
	Namespace string

	// Pattern is a key, or a prefix followed by '*'. A '*' anywhere else is
	// invalid.
	Pattern string

	// Durability is what a nil error from a write means. The default is
	// Synced.
	Durability Durability

	// Stale is how old a value may be that is served when the store can't be
	// reached. The default is none: then reads fail. It needs Options.Recall.
	Stale time.Duration
}

// check returns an error if p names no keys or asks for an unknown durability.
func (p Policy) check() error {
	if p.Namespace != "" {
		if err := checkNamespace(p.Namespace); err != nil {
			return err
		}
	}
	prefix := strings.TrimSuffix(p.Pattern, "*")
	switch {
	case p.Pattern == "":
		return store.Errorf(store.KindInvalid, "pattern is empty: want a key, or a prefix followed by *")
	case strings.Contains(prefix, "*"):
		return store.Errorf(store.KindInvalid, "pattern %q: * may stand only at the end", p.Pattern)
	case len(prefix) > store.KeyBytesMax:
		return store.Errorf(store.KindTooLarge, "pattern of %d bytes: at most %d", len(prefix), store.KeyBytesMax)
	case !utf8.ValidString(prefix):
		return store.Errorf(store.KindInvalid, "pattern is not UTF-8")
	case p.Durability > store.Synced:
		return store.Errorf(store.KindInvalid, "pattern %q: unknown durability %d", p.Pattern, p.Durability)
	case p.Stale < 0:
		return store.Errorf(store.KindInvalid, "pattern %q: stale values of %s", p.Pattern, p.Stale)
	}
	return nil
}

// A rule is a policy made ready for one namespace.
type rule struct {
	text       string // the key or the prefix
	prefix     bool
	durability Durability
	stale      time.Duration
}

// rulesFor returns the rules that hold in a namespace, in order.
func rulesFor(policies []Policy, namespace string) []rule {
	var rules []rule
	for _, p := range policies {
		if p.Namespace != "" && p.Namespace != namespace {
			continue
		}
		text, prefix := strings.CutSuffix(p.Pattern, "*")
		durability := p.Durability
		if durability == store.DurabilityDefault {
			durability = store.Synced
		}
		rules = append(rules, rule{text: text, prefix: prefix, durability: durability, stale: p.Stale})
	}
	return rules
}

// durabilityOf returns what a write to key must be before it is acknowledged.
func (db *DB) durabilityOf(key string) Durability {
	if r := db.ruleOf(key); r != nil {
		return r.durability
	}
	return store.Synced
}

// staleOf returns how old a value of key may be if the store can't be reached.
func (db *DB) staleOf(key string) time.Duration {
	if r := db.ruleOf(key); r != nil {
		return r.stale
	}
	return 0
}

// ruleOf returns the rule that holds for key, or nil.
func (db *DB) ruleOf(key string) *rule {
	for i := range db.rules {
		r := &db.rules[i]
		if r.prefix && strings.HasPrefix(key, r.text) || r.text == key {
			return r
		}
	}
	return nil
}
