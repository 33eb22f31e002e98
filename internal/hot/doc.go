// Package hot is what is decided about hot counters: which ones are, when one is
// split and folded, and which shard an add goes to. It is pure: time and chance
// are given to it, and it touches no store.
package hot
