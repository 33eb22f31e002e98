// Package call has the options, arguments and results of the calls of a DB.
//
// Package quipu offers all of them under the same names, and a program that
// embeds a DB needs only that package. A program that only dials a server uses
// package call, so that it does not link the embedded store. The errors of
// both, their kinds and the durabilities are in package store.
package call
