package store

import "context"

// unheardKey is the key of a context whose call nobody is told of.
type unheardKey struct{}

// Unheard returns a context for background calls, whose results no caller sees.
// A store that reports a loss only once reports it to the next caller instead.
func Unheard(ctx context.Context) context.Context {
	return context.WithValue(ctx, unheardKey{}, true)
}

// IsUnheard reports whether ctx is from Unheard.
func IsUnheard(ctx context.Context) bool { return ctx.Value(unheardKey{}) != nil }
