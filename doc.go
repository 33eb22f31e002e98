// Package quipu counts things at any rate, without losing one and without
// counting one twice.
//
// A DB is the whole product: programs that embed it call it, and so does every
// server in front of it. It keeps counters, each a signed 64-bit number under a
// namespace and a key. A counter needs no declaration: the first write makes it.
// Open keeps them in a directory, on the embedded engine; New keeps them in any
// other store.
//
// # Counting
//
// Add changes a counter and returns a Receipt. A plain Add asks for nothing
// back, which lets the store merge it with its neighbours; WantValue asks for
// the value before and after, exact and unique among all such calls, so it can
// serve as an id. AddBatch carries many events in one call, each by itself. Set,
// Reset and Delete assign; with IfVersion any write becomes a compare-and-set.
//
// # Retrying
//
// A call that failed with ErrUnknown, or whose answer was lost with the
// process, may or may not have counted. Give each write a name of its own with
// Token, and send it again as often as you like: it counts once, and every
// repeat returns the first result with Replayed set. The same token with
// another payload is refused with ErrToken. A token names one write to one
// counter.
//
// A token is remembered for Limits.TokenWindow. For as long again it is refused
// with ErrExpired, and then it is forgotten. UUIDs of version 7 make the best
// tokens: they carry their age, so they are refused however old they are.
//
// When you would rather know than repeat, Lookup reports what is known of a
// token now, and Settle decides it for good: if the write was not applied, it
// never will be.
//
// # Reading
//
// Read returns a Count, which says what it is: the value, bounds between which
// it is proved to lie, when that held, whether it is exact and complete, and
// where it came from. ReadOptions say what the caller needs: Exact, Session to
// see one's own writes, MaxStaleness, MaxError. List walks the keys with a
// prefix, page by page, in byte order.
//
// # Durability
//
// A nil error means that the write is as durable as its Receipt says, and
// nobody saw it before it was. Synced survives power loss, written survives the
// death of the process, memory survives neither. Synced is the default; a
// Policy chooses a weaker and faster word for the keys it names. A store that
// can't give what was asked says what it gave.
//
// # Namespaces
//
// A namespace is the unit of tenancy and of limits. A DB starts in the
// namespace "default"; In returns a view of another one.
//
// # Errors
//
// An error is of a Kind that says what a caller can do about it, and matches
// one of the Err… values by errors.Is. A refused write changed nothing. When a
// context ends before the store took the write, the error is the context's and
// nothing changed; after that it is ErrUnknown.
package quipu
