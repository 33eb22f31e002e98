package main

import (
	"path/filepath"
	"time"

	"github.com/quipudb/quipu"
)

const addHotAbout = "Durable `Add` of one to one hot counter by 256 callers, against a bare group-commit log: " +
	"24-byte records in a buffer, one `fdatasync` for all who wait, and nothing else."

func addHot(s *session) error {
	const callers = 256
	d := pick(s, 3*time.Second, 300*time.Millisecond)
	ours := func(dir string) error {
		db, err := openDB(dir, 0, quipu.Synced)
		if err != nil {
			return err
		}
		return s.drive("quipu", workload{
			callers: callers, time: d, close: db.Close,
			op: func(int) (int, error) {
				_, err := db.Add(s.ctx, hotKey, 1)
				return 1, err
			},
		})
	}
	bare := func(dir string) error {
		l, err := openGroupLog(filepath.Join(dir, "log"))
		if err != nil {
			return err
		}
		var record [24]byte
		return s.drive("bare log", workload{
			callers: callers, time: d, close: l.Close,
			op: func(int) (int, error) { return 1, l.commit(record[:]) },
		})
	}
	err := s.alternate(
		func() error { return s.inTemp(ours) },
		func() error { return s.inTemp(bare) },
	)
	if err != nil {
		return err
	}
	s.atLeast("rate over that of the bare log", s.over("quipu", "bare log", rate), 0.7)
	return nil
}
