package access

import (
	"fmt"
	"slices"
	"strings"

	"github.com/quipudb/quipu/store"
)

// A Mapping grants something to whoever has a value: of a claim of a token, or of a field of
// a certificate.
type Mapping struct {
	Field string
	Value string // "*" is any
	Rule  Rule
	Named bool // the rule is of the namespace that the value names
}

// named stands in a mapping for the namespace that the value names.
const named = "{}"

// MappingsMax is how many mappings there may be.
const MappingsMax = 1000

// ParseMapping reads a mapping as people write it: FIELD=VALUE => GRANTS:NAMESPACE/PREFIX*.
// The value * is any, and {} in place of the namespace is the one that the value names.
func ParseMapping(text string) (m Mapping, err error) {
	const want = `want such as "groups=shop-team => read+write:shop"`
	at := strings.LastIndex(text, "=>")
	if at < 0 {
		return m, fmt.Errorf("%q: %s", text, want)
	}
	field, value, ok := strings.Cut(text[:at], "=")
	field, value = strings.TrimSpace(field), strings.TrimSpace(value)
	if !ok || field == "" || value == "" {
		return m, fmt.Errorf("%q: the field and the value are missing: %s", text, want)
	}
	rule := strings.TrimSpace(text[at+len("=>"):])
	grants, where, _ := strings.Cut(rule, ":")
	if rest, is := strings.CutPrefix(where, named); is && (rest == "" || rest[0] == '/') {
		m.Named = true
		rule = grants + ":x" + rest // any name will do
	}
	m.Field, m.Value = field, value
	if m.Rule, err = ParseRule(rule); err != nil {
		return Mapping{}, err
	}
	if m.Named {
		m.Rule.Namespace = ""
	}
	return m, nil
}

// ParseMappings reads several mappings.
func ParseMappings(texts []string) ([]Mapping, error) {
	if len(texts) > MappingsMax {
		return nil, fmt.Errorf("%d mappings: at most %d", len(texts), MappingsMax)
	}
	all := make([]Mapping, len(texts))
	for i, text := range texts {
		var err error
		if all[i], err = ParseMapping(text); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// RulesFor returns what mappings grant to whoever has some values.
func RulesFor(mappings []Mapping, values func(field string) []string) (rules []Rule) {
	for _, m := range mappings {
		for _, value := range values(m.Field) {
			if m.Value != "*" && m.Value != value {
				continue
			}
			r := m.Rule
			if m.Named {
				if value == "*" || store.CheckNamespace(value) != nil {
					continue
				}
				r.Namespace = value
			}
			if !slices.Contains(rules, r) && len(rules) < RulesMax {
				rules = append(rules, r)
			}
		}
	}
	return rules
}
