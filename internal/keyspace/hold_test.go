package keyspace_test

import (
	"bytes"
	"encoding/hex"
	"testing"

	"github.com/quipudb/quipu/internal/keyspace"
)

// TestHeads checks the bytes of keys whose sketches are in pieces: they are stored.
func TestHeads(t *testing.T) {
	for command, want := range map[string]string{
		"CMS.INITBYDIM k 20000 7":                     "050103" + "0100000001000000" + "1200" + "0700" + "204e0000",
		"BF.RESERVE k 0.001 200000 EXPANSION 4":       "050104" + "0100000001000000" + "7000" + "0a04" + "400d0300",
		"BF.RESERVE k 0.01 1000000 NONSCALING":        "050104" + "0100000001000000" + "1400" + "0700" + "40420f00",
		"BF.INSERT k CAPACITY 300000 ITEMS 1":         "050104" + "0100000001000000" + "8900" + "0702" + "e0930400",
		"CMS.INITBYPROB k 0.0001 0.001":               "050103" + "0100000001000000" + "1900" + "0a00" + "204e0000",
		"BF.RESERVE k 0.001 100":                      "",
		"CMS.INITBYDIM k 100 7":                       "",
		"TOPK.RESERVE k 1000":                         "",
		"PFADD k a b c d e f g h i j k l m n o p q r": "",
	} {
		w := newWorld()
		w.do(t, stringsOf(command)...)
		held := w.keys["k"].Held
		name, pieces, ok := keyspace.PiecesOf(held)
		if got := hex.EncodeToString([]byte(held)); ok != (want != "") || ok && got != want {
			t.Errorf("%s: %s, want %s", command, got, want)
		}
		if ok && (name != "0000000100000001" || pieces < 2) {
			t.Errorf("%s: %d pieces named %s", command, pieces, name)
		}
	}
}

func stringsOf(command string) (words []string) {
	for word := range bytes.FieldsSeq([]byte(command)) {
		words = append(words, string(word))
	}
	return words
}

// FuzzHold has commands meet a key that holds any bytes: nothing panics, and what nobody knows is nothing.
func FuzzHold(f *testing.F) {
	w := newWorld()
	for _, command := range []string{"PFADD u a b", "BF.ADD b x", "CMS.INITBYDIM c 10 2", "TOPK.RESERVE t 2", "CMS.INITBYDIM p 20000 7", "BF.RESERVE q 0.001 200000"} {
		s := w.space()
		args := bytes.Fields([]byte(command))
		s.Do(args)
		f.Add([]byte(s.Is(string(args[1])).Held))
	}
	f.Add([]byte("\x00text"))
	f.Fuzz(func(t *testing.T, held []byte) {
		v, ok := keyspace.Hold(string(held))
		if !ok || len(held) > keyspace.TextMax+1 {
			return
		}
		if v.Type() == "" {
			t.Errorf("%x has no type", held)
		}
		for _, command := range []string{
			"PFADD k a", "PFCOUNT k", "PFMERGE l k", "BF.ADD k a", "BF.MADD k a b", "BF.EXISTS k a", "BF.INFO k", "CMS.INCRBY k a 1", "CMS.QUERY k a", "CMS.INFO k",
			"CMS.MERGE k 1 k", "TOPK.ADD k a", "TOPK.LIST k", "TOPK.COUNT k a", "TYPE k", "GET k", "COPY k l", "DEL k",
		} {
			s := keyspace.New(1_700_000_000_000, func(key string) (keyspace.Value, error) {
				if key == "k" {
					return v, nil
				}
				return keyspace.Value{}, nil
			})
			s.Pieces = func(_, _ string, indexes []int) ([]string, error) { return make([]string, len(indexes)), nil }
			s.Do(bytes.Fields([]byte(command)))
			s.Changes()
		}
	})
}
