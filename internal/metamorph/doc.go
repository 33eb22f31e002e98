// Package metamorph runs one history of counting under every layout, timing and
// store, and wants the same of all of them.
//
// Its tests draw a history and run it plainly: one DB, one cell for each counter,
// one partition in memory. Then they run it again where counters are split and
// folded at any moment, where DBs are closed and others take over, where policies
// are replaced, and totals are kept for readers; over every store. How a counter
// is laid out is nobody's business but the product's, so every exact total and
// every decided reply must be the same, and a read that is not exact must be what
// it says it is. Histories of events also come to the same windows, values and lines,
// which a plain map has too. Concurrent histories have no one right answer. Of those the total
// at the end, the values handed out, and each read's place in time are judged.
//
// It has no code of its own.
package metamorph
