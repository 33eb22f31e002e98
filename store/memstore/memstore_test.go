package memstore_test

import (
	"testing"

	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

func open(partitions int) storetest.Opener {
	return func(_ testing.TB, c storetest.Config) *storetest.Instance {
		return &storetest.Instance{Store: memstore.New(memstore.Options{
			Limits:     c.Limits,
			Now:        c.Now,
			Elapsed:    c.Elapsed,
			Partitions: partitions,
		})}
	}
}

func TestLaws(t *testing.T) {
	t.Run("1 partition", func(t *testing.T) { storetest.Run(t, open(1)) })
	t.Run("8 partitions", func(t *testing.T) { storetest.Run(t, open(8)) })
}

func TestClocks(t *testing.T) { storetest.Clocks(t, open(8)) }

func BenchmarkStore(b *testing.B) { storetest.Bench(b, open(8)) }
