package store

import "context"

// unheardKey is the key of a context whose call nobody is told of.
type unheardKey struct{}

// Unheard returns a context for calls by which no caller is told anything, such
// as looking after counters in the background. A store that tells once that it has
// lost something does not tell those, but whoever comes next.
func Unheard(ctx context.Context) context.Context {
	return context.WithValue(ctx, unheardKey{}, true)
}

// IsUnheard reports whether ctx is from Unheard.
func IsUnheard(ctx context.Context) bool { return ctx.Value(unheardKey{}) != nil }
