// Command leaderboard keeps the players of a game in order: of all time, and of
// today. Each game that a player wins is one add, which counts for the player and
// for the day in one step; a repeat of it counts nothing.
//
//	go run ./examples/leaderboard
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
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
	dir, err := os.MkdirTemp("", "leaderboard-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	db, err := quipu.Open(dir, quipu.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer db.Close()

	day, err := definition.ParseWidth("1d")
	if err != nil {
		return err
	}
	month, err := definition.ParseKeep("30d")
	if err != nil {
		return err
	}
	points := definition.Definition{
		Pattern:    "points:*",
		Windows:    []definition.Window{{Every: day, Keep: month}},
		Dimensions: []definition.Dimension{{By: []string{"player"}, Limit: 100_000}},
	}
	if _, err := db.Define(ctx, []definition.Definition{points}, quipu.DefineOptions{}); err != nil {
		return err
	}

	today := time.Now().UTC().Truncate(24 * time.Hour)
	lastWeek := today.AddDate(0, 0, -7)
	for n, game := range []struct {
		player string
		points int64
		at     time.Time
	}{
		{"ana", 50, lastWeek},
		{"bob", 20, lastWeek},
		{"cem", 10, lastWeek},
		{"bob", 15, today},
		{"cem", 25, today},
		{"dia", 5, today},
	} {
		for range 2 { // the second one is a repeat
			id := quipu.Token(fmt.Sprintf("game-%d", n))
			if _, err := db.Add(ctx, "points:chess", game.points, id, quipu.At(game.at), quipu.Dim("player", game.player)); err != nil {
				return err
			}
		}
	}

	always, err := db.By(ctx, "points:chess", "player", quipu.ByOptions{Top: 3})
	if err != nil {
		return err
	}
	board(out, "of all time", always)
	now, err := db.By(ctx, "points:chess", "player", quipu.ByOptions{From: today, To: today.AddDate(0, 0, 1), Top: 3})
	if err != nil {
		return err
	}
	board(out, "today", now)
	return nil
}

func board(out io.Writer, title string, b quipu.Breakdown) {
	fmt.Fprintln(out, title)
	for i, v := range b.Values {
		fmt.Fprintf(out, "%d. %s %d\n", i+1, v.Value, v.Count)
	}
}
