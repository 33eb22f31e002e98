// Package quipu counts things that many callers change at once. It loses no
// acknowledged count, and it counts no write twice.
//
// A DB holds counters. Each counter is a signed 64-bit number under a namespace
// and a key. You declare nothing: the first write creates the counter. Open
// keeps the counters in a directory, in the embedded store. New keeps them in
// any other store. A server offers the same methods over the network, and
// package client calls them.
//
// # Counting
//
// Add changes a counter and returns a Receipt. A plain Add asks for nothing
// back, so the store can merge it with other adds. WantValue asks for the value
// before and after the add. That value is exact, and unique among all such adds
// while the counter only grows, so it can serve as an id. AddBatch sends many
// events in one call and decides each by itself. Set, Reset and Delete assign a
// value. With IfVersion any write becomes a compare-and-set.
//
// # Retrying
//
// A call that failed with ErrUnknown may or may not have counted. So may a call
// whose answer was lost. Give each write a name of its own with Token, and send
// it again as often as you like: it counts once, and every repeat returns the
// first result with Replayed set. The same token with another payload is
// refused with ErrToken. A token names one write to one counter.
//
// A token is remembered for Limits.TokenWindow. For the same time again it is
// refused with ErrExpired. Then it is forgotten. UUIDs of version 7 make the
// best tokens: they carry their time, so the store refuses them however old
// they are.
//
// Lookup reports what is known of a token without repeating the write. Settle
// makes that final: if the write was not applied, it never will be.
//
// # Reading
//
// Read returns a Count: the value, the time at which it was right, and whether
// it is exact and complete. If the value is not exact, the Count has the bounds
// that are proved. ReadOptions say what the caller needs: Exact, Session to see
// one's own writes, MaxStaleness or MaxError. List returns the keys with a
// prefix, page by page, in byte order.
//
// # Durability
//
// A nil error means that the write is as durable as its Receipt says, and that
// nobody saw it before. Synced survives a power loss, written survives the
// death of the process, and memory survives neither. Synced is the default. A
// Policy chooses a weaker and faster durability for the keys that it names. If
// a store can't reach the durability, the Receipt states the one that it
// reached.
//
// # Namespaces
//
// A namespace separates tenants, and limits apply to each namespace. A DB
// starts in the namespace "default". In returns a view of another one.
//
// # Errors
//
// An error has a Kind that says what a caller can do about it, and matches one
// of the Err… values by errors.Is. A refused write changed nothing. If a
// context ends before the store took the write, the error is the context's and
// nothing changed. If it ends later, the error is ErrUnknown.
package quipu
