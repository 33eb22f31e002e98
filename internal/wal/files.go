package wal

import (
	"fmt"
	"slices"
	"sync"
)

// sparesMax is how many segments of no more use are kept to be overwritten.
const sparesMax = 4

// files is the segments there are.
type files struct {
	directory

	releasing sync.Mutex // one Release at a time; guards the field below
	retired   []string   // paths of segments renamed, but not yet durably

	mu     sync.Mutex // guards the fields below
	starts []Position // lowest first; each ends where the next one starts, the last is the current one
	spares []string   // paths
}

// add notes that a segment was started.
func (s *files) add(start Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starts = append(s.starts, start)
}

// spare takes a file to be overwritten, "" if there is none.
func (s *files) spare() (path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.spares); n > 0 {
		path, s.spares = s.spares[n-1], s.spares[:n-1]
	}
	return path
}

func (s *files) spareCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.spares)
}

func (s *files) segments() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.starts)
}

// oldest returns the oldest segment if it ends at or before a position and is
// not the current one.
func (s *files) oldest(before Position) (start Position, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.starts) < 2 || s.starts[1] > before {
		return 0, false
	}
	return s.starts[0], true
}

func (s *files) dropOldest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starts = slices.Delete(s.starts, 0, 1)
}

// release gives up the segments that end at or before a position.
func (s *files) release(before Position) error {
	s.releasing.Lock()
	defer s.releasing.Unlock()
	for {
		start, ok := s.oldest(before)
		if !ok {
			break
		}
		if err := s.retire(s.segment(start)); err != nil {
			return err
		}
		s.dropOldest()
	}
	// Only when it is durable that a file is no longer a segment may it be
	// overwritten: otherwise a power loss could bring back the segment's name
	// with what was written over it (I7).
	if err := s.sync(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spares = append(s.spares, s.retired...)
	s.retired = nil
	return nil
}

// retire takes a segment's name from its file, and removes the file if there
// are enough to be overwritten.
func (s *files) retire(path string) error {
	if s.spareCount()+len(s.retired) >= sparesMax {
		if err := s.fs.Remove(path); err != nil {
			return fmt.Errorf("remove segment: %w", err)
		}
		return nil
	}
	if err := s.fs.Rename(path, path+spareSuffix); err != nil {
		return fmt.Errorf("rename segment: %w", err)
	}
	s.retired = append(s.retired, path+spareSuffix)
	return nil
}

// Release gives up the segments that end at or before a position, oldest
// first; never the current one. If it fails, a later Release tries again.
func (l *Log) Release(before Position) error {
	if l.gate.Load()&gateStopped != 0 {
		return l.refusal()
	}
	if _, ok := l.files.oldest(before); !ok {
		return nil
	}
	return l.files.release(before)
}
