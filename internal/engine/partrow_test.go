package engine

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/quipudb/quipu/store"
)

// FuzzPartRow decodes arbitrary bytes as the key and the content of a part, and of what
// else came with parts. What can be decoded is the same when it is encoded again.
func FuzzPartRow(f *testing.F) {
	home := store.Cell{Namespace: "n", Key: "key"}
	shard := store.ShardCell(store.Cell{Namespace: defaultNamespace, Key: "k"}, 3)
	for _, c := range []store.PartCell{
		{Cell: home, Part: store.PartFields{Kind: store.PartWindow, View: 1, Epoch: 7, Position: 60_000}.Part()},
		{Cell: shard, Part: store.PartFields{Kind: store.PartDim, View: 2, Name: "DE"}.Part()},
		{Cell: home, Part: store.PartFields{Kind: store.PartEntries, View: 3, Epoch: store.EpochForever, Position: 9}.Part()},
	} {
		f.Add(appendPart(nil, c.Cell, c.Part), binary.AppendVarint(nil, -5))
	}
	f.Add([]byte{nsPart}, (&tally{sum: 1, check: 1 << 63}).appendEpoch(nil))
	f.Fuzz(func(t *testing.T, key, content []byte) {
		if tally, ok := decodeEpochTally(content); ok && !bytes.Equal(tally.appendEpoch(nil), content) {
			t.Errorf("tally %+v was %x", tally, content)
		}
		c, p, ok := decodePart(key)
		if !ok {
			return
		}
		if again, part, ok := decodePart(appendPart(nil, c, p)); !ok || again != c || part != p {
			t.Errorf("part %x of %+v became %x of %+v", p, c, part, again)
		}
		r, ok := decodePartRow(key, content)
		switch {
		case !ok || r.bytes != nil:
		case !bytes.Equal(key, appendPart(nil, c, p)): // it is written in another way
		default:
			if again, ok := decodePartRow(key, binary.AppendVarint(nil, r.value)); !ok || again != r {
				t.Errorf("row %+v became %+v", r, again)
			}
		}
	})
}
