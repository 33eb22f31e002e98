// Package call has what a call of a DB says and what it answers: the options of
// writes and reads, events, receipts and counts.
//
// Package quipu offers all of it under the same names, and a program that embeds
// a DB needs only that. A program that only dials a server takes it from here, so
// that it does not link the embedded engine. The errors of both, their kinds and
// the words of durability are in package store.
package call
