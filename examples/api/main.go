// Command api is an HTTP API with a limit: each client may make 5 calls at once, and
// one more every minute. A client that calls too often gets 429, and is told when to
// come back.
//
//	go run ./examples/api
//	curl -i -H 'X-Client: ana' http://127.0.0.1:8091/time
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/ratelimit"
)

func main() {
	addr := flag.String("http", "127.0.0.1:8091", "address to serve at")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *addr); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, addr string) error {
	dir, err := os.MkdirTemp("", "api-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	// A crash may forget the last moments of use: a limit need not wait for the disk.
	db, err := quipu.Open(dir, quipu.Options{Policies: []quipu.Policy{{Pattern: "*", Durability: quipu.Memory}}})
	if err != nil {
		return err
	}
	defer db.Close()
	per, err := definition.ParseWidth("1m")
	if err != nil {
		return err
	}
	calls := definition.Definition{Pattern: "api:*", Limits: []definition.Limit{{Name: "calls", Rate: 1, Per: per, Burst: 5}}}
	if _, err := db.Define(ctx, []definition.Definition{calls}, quipu.DefineOptions{}); err != nil {
		return err
	}

	// Several servers may share a limit: have each dial a Quipu server, and give its
	// client to the handler in place of db.
	limited := ratelimit.Handler(db, ratelimit.Options{
		Name: "api:time",
		Who:  func(r *http.Request) string { return r.Header.Get("X-Client") },
	})
	mux := http.NewServeMux()
	mux.Handle("GET /time", limited(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, time.Now().UTC().Format(time.RFC3339))
	})))
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, "listening on http://%s\n", l.Addr())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() { server.Shutdown(context.Background()) })
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
