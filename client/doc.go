// Package client is the library over the wire: a DB here has the methods of
// quipu.DB, with the same options, results and errors, and a server behind it.
//
// Options and results are in package call, and errors in package store: a program
// that imports these does not link the embedded engine.
//
// # Retrying
//
// A call that found the server unavailable is sent again until its context ends.
// Reads, and writes with a token, are also sent again when a connection broke
// before the answer: a repeat counts once. A write without a token is not, since
// it may have counted: it returns store.ErrUnknown, as the library does.
// Options.Tokens gives each such write a token of its own. That has its price:
// the server remembers every token for a day, and has room for ten million of
// them in a namespace.
//
// # Writing fast
//
// A Writer combines adds in the process and ships them as numbered batches. It
// needs no tokens, and counts exactly once through lost connections and restarts
// of the server. See DB.Writer.
package client
