// Package rollup is the arithmetic of totals that are kept for readers: what a
// server knows in addition to a total, and which server makes the next one.
package rollup
