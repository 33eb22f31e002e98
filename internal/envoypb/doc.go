// Package envoypb is the protocol by which Envoy asks a rate limit service, as far as Quipu
// speaks it: the same bytes and the same names as envoy.service.ratelimit.v3, without the
// modules that Envoy's own Go package brings.
package envoypb

//go:generate go -C ../../tools run ./protogen ../internal/envoypb/rls.proto
