package access

import (
	"fmt"
	"strings"

	"github.com/quipudb/quipu/store"
)

// A Grant is a set of things that a principal may do.
type Grant uint8

// The grants. Their words are stored: append only.
const (
	Read   Grant = 1 << iota // see counters, and what is known of them
	Write                    // change counters, and see what a change made of them
	Decide                   // ask limits, reserve, react
	Admin                    // definitions, policies, keys, backups

	All = Read | Write | Decide | Admin
)

// grantWords are the words for grants, in their order.
var grantWords = [...]string{"read", "write", "decide", "admin"}

// String returns the words of a set, with + between them.
func (g Grant) String() string {
	if g == All {
		return "all"
	}
	var words []string
	for i, word := range grantWords {
		if g&(1<<i) != 0 {
			words = append(words, word)
		}
	}
	return strings.Join(words, "+")
}

// parseGrant reads what String writes.
func parseGrant(text string) (g Grant, err error) {
	if text == "all" {
		return All, nil
	}
	for word := range strings.SplitSeq(text, "+") {
		bit := Grant(0)
		for i, known := range grantWords {
			if word == known {
				bit = 1 << i
			}
		}
		if bit == 0 {
			return 0, fmt.Errorf("%q is not a grant: want read, write, decide or admin, with + between them, or all", word)
		}
		g |= bit
	}
	return g, nil
}

// A Rule grants something on the keys of a namespace that begin with a prefix.
type Rule struct {
	Grants    Grant
	Every     bool   // it is of every namespace
	Namespace string // "" if it is of every one
	Prefix    string // of keys; "" is all of them
}

// ruleBytesMax is how long a rule may be as text.
const ruleBytesMax = 64 + store.NamespaceBytesMax + store.KeyBytesMax

// RulesMax is how many rules a principal may have.
const RulesMax = 64

// ParseRule reads a rule as people write it: GRANTS:NAMESPACE for all keys of a namespace,
// GRANTS:NAMESPACE/PREFIX* for those that begin with a prefix. A namespace of * is every one.
// What follows the slash is taken as it is, but for the * at its end.
func ParseRule(text string) (r Rule, err error) {
	const want = `want such as "read+write:shop", "read:shop/stock:*" or "admin:*"`
	if len(text) > ruleBytesMax {
		return r, fmt.Errorf("grant of %d bytes: at most %d", len(text), ruleBytesMax)
	}
	grants, where, ok := strings.Cut(text, ":")
	if !ok {
		return r, fmt.Errorf("grant %q names no namespace: %s", text, want)
	}
	if r.Grants, err = parseGrant(grants); err != nil {
		return Rule{}, fmt.Errorf("grant %q: %w", text, err)
	}
	namespace, prefix, some := strings.Cut(where, "/")
	if r.Namespace = namespace; namespace == "*" {
		r.Every, r.Namespace = true, ""
	} else if err := store.CheckNamespace(namespace); err != nil {
		return Rule{}, fmt.Errorf("grant %q: %s; %s", text, strings.TrimPrefix(err.Error(), "quipu: "), want)
	}
	if !some {
		return r, nil
	}
	if r.Prefix, ok = strings.CutSuffix(prefix, "*"); !ok {
		return Rule{}, fmt.Errorf("grant %q: the prefix of keys must end in *: %s", text, want)
	}
	if r.Prefix == "" {
		return r, nil
	}
	if err := store.CheckKey(r.Prefix); err != nil {
		return Rule{}, fmt.Errorf("grant %q: prefix: %s", text, strings.TrimPrefix(err.Error(), "quipu: "))
	}
	return r, nil
}

// String returns what ParseRule reads.
func (r Rule) String() string {
	text := r.Grants.String() + ":" + r.Namespace
	if r.Every {
		text += "*"
	}
	if r.Prefix != "" {
		text += "/" + r.Prefix + "*"
	}
	return text
}

// ParseRules reads several rules.
func ParseRules(texts []string) ([]Rule, error) {
	if len(texts) > RulesMax {
		return nil, fmt.Errorf("%d grants: at most %d", len(texts), RulesMax)
	}
	rules := make([]Rule, len(texts))
	for i, text := range texts {
		var err error
		if rules[i], err = ParseRule(text); err != nil {
			return nil, err
		}
	}
	return rules, nil
}

// RuleTexts returns what ParseRules reads.
func RuleTexts(rules []Rule) []string {
	texts := make([]string, len(rules))
	for i, r := range rules {
		texts[i] = r.String()
	}
	return texts
}

// in reports whether a rule is of a namespace.
func (r *Rule) in(namespace string) bool { return r.Every || r.Namespace == namespace }
