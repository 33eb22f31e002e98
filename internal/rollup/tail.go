package rollup

// tailMax is how many adds a Tail knows apart.
const tailMax = 128

// A Tail is what one server has added to a counter since the total that it keeps
// was collected, so that whoever writes through it reads what he wrote without
// asking the store. What the total counts already, it tells by the versions that
// the counter's cells had then, and by the order of what happened here, in ticks:
// numbers that rise with every event. The zero value belongs to no total.
type Tail struct {
	base  []uint64 // the versions of the counter's cells in the total, by shard; 0 if it was not there
	got   uint64   // when the total was known here
	adds  []add
	sum   int64
	stamp uint64
}

// An add is one or several to one shard.
type add struct {
	shard       int
	first, last uint64 // versions
	n           int64
	told        uint64 // the last
}

// Rebase makes t the tail of another total, which was asked for at one tick and
// known at another: it counts all that was told before it was asked for, and of
// the rest what is in these versions. It reports false if that can't be told of
// all, because the counter was laid out anew; then no total that was asked for
// before now may be served as if it counted what was written here. With a total
// that is asked for at tick 20, known at 25, and has shard 3 at version 8:
//
//	an add was told at 19                     counted, whatever its version is
//	one to shard 3 got version 8, told at 21  counted: the shard was read after it
//	one to shard 3 got version 9, told at 22  stays in the tail
//	one to shard 5, which the total lacks     not known: home may have taken it in
func (t *Tail) Rebase(versions []uint64, asked, got uint64) bool {
	t.base, t.got = append(t.base[:0], versions...), got
	left, sure := t.adds[:0], true
	t.sum = 0
	for _, a := range t.adds {
		switch {
		case a.told < asked:
		case !t.knows(a.shard) || t.base[a.shard] == 0:
			sure = false // A cell that was not there may have been, with it.
		case a.last <= t.base[a.shard]:
		case a.first > t.base[a.shard]:
			left = append(left, a)
			t.sum += a.n
		default:
			sure = false
		}
	}
	clear(t.adds[len(left):])
	t.adds = left
	return sure
}

// Note takes an add into account that began at one tick and was told at another:
// to a shard, which has that version by it. It reports false as Rebase does.
func (t *Tail) Note(shard int, version uint64, n int64, began, told uint64) bool {
	switch later := began > t.got; {
	case !t.knows(shard):
		return false
	case later && version <= t.base[shard]:
		return false // The total can't have it: the store has gone back.
	case !later && t.base[shard] == 0:
		return false // It may have been made before, and be gone with its cell.
	case version <= t.base[shard]:
		return true
	}
	sum := t.sum + n
	if (sum > t.sum) != (n > 0) && n != 0 {
		return false
	}
	if len(t.adds) == tailMax {
		t.halve()
	}
	t.adds = append(t.adds, add{shard, version, version, n, told})
	t.sum = sum
	t.stamp = (t.stamp ^ version ^ uint64(shard)<<56) * 0x9e3779b97f4a7c15
	return true
}

// knows reports whether versions of a shard tell something: those of one that was
// not there do not, since home may have taken it in.
func (t *Tail) knows(shard int) bool {
	return shard < len(t.base) && (shard == 0 || t.base[shard] != 0)
}

// halve makes one of every two adds to a shard that follow each other.
func (t *Tail) halve() {
	single := make(map[int]int)
	left := t.adds[:0]
	for _, a := range t.adds {
		i, ok := single[a.shard]
		if !ok {
			single[a.shard] = len(left)
			left = append(left, a)
			continue
		}
		delete(single, a.shard)
		to := &left[i]
		to.first, to.last = min(to.first, a.first), max(to.last, a.last)
		to.n += a.n
		to.told = max(to.told, a.told)
	}
	t.adds = left
}

// Based reports whether t belongs to a total.
func (t *Tail) Based() bool { return len(t.base) > 0 }

// Sum returns what was added since, and a stamp that is another after each add;
// the stamp is 0 if there was none.
func (t *Tail) Sum() (sum int64, stamp uint64) {
	if len(t.adds) == 0 {
		return 0, 0
	}
	return t.sum, max(1, t.stamp)
}
