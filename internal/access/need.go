package access

// A Scope is what an operation needs its grant on.
type Scope uint8

// The scopes.
const (
	OnNothing   Scope = iota // none is needed, and strangers may too
	OnLogin                  // none is needed, of those who are known
	OnSome                   // anything; the operation itself looks further
	OnKeys                   // each key that it names
	OnPrefix                 // every key with the prefix that it names
	OnNamespace              // every key of the namespace
	OnServer                 // every key of every namespace
)

// A Need is what an operation needs.
type Need struct {
	Scope  Scope
	Grants Grant
	Any    bool // one of the grants is enough
	Quiet  bool // an administrator may ask all day, and the audit log does not tell
}

// met reports whether grants are what is needed.
func (n Need) met(has Grant) bool {
	if n.Any {
		return n.Grants&has != 0
	}
	return n.Grants&^has == 0
}

// Open reports whether strangers may too.
func (n Need) Open() bool { return n.Scope == OnNothing }

// Audited reports whether an operation is told in the audit log.
func (n Need) Audited() bool { return n.Grants&Admin != 0 && !n.Quiet }

// Changes reports whether an operation is a write, as quotas count them.
func (n Need) Changes() bool { return !n.Any && !n.Quiet && n.Grants&(Write|Decide|Admin) != 0 }

// everything is what an operation needs that has no row: it is the administrator's.
func everything() Need { return Need{Scope: OnServer, Grants: All} }

// Needs are the operations of a door by their names.
type Needs map[string]Need

// Of returns what an operation needs, and whether it has a row. Without one it needs
// everything.
func (n Needs) Of(operation string) (Need, bool) {
	need, ok := n[operation]
	if !ok {
		return everything(), false
	}
	return need, true
}
