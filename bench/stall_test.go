package main

import "testing"

// The figures of what the embedded store does meanwhile, and afterwards, are measured.
func TestEmbedded(t *testing.T) {
	quickly(t, "cold", choice{}, "seconds to close, at most", "| disk | bytes/counter |")
	quickly(t, "stall", choice{}, "10,000 counters, checkpoint: "+waitP999, "| 10,000 counters, backup | "+waitMax, "| 10,000 counters, checkpoint | "+savedRows)
}
