// Command llmquota sells answers of a language model by the token. The cost of an
// answer is known only when it is complete. So the command reserves the maximum cost
// before, and takes the real cost after. A limit keeps each customer from calling too
// often.
//
//	go run ./examples/llmquota
package main

import (
	"context"
	"errors"
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
	dir, err := os.MkdirTemp("", "llmquota-")
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
	calls := definition.Definition{Pattern: "calls", Limits: []definition.Limit{{Rate: 4, Per: hour}}}
	if _, err := db.Define(ctx, []definition.Definition{calls}, quipu.DefineOptions{}); err != nil {
		return err
	}
	// The customer has paid for this.
	if _, err := db.Set(ctx, "tokens:acme", 300); err != nil {
		return err
	}

	g := &gateway{db}
	for n, c := range []struct {
		prompt string
		most   int64
	}{
		{"how many strings has a quipu", 200},
		{"and how many knots", 200},
		{"write a novel", 1000},
		{"then a haiku", 100},
		{"one more", 100},
	} {
		text, err := g.complete(ctx, "acme", fmt.Sprintf("call-%d", n), c.prompt, c.most)
		if err != nil {
			text = "refused: " + err.Error()
		}
		left, err := db.Read(ctx, "tokens:acme")
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s\n  %s\n  %d tokens left\n", c.prompt, text, left.Value)
	}
	return nil
}

type gateway struct{ db *quipu.DB }

var (
	errOften = errors.New("too many calls: come back later")
	errQuota = errors.New("the tokens are used up: buy more, or ask for a shorter answer")
)

// complete answers a prompt with at most so many tokens. The id names the call: if
// it is made again, no second amount is reserved.
func (g *gateway) complete(ctx context.Context, customer, id, prompt string, most int64) (string, error) {
	d, err := g.db.Allow(ctx, "calls", customer, 1, quipu.AllowOptions{Token: id})
	if err != nil {
		return "", err
	}
	if !d.Allowed {
		return "", errOften
	}
	// If this program dies, the amount is back after two minutes.
	held, err := g.db.Reserve(ctx, "tokens:"+customer, most, 2*time.Minute, quipu.Token(id), quipu.Who(customer))
	if errors.Is(err, quipu.ErrBound) {
		return "", errQuota
	}
	if err != nil {
		return "", err
	}
	text, used := model(prompt, most)
	if _, err := g.db.Commit(ctx, held.ID, used); err != nil { // the rest is given back
		return "", err
	}
	return text, nil
}

// model stands for the language model.
func model(prompt string, most int64) (text string, used int64) {
	words := strings.Fields(prompt)
	used = min(most, int64(10*len(words)))
	return fmt.Sprintf("an answer of %d tokens", used), used
}
