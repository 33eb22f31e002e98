// Package tidy holds the tree to its architecture: a table says what each
// package may import, and a test reads every file and fails on what the table
// does not allow, on a package that is not in the table, and on one without a
// package comment.
//
// A new import or a new package is therefore a line in the table: a diff that
// is seen and argued about, not something that happens.
package tidy
