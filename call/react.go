package call

import (
	"strings"

	"github.com/quipudb/quipu/internal/session"
	"github.com/quipudb/quipu/store"
)

// A Reaction says what became of what a user chose.
type Reaction struct {
	Namespace, Key string // of the counter
	User           string

	Choice  string // that the user has now; empty is none
	Before  string // that the user had before
	Changed bool   // Choice is not Before. If it is, nothing was done

	// Counts says how many users have each choice, in the order of the definition, after
	// the reaction, and after what others did meanwhile. Only a reaction that wants its
	// value has them.
	Counts []ChoiceCount

	// Replayed says that this write was a repeat: it changed nothing, and this is the
	// result of the first, but for the counts.
	Replayed bool

	Version    uint64           // of the counter after the reaction; 0 if nothing changed
	Durability store.Durability // what the acknowledgement means
}

// Session returns the position of the reaction, as Receipt.Session does; empty if nothing
// changed.
func (r Reaction) Session() string {
	if r.Version == 0 {
		return ""
	}
	return session.Position{Version: r.Version, Counter: session.Counter(r.Namespace, r.Key)}.String()
}

// A ChoiceCount is how many users have a choice.
type ChoiceCount struct {
	Choice string
	Users  int64
}

// Reactions are how many users have each choice of a counter.
type Reactions struct {
	Key    string
	Counts []ChoiceCount // in the order of the definition
	Users  int64         // that have one
}

// MembersOptions say which users of a counter are wanted. The zero value is the first page.
type MembersOptions struct {
	Choice string // only users that have it; empty is any
	Limit  int    // users in a page, up to MembersMax; the default is 100
	Cursor string // Next of the page before, with the same options
}

// MembersMax is how many users a page of Members may have.
const MembersMax = 1000

// A Member is a user who has a choice.
type Member struct {
	User   string
	Choice string
}

// A MembersPage is a part of the users of a counter, in the byte order of their names. It may
// have fewer than were asked for, and a next one, if few have the choice.
type MembersPage struct {
	Members []Member
	Next    string // the Cursor of the next page; empty if there is none
}

// CheckUser returns an error if a reaction can't be of user.
func CheckUser(user string) error {
	if user == "" {
		return store.Errorf(store.KindInvalid, "user is empty")
	}
	return CheckWho(user)
}

// Or returns names with "or" between them.
func Or(names []string) string { return strings.Join(names, " or ") }
