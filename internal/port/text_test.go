package port_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/keyspace"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

// Keys that are read one after the other, and only read, are as they were at one moment: if one has changed
// meanwhile, they are read again.
func TestTextReadsAtOneMoment(t *testing.T) {
	db := quipu.New(memstore.New(memstore.Options{}), quipu.Options{})
	defer func() { _ = db.Close() }()
	for key, n := range map[string]int64{"a": 100, "b": 0} {
		if _, err := db.Add(t.Context(), key, n); err != nil {
			t.Fatal(err)
		}
	}
	tries, sum := 0, int64(0)
	if err := db.Port().Text(t.Context(), nil, nil, func(s *keyspace.Space) error {
		sum = s.Is("a").N
		if tries++; tries == 1 { // another moves some from one to the other
			for key, n := range map[string]int64{"a": -30, "b": 30} {
				if _, err := db.Add(t.Context(), key, n); err != nil {
					return err
				}
			}
		}
		sum += s.Is("b").N
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if tries != 2 || sum != 100 {
		t.Errorf("the sum is %d after %d tries, want 100 after 2", sum, tries)
	}
}

// An addition that would cross the floor of a definition has all that is of its step refused.
func TestTextWithinBounds(t *testing.T) {
	db := quipu.New(memstore.New(memstore.Options{}), quipu.Options{})
	defer func() { _ = db.Close() }()
	floorAt(t, db, 0)
	if _, err := db.Add(t.Context(), "s", 3); err != nil {
		t.Fatal(err)
	}
	step := func(n string) error {
		return db.Port().Text(t.Context(), []string{"s", "sold"}, nil, func(s *keyspace.Space) error {
			s.Do([][]byte{[]byte("INCR"), []byte("sold")})
			s.Do([][]byte{[]byte("INCRBY"), []byte("s"), []byte(n)})
			return nil
		})
	}
	if err := step("-5"); store.KindOf(err) != store.KindBound {
		t.Errorf("below the floor: %v", err)
	}
	holds(t, db, "s", 3)
	holds(t, db, "sold", 0)
	if err := step("-3"); err != nil {
		t.Error(err)
	}
	holds(t, db, "s", 0)
	holds(t, db, "sold", 1)
}

// A step that would make more keys than there is room for changes nothing.
func TestTextWithoutRoom(t *testing.T) {
	db := quipu.New(memstore.New(memstore.Options{Limits: store.Limits{KeysMax: 2}}), quipu.Options{})
	defer func() { _ = db.Close() }()
	for _, key := range []string{"a", "b"} {
		if _, err := db.Add(t.Context(), key, 1); err != nil {
			t.Fatal(err)
		}
	}
	step := func(commands ...string) error {
		return db.Port().Text(t.Context(), nil, nil, func(s *keyspace.Space) error {
			for _, command := range commands {
				var args [][]byte
				for word := range strings.FieldsSeq(command) {
					args = append(args, []byte(word))
				}
				s.Do(args)
			}
			return nil
		})
	}
	for _, commands := range [][]string{{"INCR a", "SET c hello"}, {"BF.ADD c x", "INCR a"}, {"INCR a", "CMS.INITBYDIM c 40000 5", "CMS.INCRBY c x 1"}, {"DEL b", "SET c 1", "SET d 1", "INCR a"}} {
		if err := step(commands...); store.KindOf(err) != store.KindFull {
			t.Errorf("%q: %v", commands, err)
		}
		holds(t, db, "a", 1)
		holds(t, db, "b", 1)
	}
	if err := step("INCR a", "SET c hello", "DEL b"); err != nil {
		t.Error(err)
	}
	holds(t, db, "a", 2)
}

// A step that would change more pieces of large sketches than fit into a batch says so, and changes nothing.
func TestTextTooLarge(t *testing.T) {
	s := newServer(t, memstore.New(memstore.Options{}), quipu.Options{})
	keys := []string{"a", "b", "c", "d", "e", "f"}
	for _, key := range keys {
		s.do("BF.RESERVE " + key + " 0.001 30000000")
	}
	err := s.db.Port().Text(t.Context(), nil, nil, func(space *keyspace.Space) error {
		for _, key := range keys {
			args := [][]byte{[]byte("BF.MADD"), []byte(key)}
			for i := range 2000 {
				args = append(args, fmt.Append(nil, "item", i))
			}
			space.Do(args)
		}
		return nil
	})
	if store.KindOf(err) != store.KindTooLarge || !strings.Contains(err.Error(), "use fewer") {
		t.Error(err)
	}
	for _, key := range keys {
		if r := s.do("BF.CARD " + key); r.N != 0 {
			t.Errorf("%s has %d items", key, r.N)
		}
	}
}
