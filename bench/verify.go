package main

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/quipudb/quipu"
)

const verifyAbout = "`quipu verify --data` of a store of a million counters that have three windows each: the store's own record, and the equations " +
	"between totals and windows. The cells are those that it says it has read: totals, windows, and for each counter the book that it was written under."

const cellRate = "cells/s"

// verify measures how long it takes to prove that all adds up.
func verify(s *session) error {
	dir := filepath.Join(s.dir, "data")
	n := pick(s, 1_000_000, 2_000)
	if err := s.fillViews(dir, n); err != nil {
		return err
	}
	if err := s.build(); err != nil {
		return err
	}
	err := s.alternate(func() error {
		began := time.Now()
		cmd := exec.CommandContext(s.ctx, s.binary, "verify", "--data", dir)
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("verify: %w: %s", err, out)
		}
		took, cells := time.Since(began), 0
		if _, err := fmt.Sscanf(string(out), "ok: %d cells", &cells); err != nil {
			return fmt.Errorf("verify says %q", out)
		}
		s.record("offline", "seconds", took.Seconds())
		s.record("offline", cellRate, float64(cells)/took.Seconds())
		s.record("offline", "CPU ns/cell", float64(cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())/float64(cells))
		return nil
	})
	if err != nil {
		return err
	}
	s.atLeast("cells/s", s.median("offline", cellRate), 1_000_000)
	return nil
}

// fillViews makes a store of counters with three windows each.
func (s *session) fillViews(dir string, n int) error {
	db, err := openDB(dir, 0, quipu.Synced)
	if err != nil {
		return err
	}
	v := viewings[1]
	if err = v.define(s, db); err == nil {
		err = s.addWith(db, newKeys(n, inOrder), nil)
	}
	return errors.Join(err, db.Close())
}
