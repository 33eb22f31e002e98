// Package rollup is the arithmetic of totals that are kept for readers of a
// counter: what a server knows beyond one, and whose turn it is to make the next.
package rollup
