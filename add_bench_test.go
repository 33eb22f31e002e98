package quipu_test

import (
	"fmt"
	"testing"

	"github.com/quipudb/quipu"
)

// BenchmarkAddOverhead is what a DB costs over its store: the stub does next to
// nothing.
func BenchmarkAddOverhead(b *testing.B) {
	f := func(name string, o quipu.Options, opts ...quipu.WriteOption) {
		b.Run(name, func(b *testing.B) {
			db := quipu.New(newStub(), o)
			ctx := b.Context()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := db.Add(ctx, "likes:post:42", 1, opts...); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	f("plain", quipu.Options{})
	f("policies", quipu.Options{Policies: []quipu.Policy{
		{Pattern: "stock:*"}, {Pattern: "views:*", Durability: quipu.Memory}, {Pattern: "*", Durability: quipu.Written},
	}})
	f("value", quipu.Options{}, quipu.WantValue())
	f("token", quipu.Options{}, quipu.Token("01890a5d-ac96-774b-bcce-b302099a8057"))
}

// BenchmarkAddBatchOverhead is the same for a batch of a hundred events; the
// time is that of one event.
func BenchmarkAddBatchOverhead(b *testing.B) {
	f := func(partitions int) {
		b.Run(fmt.Sprint(partitions, " partitions"), func(b *testing.B) {
			s := newStub()
			s.traits.Partitions = partitions
			db := quipu.New(s, quipu.Options{})
			events := make([]quipu.Event, 100)
			for i := range events {
				events[i] = quipu.Event{Key: fmt.Sprint("likes:post:", i), Delta: 1}
			}
			ctx := b.Context()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if i%len(events) != 0 {
					continue
				}
				if _, err := db.AddBatch(ctx, events); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	f(1)
	f(64)
}
