package call

import (
	"strings"

	"github.com/quipudb/quipu/internal/session"
	"github.com/quipudb/quipu/store"
)

// A Reaction is the result of React or Unreact.
type Reaction struct {
	Namespace, Key string // of the counter
	User           string

	Choice  string // that the user has now; empty is none
	Before  string // that the user had before
	Changed bool   // Choice is not Before. If it is, nothing was done

	// Counts has the number of users with each choice, in the order of the definition,
	// after the reaction and any concurrent ones. Only a reaction with WantValue has
	// it.
	Counts []ChoiceCount

	// Replayed says that this write was a repeat: it changed nothing, and this is the
	// result of the first, except for Counts.
	Replayed bool

	Version    uint64           // of the counter after the reaction; 0 if nothing changed
	Durability store.Durability // what the acknowledgement means
}

// Session returns the position of the reaction, like Receipt.Session. It is
// empty if nothing changed.
func (r Reaction) Session() string {
	if r.Version == 0 {
		return ""
	}
	return session.Position{Version: r.Version, Counter: session.Counter(r.Namespace, r.Key)}.String()
}

// A ChoiceCount is the number of users with one choice.
type ChoiceCount struct {
	Choice string
	Users  int64
}

// Reactions has the number of users with each choice of a counter.
type Reactions struct {
	Key    string
	Counts []ChoiceCount // in the order of the definition
	Users  int64         // that have one
}

// MembersOptions select users of a counter. The zero value is the first page of
// all.
type MembersOptions struct {
	Choice string // only users that have it; empty is any
	Limit  int    // users in a page, up to MembersMax; the default is 100
	Cursor string // Next of the page before, with the same options
}

// MembersMax is the maximum number of users on a page of Members.
const MembersMax = 1000

// A Member is a user who has a choice.
type Member struct {
	User   string
	Choice string
}

// A MembersPage is a page of the users of a counter, in the byte order of their
// names. If few users have the choice, a page may be short and still have a
// next one.
type MembersPage struct {
	Members []Member
	Next    string // the Cursor of the next page; empty if there is none
}

// CheckUser returns an error if user can't have a reaction.
func CheckUser(user string) error {
	if user == "" {
		return store.Errorf(store.KindInvalid, "user is empty")
	}
	return CheckWho(user)
}

// Or returns the names with commas and "or" between them.
func Or(names []string) string { return strings.Join(names, " or ") }
