package client_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/client"
	"github.com/quipudb/quipu/internal/server/rpc"
	"github.com/quipudb/quipu/store/memstore"
)

// exampleServer is what "quipu serve" would be.
func exampleServer() (addr string, stop func()) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	db := quipu.New(memstore.New(memstore.Options{}), quipu.Options{})
	door := rpc.New(db, rpc.Options{Logger: slog.New(slog.DiscardHandler)})
	served := make(chan error, 1)
	go func() { served <- door.Serve(l) }()
	return l.Addr().String(), func() {
		_ = door.Close()
		<-served
		_ = db.Close()
	}
}

func ExampleDial() {
	addr, stop := exampleServer() // such as 127.0.0.1:50051
	defer stop()
	ctx := context.Background()

	db, err := client.Dial(ctx, addr, client.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = db.Close() }()

	// Counts once, however often it is sent.
	for range 2 {
		r, err := db.Add(ctx, "likes:post-1", 1, call.Token("order-17"), call.WantValue())
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(r.Value, r.Replayed)
	}
	c, err := db.Read(ctx, "likes:post-1", call.Exact())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(c.Value, c.Exact)
	// Output:
	// 1 false
	// 1 true
	// 1 true
}

func ExampleDB_Writer() {
	addr, stop := exampleServer()
	defer stop()
	ctx := context.Background()
	db, err := client.Dial(ctx, addr, client.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = db.Close() }()

	w, err := db.Writer(ctx, client.WriterOptions{
		Mode: client.Flush, // ships every second, or 2,000 keys
		OnFailure: func(f client.Failure) {
			fmt.Println(f.Key, f.Delta, f.Err)
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 10_000 {
				if err := w.Add(ctx, "views:home", 1); err != nil {
					fmt.Println(err)
				}
			}
		})
	}
	wg.Wait()

	// Ship the rest. Give up after a while if the server can't be reached.
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := w.Close(ctx); err != nil {
		fmt.Println(err)
		return
	}
	c, err := db.Read(ctx, "views:home")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(c.Value, w.Stats().Refused)
	// Output: 80000 0
}

func ExampleWriter_Add() {
	addr, stop := exampleServer()
	defer stop()
	ctx := context.Background()
	db, err := client.Dial(ctx, addr, client.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = db.Close() }()
	w, err := db.Writer(ctx, client.WriterOptions{Mode: client.Wait})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = w.Close(ctx) }()

	// When Add returns, the count is durable.
	if err := w.Add(ctx, "sold", 3); err != nil {
		fmt.Println(err)
		return
	}
	c, err := db.Read(ctx, "sold")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(c.Value)
	// Output: 3
}
