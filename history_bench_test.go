package quipu_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
)

// hourly returns an embedded DB with some counters that have a count in each hour of 30
// days: in memory, or after a restart on disk.
func hourly(b *testing.B, counters int, restarted bool) (*quipu.DB, quipu.RangeOptions) {
	b.Helper()
	dir := b.TempDir()
	open := func() *quipu.DB {
		db, err := quipu.Open(dir, quipu.Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			b.Fatal(err)
		}
		return db
	}
	db := open()
	b.Cleanup(func() {
		if err := db.Close(); err != nil {
			b.Error(err)
		}
	})
	day := 24 * time.Hour
	_, err := db.Define(context.Background(), []definition.Definition{{Pattern: "views:*", Windows: []definition.Window{
		{Every: width("1m"), Keep: definition.Keep(day)}, {Every: width("1h"), Keep: definition.Keep(40 * day)}, {Every: width("1d"), Keep: definition.Keep(1800 * day)},
	}}}, quipu.DefineOptions{})
	if err != nil {
		b.Fatal(err)
	}
	o := quipu.RangeOptions{To: time.Now().Truncate(time.Hour).Add(time.Hour), Step: width("1h")}
	o.From = o.To.Add(-30 * day)
	for at := o.From; at.Before(o.To); at = at.Add(time.Hour) {
		events := make([]quipu.Event, counters)
		for i := range events {
			events[i] = quipu.Event{Key: fmt.Sprintf("views:%d", i), Delta: 1, At: at}
		}
		if _, err := db.AddBatch(context.Background(), events); err != nil {
			b.Fatal(err)
		}
	}
	if restarted {
		if err := db.Close(); err != nil {
			b.Fatal(err)
		}
		db = open()
	}
	return db, o
}

func BenchmarkRange(b *testing.B) {
	f := func(name string, counters int, restarted bool, key string) {
		b.Run(name, func(b *testing.B) {
			db, o := hourly(b, counters, restarted)
			o.Prefix = counters > 1
			for b.Loop() {
				if s, err := db.Range(context.Background(), key, o); err != nil || s.Sum != int64(720*counters) || len(s.Points) != 720 {
					b.Fatal(s.Sum, err)
				}
			}
		})
	}
	f("one", 1, false, "views:0")
	f("one on disk", 1, true, "views:0")
	f("prefix of 1000", 1000, false, "views:")
	f("prefix of 1000 on disk", 1000, true, "views:")
}

func BenchmarkVerifyViews(b *testing.B) {
	db, _ := hourly(b, 1000, true)
	cells := int64(0)
	for b.Loop() {
		a, err := db.Verify(context.Background())
		if err != nil || len(a.Drift) > 0 {
			b.Fatal(a, err)
		}
		cells += a.Cells
	}
	b.ReportMetric(float64(cells)/b.Elapsed().Seconds(), "cells/s")
}
