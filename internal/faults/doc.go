// Package faults breaks what is between nodes and the store that they share, or
// the store, or a node, and recounts.
//
// It exists because the promises of many nodes over one store are about what a
// caller was told by any of them, and only callers of the real binary know that.
// Its tests start two `quipu serve` over a real PostgreSQL, a real Redis or a
// Redis Cluster of six, load both through all doors, make a fault and heal it.
// Then nothing that was acknowledged is missing, nothing counts twice, each
// unknown outcome becomes definite when it is sent again through the other node,
// and no value was handed out twice. What a Redis Cluster may lose by a failover
// is measured, and it is not lost in silence.
//
// It is a module of its own, so that what it takes to break a network is nobody
// else's dependency. It has no code of its own.
package faults
