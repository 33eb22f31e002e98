// Command flashsale sells 100 pairs of shoes to a thousand buyers who all come at
// once. A buyer first reserves a pair, then pays or walks away; some click twice.
// Exactly 100 pairs are sold.
//
//	go run ./examples/flashsale
//	go run ./examples/flashsale -rpc 127.0.0.1:50051    # in a server, by the client
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/client"
)

const (
	stock  = 100
	buyers = 1000
	atOnce = 50
)

// A shop keeps the stock. The library and the client have the same methods.
type shop interface {
	Set(ctx context.Context, key string, value int64, opts ...quipu.WriteOption) (quipu.Receipt, error)
	Reserve(ctx context.Context, key string, amount int64, ttl time.Duration, opts ...quipu.WriteOption) (quipu.Reservation, error)
	Commit(ctx context.Context, id string, amount int64, opts ...quipu.WriteOption) (quipu.Reservation, error)
	Release(ctx context.Context, id string, opts ...quipu.WriteOption) (quipu.Reservation, error)
	Read(ctx context.Context, key string, opts ...quipu.ReadOption) (quipu.Count, error)
	Close() error
}

func main() {
	addr := flag.String("rpc", "", "a server's --rpc; without it the stock is in a directory that is removed at the end")
	flag.Parse()
	if err := run(context.Background(), *addr, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func open(ctx context.Context, addr string) (shop, func(), error) {
	if addr != "" {
		s, err := client.Dial(ctx, addr, client.Options{APIKey: os.Getenv("QUIPU_API_KEY")})
		return s, func() {}, err
	}
	dir, err := os.MkdirTemp("", "flashsale-")
	if err != nil {
		return nil, nil, err
	}
	s, err := quipu.Open(dir, quipu.Options{Logger: slog.New(slog.DiscardHandler)})
	return s, func() { os.RemoveAll(dir) }, err
}

func run(ctx context.Context, addr string, out io.Writer) error {
	s, remove, err := open(ctx, addr)
	if err != nil {
		return err
	}
	defer remove()
	defer s.Close()

	sale := fmt.Sprintf("shoes:%d", time.Now().UnixNano())
	if _, err := s.Set(ctx, sale, stock); err != nil {
		return err
	}
	var sold, away, late atomic.Int64
	failed := make(chan error, buyers)
	places := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for n := range buyers {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			paid, err := buy(ctx, s, sale, n)
			switch {
			case errors.Is(err, quipu.ErrBound): // too few are left
				late.Add(1)
			case err != nil:
				failed <- err
			case paid:
				sold.Add(1)
			default:
				away.Add(1)
			}
		})
	}
	all.Wait()
	close(failed)
	for err := range failed {
		return err
	}
	left, err := s.Read(ctx, sale, quipu.Exact())
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d sold, %d walked away, %d were too late, %d left\n", sold.Load(), away.Load(), late.Load(), left.Value)
	if sold.Load()+left.Value != stock {
		return fmt.Errorf("%d pairs are missing", stock-sold.Load()-left.Value)
	}
	return nil
}

// buy is one buyer, who reports whether the pair was paid for.
func buy(ctx context.Context, s shop, sale string, n int) (paid bool, err error) {
	// The token names the cart: a second click gets the same reservation.
	cart := quipu.Token(fmt.Sprintf("%s/cart-%d", sale, n))
	pair, err := s.Reserve(ctx, sale, 1, 10*time.Minute, cart)
	if err != nil {
		return false, err
	}
	if n%10 == 0 {
		again, err := s.Reserve(ctx, sale, 1, 10*time.Minute, cart)
		if err != nil || again.ID != pair.ID {
			return false, fmt.Errorf("the second click got %s, %w", again.ID, err)
		}
	}
	if n%5 == 0 {
		_, err = s.Release(ctx, pair.ID) // or it expires in ten minutes
		return false, err
	}
	_, err = s.Commit(ctx, pair.ID, 1)
	return err == nil, err
}
