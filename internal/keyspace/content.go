package keyspace

import "github.com/quipudb/quipu/internal/collection"

// kindText is the first byte of what a key holds if that is text. The others are those of
// other things that keys may hold.
const kindText = 0

// Content returns the bytes of the part that holds text.
func Content(text string) []byte { return append([]byte{kindText}, text...) }

// Text returns the text that such bytes are; ok is false if they are something else.
func Text(content string) (text string, ok bool) {
	if content == "" || content[0] != kindText {
		return "", false
	}
	return content[1:], true
}

// What Redis keeps in one piece: text of so many bytes beside its object, and collections of so many
// elements that are no longer than that.
const (
	embeddedMax    = 44
	hashPackedMax  = 512
	zsetPackedMax  = 128
	packedBytesMax = 64
)

// Encoding returns what OBJECT ENCODING calls a value that was made at once.
func (v Value) Encoding() string {
	packed := true
	switch v.Type() {
	case "hash":
		h, _ := collection.ParseHash(v.Held)
		for name, value := range h.All() {
			packed = packed && len(name) <= packedBytesMax && len(value) <= packedBytesMax
		}
		if !packed || h.Len() > hashPackedMax {
			return "hashtable"
		}
		return "listpack"
	case "zset":
		z, _ := collection.ParseSorted(v.Held)
		for _, m := range z.All() {
			packed = packed && len(m.Name) <= packedBytesMax
		}
		if !packed || z.Len() > zsetPackedMax {
			return "skiplist"
		}
		return "listpack"
	}
	switch {
	case v.Held != "", len(v.Text) > embeddedMax:
		return "raw"
	case v.IsText:
		return "embstr"
	}
	return "int"
}
