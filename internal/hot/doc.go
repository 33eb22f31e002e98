// Package hot decides about hot counters: which counters are hot, when one is
// split and folded, and which shard an add goes to. It is pure: time and
// randomness are passed in, and it touches no store.
package hot
