package client

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"github.com/quipudb/quipu/call"
	pb "github.com/quipudb/quipu/quipupb"
	"github.com/quipudb/quipu/store"
)

// An entry of a Writer is named by its key, and if there is more to say of its adds, by
// that too: what has one name is added up. Behind the key comes factMark, which is in no
// key, because keys are UTF-8; then the second at which it happened, who did it, and the
// dimensions, each text after its length.
const factMark = "\xff"

// keyOf returns the key of an entry.
func keyOf(entry string) string {
	key, _, _ := strings.Cut(entry, factMark)
	return key
}

// entryOf returns the name of what is added with options.
func entryOf(key string, opts []call.WriteOption) (string, error) {
	t, err := call.WriteTermsOf(opts, true)
	if err != nil {
		return "", err
	}
	if t.HasToken || t.WantValue || t.HasVersion || t.HasFloor || t.HasCeiling || t.Saturate || t.HasTTL {
		return "", store.Errorf(store.KindInvalid, "a Writer takes only the options At, Dim and Who, because the others need an answer for each add")
	}
	if err := cmp.Or(store.CheckKey(key), call.CheckWho(t.Who), checkDims(t.Dims)); err != nil {
		return "", err
	}
	at := time.Now()
	if t.HasAt && !time.UnixMilli(t.AtMS).IsZero() {
		at = time.UnixMilli(t.AtMS)
	}
	b := make([]byte, 0, len(key)+len(t.Who)+64)
	b = append(append(b, key...), factMark...)
	b = binary.AppendVarint(b, at.Unix()) // No window is shorter.
	b = appendText(b, t.Who)
	slices.SortFunc(t.Dims, func(a, b call.Dimension) int { return cmp.Compare(a.Name, b.Name) })
	for _, d := range t.Dims {
		b = appendText(appendText(b, d.Name), d.Value)
	}
	return string(b), nil
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// checkDims returns an error if dimensions can't be sent.
func checkDims(dims []call.Dimension) error {
	if len(dims) > call.DimsMax {
		return store.Errorf(store.KindTooLarge, "an event with %d dimensions: at most %d", len(dims), call.DimsMax)
	}
	for i, d := range dims {
		if err := checkText("dimension", d.Name, "value of a dimension", d.Value); err != nil {
			return err
		}
		if slices.ContainsFunc(dims[:i], func(e call.Dimension) bool { return e.Name == d.Name }) {
			return store.Errorf(store.KindInvalid, "dimension %q is given twice", d.Name)
		}
	}
	return nil
}

// decodeFact returns what the name of an entry says behind the mark.
func decodeFact(code string) *pb.WriteRequest_Fact {
	b := []byte(code)
	seconds, n := binary.Varint(b)
	b = b[n:]
	text := func() string {
		size, n := binary.Uvarint(b)
		s := string(b[n : n+int(size)])
		b = b[n+int(size):]
		return s
	}
	f := &pb.WriteRequest_Fact{AtMs: seconds * 1000, Who: text()}
	for len(b) > 0 {
		if f.Dims == nil {
			f.Dims = map[string]string{}
		}
		name := text()
		f.Dims[name] = text()
	}
	return f
}
