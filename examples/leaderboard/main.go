// Command leaderboard keeps the players of a game in order: of all time, and of
// today. Each game that a player wins is one add, which changes the total and both
// lists in one step; a repeat of it changes nothing.
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
	"github.com/quipudb/quipu/call"
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
		Pattern: "points:*",
		Windows: []definition.Window{{Every: day, Keep: month}},
		Tops:    []definition.Top{{Name: "players", By: "player"}},
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
		{"cem", 8, lastWeek},
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

	always, err := db.Top(ctx, "players", call.TopOptions{Key: "points:chess", K: 3})
	if err != nil {
		return err
	}
	board(out, "of all time", always)
	now, err := db.Top(ctx, "players", call.TopOptions{Key: "points:chess", K: 3, From: today, To: today.AddDate(0, 0, 1)})
	if err != nil {
		return err
	}
	board(out, "today", now)
	return nil
}

// board prints a list. It is exact as long as there are few players, and has bounds
// that always hold if they are millions: it takes some kilobytes either way.
func board(out io.Writer, title string, top call.Top) {
	fmt.Fprintln(out, title)
	for i, item := range top.Items {
		fmt.Fprintf(out, "%d. %s %d\n", i+1, item.Item, item.Lower)
	}
}
