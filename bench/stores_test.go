package main

import "testing"

// The figures of stores that servers share are measured.
func TestShared(t *testing.T) {
	f := func(name string, wants ...string) {
		t.Helper()
		quickly(t, name, choice{}, wants...)
	}
	f("postgres-hot", "rate over that of 100 rows by hand", "| quipu | "+storeCalls+" |")
	f("redis-hot", "rate over that of INCR", "| quipu / redis | CPU ns/operation |")
	f("postgres-servers", "one hot key: rate of 4 nodes over that of 1 node", "Zipf with exponent 1: CPU time of the store", "| 4 nodes, 1,000 uniform keys / 1 node, 1,000 uniform keys |")
	f("redis-keys", "1,000 uniform keys: rate over that of INCR", "Zipf with exponent 1: CPU time of Redis over that of INCR")
	f("postgres-bounded", "rate over that of one row", "| quipu, depth 1 / UPDATE of one row |")
	f("hop", "median over that of PostgreSQL", "| quipu over Redis / Redis | "+medianMS+" |")
}
