package access

import (
	"strings"
	"sync/atomic"
)

// A Kind says by what a principal is known. Kinds are told: append only.
type Kind uint8

// The kinds.
const (
	Anyone      Kind = iota // whoever shows nothing
	Configured              // an --api-key of the server
	StoredKey               // an API key in the store
	Token                   // a JSON web token
	Certificate             // a client certificate
)

// String returns the kind in a word.
func (k Kind) String() string {
	switch k {
	case Anyone:
		return "anonymous"
	case Configured:
		return "server-key"
	case StoredKey:
		return "key"
	case Token:
		return "token"
	case Certificate:
		return "certificate"
	}
	return "unknown"
}

// A Principal is who makes a call. But for its end and what it has spent it does not change,
// so that doors can keep it for as long as a connection lasts.
type Principal struct {
	Kind    Kind
	Name    string // for logs and for people
	ID      string // of a key in the store
	Rules   []Rule
	UntilMS int64 // when it ends, in Unix milliseconds; 0 is never
	Quota   Quota
	Spent   *Spending // nil if there is no quota

	ended atomic.Bool
}

// Everything returns a principal that may do everything.
func Everything(kind Kind, name string) *Principal {
	return &Principal{Kind: kind, Name: name, Rules: []Rule{{Grants: All, Every: true}}}
}

// End ends a principal: its key was revoked. Whoever has it finds out at the next call.
func (p *Principal) End() { p.ended.Store(true) }

// Ended reports whether a principal may not be used any more.
func (p *Principal) Ended(nowMS int64) bool {
	return p.ended.Load() || p.UntilMS != 0 && nowMS >= p.UntilMS
}

// of returns what the rules that match grant together.
func (p *Principal) of(match func(*Rule) bool) (g Grant) {
	for i := range p.Rules {
		if r := &p.Rules[i]; match(r) {
			g |= r.Grants
		}
	}
	return g
}

// Key returns what a principal is granted on one key.
func (p *Principal) Key(namespace, key string) Grant {
	return p.of(func(r *Rule) bool { return r.in(namespace) && strings.HasPrefix(key, r.Prefix) })
}

// Prefix returns what it is granted on every key that begins with a prefix.
func (p *Principal) Prefix(namespace, prefix string) Grant {
	return p.of(func(r *Rule) bool { return r.in(namespace) && strings.HasPrefix(prefix, r.Prefix) })
}

// Server returns what it is granted on every key of every namespace.
func (p *Principal) Server() Grant {
	return p.of(func(r *Rule) bool { return r.Every && r.Prefix == "" })
}

// Some returns what it is granted on something of a namespace.
func (p *Principal) Some(namespace string) Grant {
	return p.of(func(r *Rule) bool { return r.in(namespace) })
}

// Anything returns what it is granted on anything.
func (p *Principal) Anything() Grant { return p.of(func(*Rule) bool { return true }) }

// Covers reports whether a principal holds a grant on all that a rule is about.
func (p *Principal) Covers(g Grant, of Rule) bool {
	return g&^p.of(func(r *Rule) bool {
		return (r.Every || !of.Every && r.Namespace == of.Namespace) && strings.HasPrefix(of.Prefix, r.Prefix)
	}) == 0
}

// Home returns the namespace of a principal that has one alone, and otherwise a given one.
func (p *Principal) Home(otherwise string) string {
	home := ""
	for i := range p.Rules {
		r := &p.Rules[i]
		if r.Every || home != "" && r.Namespace != home {
			return otherwise
		}
		home = r.Namespace
	}
	if home == "" {
		return otherwise
	}
	return home
}

// A View is a principal in a namespace. What it is granted on all keys there is known
// beforehand, so that most questions are one comparison.
type View struct {
	Principal *Principal
	Namespace string
	whole     Grant // on every key of the namespace
	server    Grant
}

// In returns a principal in a namespace.
func (p *Principal) In(namespace string) View {
	return View{Principal: p, Namespace: namespace, whole: p.Prefix(namespace, ""), server: p.Server()}
}

// Freely reports whether the view has what an operation needs, whatever keys it names. It is
// what doors ask before anything else, since it needs no keys.
func (v *View) Freely(n Need) bool {
	switch n.Scope {
	case OnServer:
		return n.met(v.server)
	case OnSome:
		return n.met(v.Principal.Anything())
	case OnNothing, OnLogin:
		return true
	default:
		return n.met(v.whole)
	}
}

// May reports whether the view has what an operation needs on the keys that it names, or on
// the prefix. An operation on keys that names none has to be granted on the whole namespace.
func (v *View) May(n Need, names ...string) bool {
	if v.Freely(n) { // Fast path.
		return true
	}
	if len(names) == 0 {
		return false
	}
	for _, name := range names {
		if !v.MayName(n, name) {
			return false
		}
	}
	return true
}

// MayName is May for one name.
func (v *View) MayName(n Need, name string) bool {
	switch n.Scope {
	case OnKeys:
		return n.met(v.Principal.Key(v.Namespace, name))
	case OnPrefix:
		return n.met(v.Principal.Prefix(v.Namespace, name))
	default:
		return v.Freely(n)
	}
}
