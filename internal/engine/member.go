package engine

import (
	"bytes"

	"github.com/zeebo/xxh3"

	"github.com/quipudb/quipu/store"
)

// Members are users who have reacted, and those who count once. Most who are looked for
// have not come before, so there is a filter of those on disk: see known.go. One that is
// wrong sends the whole batch to the disk, so it has twice the room for each that the
// filter of keys has, and is made anew, larger, rather than widened.

const (
	// memberRoom is how many keys a filter makes room for, for each member.
	memberRoom = 2
	// memberGrowth is how much larger a filter is made than what it has to have room for.
	memberGrowth = 4
	// memberRowBytes is less than the row of a member takes on disk.
	memberRowBytes = 16
)

// isUnlikely reports whether most parts of a kind that are looked for are not there: users
// who have not come before.
func isUnlikely(k store.PartKind) bool { return k == store.PartMember || k == store.PartOnce }

// isMember reports whether a key is that of a part that the filter of members is of.
func isMember(key []byte) bool {
	return isPart(key) && isUnlikely(store.PartKind(key[partRow(key)]))
}

// memberHash returns the hash by which the filter has a member, by its key.
func (e *Engine) memberHash(key []byte) uint64 { return xxh3.HashSeed(key[1:], e.id.seed()) }

// noMember reports whether the disk certainly has no row of a member that is not in memory,
// or is unread there, by its key.
func (e *Engine) noMember(key []byte) bool {
	return isMember(key) && e.lacks(&e.members, e.memberHash(key))
}

// skipToMember appends from where on the next member may be, if a row is no member's.
func skipToMember(dst, row []byte) []byte {
	n := 1 + namespaceLen(row[1:])
	for _, kind := range [...]store.PartKind{store.PartMember, store.PartOnce} {
		switch k := store.PartKind(row[n]); {
		case k == kind:
			return dst
		case k < kind:
			return append(append(dst, row[:n]...), byte(kind))
		}
	}
	return append(dst, successor(bytes.Clone(row[:n]))...)
}

// tendMembers makes room for the members that a checkpoint may add, as tendFilter does for
// keys. Without a filter there is none until the store is opened again: nobody knows how
// many of them there are.
func (e *Engine) tendMembers(more int) {
	e.mu.Lock()
	k := &e.members
	old, leave := k.filter, k.filling != nil || k.filter == nil || e.closed
	blocksMax := k.blocksMax
	e.mu.Unlock()
	if leave {
		return
	}
	keys := k.room * (old.keys + more)
	switch {
	case keys <= len(old.blocks)*roomKeys:
	case old.keys == 0:
		e.setFilter(k, newFilter(memberGrowth*keys, blocksMax))
	case len(old.blocks) < blocksMax:
		e.makeFilter(k, memberGrowth*keys)
	case keys > len(old.blocks)*blockKeysMax:
		e.o.Logger.Info("there are more users than fit into the filter of users: the first write of a new user reads the disk", "users", old.keys)
		e.setFilter(k, nil)
	}
}

// findMembers begins a filter of the members on disk, unless it is known that there are none.
func (e *Engine) findMembers() {
	if e.members.filter != nil {
		return
	}
	size, err := e.db.EstimateDiskUsage([]byte{rowPart}, []byte{rowPart + 1})
	if err != nil {
		e.o.Logger.Warn("can't build the filter of users", "error", err)
		return
	}
	e.makeFilter(&e.members, int(size/memberRowBytes)*memberRoom)
}

// willHaveMembers says which parts among some are about to be written to disk.
func (e *Engine) willHaveMembers(keys *table, some []saved) {
	var hashes [lockedCells]uint64
	n := 0
	for i := range some {
		if key := keys.keyOf(some[i].slot); some[i].meta.state() == present && isMember(key) {
			hashes[n] = e.memberHash(key)
			n++
		}
	}
	if n > 0 {
		e.mu.Lock()
		e.members.willHaveRows(hashes[:n])
		e.mu.Unlock()
	}
}
