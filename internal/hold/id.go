package hold

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"

	"github.com/quipudb/quipu/store"
)

// The bytes of an id are
//
//	format 1 | sum 4 | amount, a uvarint | raw name 12 | length of the key, a uvarint | key | who
//
// and its text is that in the alphabet of base64 that needs no escapes in addresses. The sum
// is a checksum of the namespace and of what follows, so that an id that was cut short, or
// is of another namespace, is told from one that has ended.
const format = 1

// IDBytesMax is how long an id may be.
const IDBytesMax = (1+4+binary.MaxVarintLen64+rawBytes+2+store.KeyBytesMax+WhoBytesMax+2)/3*4 + 3

// ID returns the text by which callers name a hold of a namespace.
func (h *Hold) ID(namespace string) string {
	raw, _ := base64.RawURLEncoding.DecodeString(h.Name)
	b := make([]byte, 5, 64)
	b[0] = format
	b = binary.AppendUvarint(b, uint64(h.Amount))
	b = append(b, raw...)
	b = binary.AppendUvarint(b, uint64(len(h.Key)))
	b = append(append(b, h.Key...), h.Who...)
	binary.BigEndian.PutUint32(b[1:], sumOf(namespace, b[5:]))
	return base64.RawURLEncoding.EncodeToString(b)
}

func sumOf(namespace string, b []byte) uint32 {
	return crc32.Update(crc32.ChecksumIEEE([]byte(namespace+"\x00")), crc32.IEEETable, b)
}

// ParseID returns the hold that an id names.
func ParseID(namespace, id string) (Hold, error) {
	if len(id) > IDBytesMax {
		return Hold{}, store.Errorf(store.KindTooLarge, "id of a reservation of %d bytes: at most %d", len(id), IDBytesMax)
	}
	bad := func() (Hold, error) {
		return Hold{}, store.Errorf(store.KindInvalid, "%.40q is not the id of a reservation in namespace %q: want the id that reserve returned", id, namespace)
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(id)
	if err != nil || len(b) < 5 || b[0] != format || binary.BigEndian.Uint32(b[1:]) != sumOf(namespace, b[5:]) {
		return bad()
	}
	var h Hold
	rest := b[5:]
	amount, n := binary.Uvarint(rest)
	if n <= 0 || amount > AmountMax || len(rest) < n+rawBytes {
		return bad()
	}
	h.Amount, h.Name, rest = int64(amount), NameFrom([rawBytes]byte(rest[n:n+rawBytes])), rest[n+rawBytes:]
	size, n := binary.Uvarint(rest)
	if n <= 0 || size > uint64(len(rest)-n) {
		return bad()
	}
	h.Key, h.Who = string(rest[n:n+int(size)]), string(rest[n+int(size):])
	if h.Check() != nil || h.ID(namespace) != id {
		return bad()
	}
	return h, nil
}
