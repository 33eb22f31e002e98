package sketch

import (
	"bytes"
	"slices"
)

// cell returns the cell that an item falls into.
func (t *Top) cell(hash uint64) *int64 { return &t.cells[hash&uint64(len(t.cells)-1)] }

// name returns the item of an entry, until the list changes.
func (t *Top) name(e *topEntry) []byte { return t.names[e.name:][:e.size] }

// find returns the slot of an item that is listed.
func (t *Top) find(item string, hash uint64) (slot uint16, ok bool) {
	mask := uint64(len(t.at) - 1)
	for i := hash >> 32 & mask; t.at[i] != 0; i = (i + 1) & mask {
		s := t.at[i] - 1
		if e := &t.all[s]; e.hash == hash && string(t.name(e)) == item {
			return s, true
		}
	}
	return 0, false
}

// put lists an item that is not listed, or raises its cell if there is no room for it.
func (t *Top) put(item string, hash uint64, lower, upper int64) {
	size := len(item) + topEntryHead
	for len(t.heap) == TopEntries(t.k) || t.room < size {
		if t.heap[0].upper >= upper {
			c := t.cell(hash)
			*c = max(*c, upper)
			return
		}
		t.drop()
	}
	t.insert(item, hash, lower, upper)
	t.up(len(t.heap) - 1)
}

// insert lists an item for which there is room. It leaves it at the end of the heap.
func (t *Top) insert(item string, hash uint64, lower, upper int64) {
	t.room -= len(item) + topEntryHead
	s := uint16(len(t.all))
	if n := len(t.free); n > 0 {
		s, t.free = t.free[n-1], t.free[:n-1]
	} else {
		t.all = append(t.all, topEntry{})
	}
	if len(t.names)+len(item) > cap(t.names) && len(t.names) >= 2*(t.live+len(item)) {
		t.pack()
	}
	t.all[s] = topEntry{
		hash: hash, upper: upper, lower: lower,
		name: uint32(len(t.names)), size: uint8(len(item)), node: uint16(len(t.heap)),
	}
	t.names = append(t.names, item...)
	t.live += len(item)
	t.heap = append(t.heap, topNode{upper, s})
	mask := uint64(len(t.at) - 1)
	i := hash >> 32 & mask
	for t.at[i] != 0 {
		i = (i + 1) & mask
	}
	t.at[i] = s + 1
}

// drop makes the least listed item leave, and raises its cell.
func (t *Top) drop() {
	s := t.heap[0].slot
	e := &t.all[s]
	c := t.cell(e.hash)
	*c = max(*c, e.upper)
	t.room += int(e.size) + topEntryHead
	t.live -= int(e.size)
	t.unindex(e.hash, s)
	e.size = 0
	t.free = append(t.free, s)

	last := len(t.heap) - 1
	t.heap[0] = t.heap[last]
	t.heap = t.heap[:last]
	if last > 0 {
		t.all[t.heap[0].slot].node = 0
		t.down(0)
	}
}

// unindex takes a slot out of the index, and closes the gap.
func (t *Top) unindex(hash uint64, slot uint16) {
	mask := uint64(len(t.at) - 1)
	i := hash >> 32 & mask
	for t.at[i] != slot+1 {
		i = (i + 1) & mask
	}
	for j := (i + 1) & mask; t.at[j] != 0; j = (j + 1) & mask {
		home := t.all[t.at[j]-1].hash >> 32 & mask
		if (j-home)&mask >= (j-i)&mask {
			t.at[i] = t.at[j]
			i = j
		}
	}
	t.at[i] = 0
}

// pack closes the gaps between the items.
func (t *Top) pack() {
	to := t.spare[:0]
	for _, n := range t.heap {
		e := &t.all[n.slot]
		name := t.name(e)
		e.name = uint32(len(to))
		to = append(to, name...)
	}
	t.names, t.spare = to, t.names
}

// clear makes the list empty. It leaves the cells.
func (t *Top) clear() {
	t.all, t.free, t.heap, t.names, t.live = t.all[:0], t.free[:0], t.heap[:0], t.names[:0], 0
	clear(t.at)
	t.room = StateBytesMax - topHead - len(t.cells)*topCellBytes
}

// worse reports whether an item comes after another in the list.
func (t *Top) worse(a, b topNode) bool {
	if a.upper != b.upper {
		return a.upper < b.upper
	}
	x, y := &t.all[a.slot], &t.all[b.slot]
	if x.hash != y.hash {
		return x.hash > y.hash
	}
	return bytes.Compare(t.name(x), t.name(y)) > 0
}

// order returns the slots of the list, the most frequent first.
func (t *Top) order() []uint16 {
	nodes := slices.Clone(t.heap)
	t.sortNodes(nodes)
	order := make([]uint16, len(nodes))
	for i, n := range nodes {
		order[i] = n.slot
	}
	return order
}

// sortNodes sorts items, the most frequent first.
func (t *Top) sortNodes(nodes []topNode) {
	slices.SortFunc(nodes, func(a, b topNode) int {
		switch {
		case a.slot == b.slot:
			return 0
		case t.worse(a, b):
			return 1
		default:
			return -1
		}
	})
}

// topArity is how many children a node of the heap has.
const topArity = 4

// down moves a node that has grown away from the root.
func (t *Top) down(i int) {
	x := t.heap[i]
	for {
		first := topArity*i + 1
		if first >= len(t.heap) {
			break
		}
		least := first
		for j := first + 1; j < min(first+topArity, len(t.heap)); j++ {
			if t.worse(t.heap[j], t.heap[least]) {
				least = j
			}
		}
		if !t.worse(t.heap[least], x) {
			break
		}
		t.heap[i] = t.heap[least]
		t.all[t.heap[i].slot].node = uint16(i)
		i = least
	}
	t.heap[i] = x
	t.all[x.slot].node = uint16(i)
}

// up moves a node that is new towards the root.
func (t *Top) up(i int) {
	x := t.heap[i]
	for i > 0 {
		parent := (i - 1) / topArity
		if !t.worse(x, t.heap[parent]) {
			break
		}
		t.heap[i] = t.heap[parent]
		t.all[t.heap[i].slot].node = uint16(i)
		i = parent
	}
	t.heap[i] = x
	t.all[x.slot].node = uint16(i)
}
