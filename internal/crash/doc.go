// Package crash kills a serving process and recounts.
//
// It exists because the promises are about what a caller was told, and only a
// caller of the real binary, over a real connection, knows that. Its test
// starts `quipu serve`, loads it through the REST door, kills it with SIGKILL
// at a random moment (under load, while it starts, while it recovers, while it
// drains), starts it again on the same directory and compares what it serves
// with what was acknowledged: nothing is missing, nothing counts twice, each
// unknown outcome is one of the two it can be, and becomes definite when it is
// sent again or settled. The same is done to pipelines of clients of Redis, over
// the RESP door, and to the combining writer of package client, over the RPC
// door, and clients are killed too.
//
// In one part most counters have windows, dimensions and a ledger. Events happen now or
// days ago, some are taken back, and definitions change under load. Each recount then
// compares every window, every value of a dimension and every line of the ledgers.
//
// A killed process leaves the page cache behind, so what `written` promises is
// tested here too. What only `synced` promises, a power loss, needs a file
// system that forgets: the tests of the log and of the engine have one.
//
// The package has no code of its own.
package crash
