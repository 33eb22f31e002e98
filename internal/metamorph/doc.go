// Package metamorph runs one history of counting under every layout, timing and
// store, and expects the same result from all of them.
//
// Its tests draw a history and run it in the simplest way: one DB, one cell for
// each counter, one partition in memory. Then they run it again, over every
// store, while counters are split and folded at any moment, DBs are closed and
// others take over, policies are replaced, and totals are kept for readers.
// None of this may be visible to callers. So every exact total and every
// decided reply must be the same, and a read that is not exact must be what it
// says it is. Histories of events must also lead to the same windows, values
// and lines, which a plain map has too. Concurrent histories have more than one
// right answer. For those the tests check the total at the end, the returned
// values, and each read's place in time.
//
// It has no code of its own.
package metamorph
