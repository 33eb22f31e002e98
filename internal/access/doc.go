// Package access decides which principal may carry out which operation on which
// namespace and keys.
//
// A principal is the identity that a credential proves: an API key, the subject
// of a token, the holder of a certificate, or everyone without credentials. It
// has rules. Each rule grants reading, writing, deciding or administering on
// the keys of a namespace that begin with a prefix. Everything else is refused.
//
// One table (operations.go) lists the grants that each operation of each
// protocol needs. A server looks its operations up once, at the start, and asks
// View.May before each call. A test of every protocol compares the table with
// the served operations, so a missing row is found. At run time an operation
// without a row needs every grant (see NeedOf).
//
// The package is pure: it reads no clock, opens nothing, and verifies no
// secret.
package access
