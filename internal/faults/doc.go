// Package faults breaks networks, stores and servers under load, and recounts.
//
// Only callers of real programs know what any of several servers told them, so
// its tests start two `quipu serve` over a real PostgreSQL, a real Redis or a
// Redis Cluster of six. They load both servers through all protocols, make a
// fault and heal it. Afterwards nothing that was acknowledged is missing and
// nothing counts twice. Each unknown outcome becomes definite when the write is
// sent again through the other server. No value was returned twice. The tests
// measure what a Redis Cluster may lose by a failover, and check that it is
// reported.
//
// It is a module of its own, so that others do not depend on the tools that
// break a network. It has no code of its own.
package faults
