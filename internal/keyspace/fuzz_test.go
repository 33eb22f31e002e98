package keyspace_test

import (
	"bytes"
	"testing"

	"github.com/quipudb/quipu/internal/keyspace"
)

// FuzzDo executes any commands on any keys: nothing panics, text stays within its limit, and
// what is text is no integer.
func FuzzDo(f *testing.F) {
	for _, seed := range []string{
		"SET k v EX 10 GET", "SETRANGE k 65534 x", "GETRANGE k -1 9", "INCRBYFLOAT k 1e308", "COPY k l REPLACE", "GETEX k PXAT 1",
		"PFADD k a b\nPFCOUNT k l\nPFMERGE l k", "BF.RESERVE s 0.01 100000\nBF.MADD s a b a\nBF.INFO s ITEMS", "BF.INSERT s NOCREATE ITEMS a",
		"CMS.INITBYDIM s 2000 8\nCMS.INCRBY s a 5 b 1\nCMS.MERGE s 1 s WEIGHTS 2\nCMS.QUERY s a", "TOPK.RESERVE s 3\nTOPK.ADD s a b\nTOPK.LIST s WITHCOUNT",
		"EXPIRE k 9223372036854775807 NX", "MSET a 1 b", "APPEND k \xff", "MGET", "",
	} {
		f.Add([]byte(seed), "text", int64(1))
	}
	f.Fuzz(func(t *testing.T, line []byte, text string, deadline int64) {
		if len(text) > keyspace.TextMax {
			return
		}
		was := keyspace.Value{Exists: true, IsText: true, Text: text, DeadlineMS: max(deadline, 0)}
		if n, ok := keyspace.Integer(text); ok {
			was.N, was.IsText, was.Text = n, false, ""
		}
		s := keyspace.New(1_700_000_000_000, func(key string) (keyspace.Value, error) {
			if len(key)%2 == 1 {
				return was, nil
			}
			return keyspace.Value{}, nil
		})
		s.Pieces = func(_, _ string, indexes []int) ([]string, error) { return make([]string, len(indexes)), nil }
		for command := range bytes.SplitSeq(line, []byte("\n")) {
			args := bytes.Fields(command)
			keyspace.KeysOf(args)
			s.Do(args)
		}
		for _, c := range s.Changes() {
			if _, is := keyspace.Integer(c.Text); is || len(c.Text) > keyspace.TextMax {
				t.Errorf("%+v", c)
			}
			if got, ok := keyspace.Text(string(keyspace.Content(c.Text))); !ok || got != c.Text {
				t.Errorf("text %q came back as %q", c.Text, got)
			}
		}
	})
}
