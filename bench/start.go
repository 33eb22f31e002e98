package main

import (
	"os"
	"path/filepath"
	"slices"
	"time"
)

const startAbout = "From when a server is started with an empty directory until it prints that it is ready, with all doors on free ports. One after the other, ten in a round."

// The rows of the figure start.
const (
	firstStart = "empty directory"
	nextStart  = "the same again" // opens what the first has left

	readyMS = "ms until it is ready, median"
	readyP  = "ms until it is ready, at most"
)

// starts measures how long a server takes until it serves.
func starts(s *session) error {
	if err := s.build(); err != nil {
		return err
	}
	n := pick(s, 10, 2)
	if err := s.alternate(func() error {
		took := map[string][]time.Duration{}
		for range n {
			dir, err := os.MkdirTemp(s.dir, "start-")
			if err != nil {
				return err
			}
			for _, row := range []string{firstStart, nextStart} {
				began := time.Now()
				server, err := s.serveQuipu(filepath.Join(dir, "data"), "--http", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--rpc", "127.0.0.1:0")
				if err != nil {
					return err
				}
				took[row] = append(took[row], time.Since(began))
				if err := server.stop(); err != nil {
					return err
				}
			}
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
		}
		for row, all := range took {
			var one series
			for _, d := range all {
				one.Values = append(one.Values, float64(d)/float64(time.Millisecond))
			}
			s.record(row, readyMS, one.median())
			s.record(row, readyP, slices.Max(one.Values))
		}
		return nil
	}); err != nil {
		return err
	}
	s.atMost("ms from an empty directory until it is ready", s.median(firstStart, readyMS), 300)
	return nil
}
