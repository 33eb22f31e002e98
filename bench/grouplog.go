package main

import (
	"errors"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A groupLog is as little as a durable log can be: records gather in a buffer
// while the buffer before is written and synced. It has no checksums, no end
// and no way back, and is here to be compared with.
type groupLog struct {
	file    vfs.File
	wake    chan struct{}
	stopped chan struct{}

	mu   sync.Mutex // guards open
	open *group
}

// A group is the records that one sync makes durable.
type group struct {
	records []byte
	done    chan struct{} // closed when err is known
	err     error
}

func openGroupLog(path string) (*groupLog, error) {
	file, err := vfs.Default.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	l := &groupLog{
		file: file, wake: make(chan struct{}, 1), stopped: make(chan struct{}),
		open: &group{done: make(chan struct{})},
	}
	go l.sync()
	return l, nil
}

// commit returns when the record is on stable storage.
func (l *groupLog) commit(record []byte) error {
	l.mu.Lock()
	g := l.open
	g.records = append(g.records, record...)
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
	<-g.done
	return g.err
}

func (l *groupLog) sync() {
	defer close(l.stopped)
	var spare []byte
	for range l.wake {
		l.mu.Lock()
		g := l.open
		if len(g.records) == 0 { // the group before took what it was woken for
			l.mu.Unlock()
			continue
		}
		l.open = &group{records: spare[:0], done: make(chan struct{})}
		l.mu.Unlock()
		_, err := l.file.Write(g.records)
		g.err = errors.Join(err, l.file.SyncData())
		spare = g.records
		close(g.done)
	}
}

// Close closes the log. Nobody may commit any more.
func (l *groupLog) Close() error {
	close(l.wake)
	<-l.stopped
	return l.file.Close()
}
