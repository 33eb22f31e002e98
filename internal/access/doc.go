// Package access decides who may do what: which principal may carry out which operation on
// which namespace and keys.
//
// A principal is whoever a credential names: an API key, the subject of a token, the holder
// of a certificate, or everyone who shows nothing. It has rules, each of which grants reading,
// writing, deciding or administering on the keys of a namespace that begin with a prefix.
// What no rule grants is refused.
//
// One table (operations.go) says what each operation of each door needs. A door looks its
// operations up once, when it is made, and asks View.May before each call. A test of every
// door compares the table with what the door serves, so that an operation without a row is
// found; and a row that is missing all the same needs everything (see NeedOf).
//
// The package is pure: it reads no clock, opens nothing, and verifies no secret.
package access
