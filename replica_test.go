package quipu_test

import (
	"errors"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/store"
)

// What a replica has is served for what it is, and not to readers who need more.
func TestReplica(t *testing.T) {
	s := newStub()
	asOf := time.Now().Add(-10 * time.Second).Truncate(time.Millisecond)
	s.value = store.Value{N: 5, Version: 7, Exists: true, AsOfMS: asOf.UnixMilli()}
	db := quipu.New(s, quipu.Options{ReadOnly: true, Policies: []quipu.Policy{{Pattern: "rolled", Timing: quipu.Rollup, Interval: time.Second}}})
	t.Cleanup(func() { _ = db.Close() })
	served := func(key string, opts ...quipu.ReadOption) {
		t.Helper()
		c, err := db.Read(t.Context(), key, opts...)
		if err != nil || c.Value != 5 || c.Exact || !c.AsOf.Equal(asOf) || c.Staleness < 10*time.Second || c.Source != "replica" || !c.Bounded {
			t.Errorf("%s: %+v, %v", key, c, err)
		}
		if cs, err := db.ReadBatch(t.Context(), []string{key}, opts...); err != nil || cs[0].Exact || !cs[0].AsOf.Equal(asOf) {
			t.Errorf("%s in a batch: %+v, %v", key, cs, err)
		}
	}
	refused := func(opts ...quipu.ReadOption) {
		t.Helper()
		for _, key := range []string{"k", "rolled"} {
			if c, err := db.Read(t.Context(), key, opts...); !errors.Is(err, quipu.ErrUnavailable) {
				t.Errorf("%s: %+v, %v", key, c, err)
			}
			if cs, err := db.ReadBatch(t.Context(), []string{key}, opts...); !errors.Is(err, quipu.ErrUnavailable) {
				t.Errorf("%s in a batch: %+v, %v", key, cs, err)
			}
		}
	}
	session := quipu.Receipt{Key: "k", Version: 7}.Session()
	served("k")
	served("rolled")
	served("k", quipu.MaxStaleness(time.Minute))
	served("k", quipu.Session(session))
	refused(quipu.Exact())
	refused(quipu.MaxError(1))
	refused(quipu.MaxStaleness(0))
	refused(quipu.MaxStaleness(5 * time.Second))
	refused(quipu.MaxStaleness(5*time.Second), quipu.MaxStaleness(time.Minute))
	refused(quipu.Session(session), quipu.MaxStaleness(5*time.Second))

	s.value.AsOfMS = 0 // it was promoted
	if c, err := db.Read(t.Context(), "k", quipu.Exact()); err != nil || !c.Exact || c.Staleness != 0 || c.Source != "store" {
		t.Errorf("%+v, %v", c, err)
	}
}
