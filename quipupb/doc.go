// Package quipupb is the protocol of Quipu over gRPC: the .proto files, and what is
// generated from them.
//
// Go programs need it only to speak the protocol themselves; package client does
// that for them. A released field keeps its number and its meaning.
package quipupb

//go:generate go -C ../tools run ./protogen ../quipupb/quipu.proto ../quipupb/limits.proto ../quipupb/reactions.proto ../quipupb/reservations.proto ../quipupb/sketches.proto
