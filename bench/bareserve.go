package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"

	"github.com/quipudb/quipu/bench/bare"
)

type bareArgs struct{ Dir string }

type bareServes struct{ Port int }

// serveBare is the child that is the bare loop.
func serveBare(a bareArgs) (r bareServes, err error) {
	debug.SetGCPercent(-1)                       // it would wait for the loop
	runtime.GOMAXPROCS(max(2, runtime.NumCPU())) // the loop keeps one
	server, err := bare.Open(filepath.Join(a.Dir, "log"))
	if err != nil {
		return r, err
	}
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return r, err
	}
	go func() {
		_, _ = fmt.Fprintln(os.Stderr, "bench: bare:", server.Serve(l))
		os.Exit(1)
	}()
	return bareServes{l.Addr().(*net.TCPAddr).Port}, nil
}
