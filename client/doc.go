// Package client is the library over the network. A DB here has the methods of
// quipu.DB, with the same options, results and errors, and asks a server.
//
// Options and results are in package call, and errors in package store. A
// program that imports only these does not link the embedded store.
//
// # Retrying
//
// If the server is unavailable, the client sends a call again until its context
// ends. If a connection breaks before the answer, it sends reads again, and
// writes that have a token, which count once. It does not repeat a write
// without a token, because the write may have counted: the call returns
// store.ErrUnknown, as the library does. Options.Tokens gives each such write a
// token of its own. That has a price: the server remembers every token for a
// day, and has room for ten million of them in a namespace.
//
// # Writing fast
//
// A Writer combines adds in the process and sends them as numbered batches. It
// needs no tokens, and counts exactly once through lost connections and
// restarts of the server. See DB.Writer.
package client
