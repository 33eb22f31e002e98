package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/quipudb/quipu/client"
	"github.com/quipudb/quipu/internal/load/proc"
	pb "github.com/quipudb/quipu/quipupb"
)

const clientAbout = "A stream of a writer's batches of 100 adds over gRPC, each answered when it is durable, sent without waiting for the answers before; " +
	"8 keys, and 100,000. And `Add` of the combining writer, by 2 goroutines on 8 keys, against a map behind a mutex. " +
	"CPU time of a stream is the server's, that of an `Add` the caller's."

const (
	streamBatch   = 100
	writerKeys    = 8
	writerCallers = 2
	callNS        = "ns/call"
	allocations   = "allocations/1,000 calls"
)

func clientFigure(s *session) (err error) {
	d := pick(s, 5*time.Second, 500*time.Millisecond)
	server, err := s.serveQuipu(filepath.Join(s.dir, "quipu-data"),
		"--http", "off", "--resp", "off", "--rpc", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	addr, calls := server.doors["rpc"], pick(s, 50_000_000, 200_000)
	err = s.alternate(
		func() error { return s.stream("stream, 8 keys", server, 8, d) },
		func() error { return s.stream("stream, 100,000 keys", server, 100_000, d) },
		func() error { return s.writerAdds(addr, calls) },
		func() error { return s.mutexAdds(calls) },
	)
	if err != nil {
		return err
	}
	s.atLeast("durable adds a second on a stream, 8 keys", s.median("stream, 8 keys", rate), 1e6)
	s.atLeast("durable adds a second on a stream, 100,000 keys", s.median("stream, 100,000 keys", rate), 1e6)
	s.atMost("ns for an Add of the combining writer", s.median("combining writer", callNS), 15)
	s.atMost("allocations for 1,000 of them", s.median("combining writer", allocations), 0.5)
	return nil
}

// stream sends batches on one stream for some time.
func (s *session) stream(side string, server *quipuServer, keys int, d time.Duration) error {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	conn, err := grpc.NewClient(server.doors["rpc"], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	rpc := pb.NewQuipuClient(conn)
	writer, err := rpc.Enlist(ctx, &pb.EnlistRequest{})
	if err != nil {
		return err
	}
	stream, err := rpc.Write(ctx)
	if err != nil {
		return err
	}
	before, err := cpuTime(server.pid())
	if err != nil {
		return err
	}
	began := time.Now()
	sent := make(chan error, 1)
	go func() { sent <- sendBatches(stream, writer.Writer, newKeys(keys, inOrder), d) }()
	batches := uint64(0)
	for {
		r, err := stream.Recv()
		if err != nil { // the server has answered everything and closed its side
			break
		}
		if batches++; r.Error != nil || r.Mark != batches {
			return fmt.Errorf("answer %v", r)
		}
	}
	if err := <-sent; err != nil {
		return err
	}
	took := time.Since(began)
	after, err := cpuTime(server.pid())
	s.record(side, rate, float64(batches)*streamBatch/took.Seconds())
	s.record(side, cpuNS, float64(after-before)/float64(batches)/streamBatch)
	return err
}

// sendBatches sends a writer's batches for some time.
func sendBatches(stream grpc.BidiStreamingClient[pb.WriteRequest, pb.WriteReply], writer uint64, k keys, d time.Duration) error {
	names := make([]string, k.len())
	for i := range names {
		names[i] = k.at(i)
	}
	r := &pb.WriteRequest{Writer: writer, Deltas: make([]int64, streamBatch)}
	for i := range r.Deltas {
		r.Deltas[i] = 1
	}
	for began, i := time.Now(), uint64(0); time.Since(began) < d; i++ {
		r.Prev, r.Seq, r.Keys = i, i+1, r.Keys[:0]
		for j := range streamBatch {
			r.Keys = append(r.Keys, names[(int(i)*7919+j*31)%len(names)])
		}
		if err := stream.Send(r); err != nil {
			return err
		}
	}
	return stream.CloseSend()
}

// writerAdds calls Add of a combining writer that does not wait for durability.
func (s *session) writerAdds(addr string, calls int) (err error) {
	c, err := client.Dial(s.ctx, addr, client.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	w, err := c.Writer(s.ctx, client.WriterOptions{Mode: client.Flush})
	if err != nil {
		return err
	}
	err = s.adds("combining writer", calls, func(key string) error { return w.Add(s.ctx, key, 1) })
	return errors.Join(err, w.Close(s.ctx))
}

func (s *session) mutexAdds(calls int) error {
	var mu sync.Mutex
	sums := map[string]int64{}
	return s.adds("map and mutex", calls, func(key string) error {
		mu.Lock()
		sums[key]++
		mu.Unlock()
		return nil
	})
}

// adds has goroutines share a number of calls.
func (s *session) adds(side string, calls int, add func(key string) error) error {
	errs := make([]error, writerCallers)
	var group sync.WaitGroup
	var was, is runtime.MemStats
	runtime.ReadMemStats(&was)
	before, err := cpuTime(proc.Self)
	if err != nil {
		return err
	}
	began := time.Now()
	for c := range writerCallers {
		group.Go(func() {
			var names [writerKeys]string
			for i := range names {
				names[i] = fmt.Sprintf("key:%012d", i)
			}
			var err error // not in errs, whose memory the others write to
			for i := 0; i < calls/writerCallers && err == nil; i++ {
				err = add(names[i%writerKeys])
			}
			errs[c] = err
		})
	}
	group.Wait()
	took := time.Since(began)
	after, err := cpuTime(proc.Self)
	runtime.ReadMemStats(&is)
	s.record(side, callNS, float64(took)/float64(calls))
	s.record(side, cpuNS, float64(after-before)/float64(calls))
	s.record(side, allocations, float64(is.Mallocs-was.Mallocs)/float64(calls)*1000)
	return errors.Join(append(errs, err)...)
}
