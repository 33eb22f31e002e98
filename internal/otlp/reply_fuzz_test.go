package otlp

import (
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// A collector may reply anything.
func FuzzReply(f *testing.F) {
	partial := protowire.AppendVarint(protowire.AppendTag(nil, partialRejected, protowire.VarintType), 7)
	whole := protowire.AppendBytes(protowire.AppendTag(nil, replyPartial, protowire.BytesType), partial)
	if got := rejected(whole); got != 7 {
		f.Fatalf("%d were rejected", got)
	}
	f.Add(whole)
	f.Add([]byte(nil))
	f.Add([]byte("\x0a\xff\xff\xff\xff\x0f"))
	f.Add([]byte("\x0a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Fuzz(func(t *testing.T, reply []byte) {
		if n := rejected(reply); n < 0 {
			t.Errorf("%x: %d were rejected", reply, n)
		}
	})
}
