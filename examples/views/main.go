// Command views counts the views of a page by the hour and by country, and draws
// the last day: one add changes the total, the window of its hour and the count of
// its country, in one step.
//
//	go run ./examples/views
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer) error {
	dir, err := os.MkdirTemp("", "views-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	db, err := quipu.Open(dir, quipu.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer db.Close()

	hour, err := definition.ParseWidth("1h")
	if err != nil {
		return err
	}
	month, err := definition.ParseKeep("30d")
	if err != nil {
		return err
	}
	views := definition.Definition{
		Pattern:    "view:*",
		Windows:    []definition.Window{{Every: hour, Keep: month}},
		Dimensions: []definition.Dimension{{By: []string{"country"}}},
	}
	if _, err := db.Define(ctx, []definition.Definition{views}, quipu.DefineOptions{}); err != nil {
		return err
	}

	// The views of a day, as they might come from a log. Each has the time when it
	// happened, and its own token: read the log twice, and nothing is counted twice.
	begin := time.Now().UTC().Truncate(time.Hour).Add(-23 * time.Hour)
	for range 2 {
		if err := replay(ctx, db, begin); err != nil {
			return err
		}
	}

	day, err := db.Range(ctx, "view:home", quipu.RangeOptions{From: begin, To: begin.Add(24 * time.Hour), Step: hour})
	if err != nil {
		return err
	}
	for _, p := range day.Points {
		fmt.Fprintf(out, "%s %s %d\n", p.From.Format("15:04"), strings.Repeat("#", int(p.Value)), p.Value)
	}
	fmt.Fprintf(out, "%d views in 24 hours\n", day.Sum)
	countries, err := db.By(ctx, "view:home", "country", quipu.ByOptions{Top: 2})
	if err != nil {
		return err
	}
	for _, v := range countries.Values {
		fmt.Fprintln(out, v.Value, v.Count)
	}
	fmt.Fprintln(out, "elsewhere", countries.Other)
	return nil
}

// replay counts a day's views: more of them towards the evening.
func replay(ctx context.Context, db *quipu.DB, begin time.Time) error {
	countries := []string{"PE", "PE", "PE", "DE", "DE", "JP"}
	n := 0
	for hour := range 24 {
		for range hour + 1 {
			_, err := db.Add(
				ctx, "view:home", 1,
				quipu.Token(fmt.Sprintf("log-1:%d", n)),
				quipu.At(begin.Add(time.Duration(hour)*time.Hour)),
				quipu.Dim("country", countries[n%len(countries)]),
			)
			if err != nil {
				return err
			}
			n++
		}
	}
	return nil
}
