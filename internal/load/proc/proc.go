// Package proc reads from /proc how much CPU time processes take.
//
// It exists so that the load generator and the figures count the same. Where
// there is no /proc, everything returns an error.
package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
)

// tick is the unit of CPU time in /proc. It is the same on every Linux.
const tick = 10 * time.Millisecond

// Self is the process that asks.
const Self = -1

// Times are what /proc says of a process.
type Times struct {
	Parent int
	Own    time.Duration // CPU time, user and system
	Reaped time.Duration // the same of children that ended
}

// Read returns the times of a process.
func Read(pid int) (Times, error) {
	name := strconv.Itoa(pid)
	if pid == Self {
		name = "self"
	}
	path := "/proc/" + name + "/stat"
	text, err := os.ReadFile(path)
	if err != nil {
		return Times{}, err
	}
	t, err := parse(text)
	if err != nil {
		return Times{}, fmt.Errorf("read %s: %w", path, err)
	}
	return t, nil
}

// parse reads the text of a stat file. The name, in parentheses, may hold
// anything. After it come the state, the parent, and from the twelfth on user
// and system time, then those of the children.
func parse(text []byte) (t Times, err error) {
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 15 {
		return t, errors.New("too short")
	}
	if t.Parent, err = strconv.Atoi(string(fields[1])); err != nil {
		return Times{}, err
	}
	var times [4]int
	for i := range times {
		if times[i], err = strconv.Atoi(string(fields[11+i])); err != nil {
			return Times{}, err
		}
	}
	t.Own = time.Duration(times[0]+times[1]) * tick
	t.Reaped = time.Duration(times[2]+times[3]) * tick
	return t, nil
}

// A Meter measures the CPU time that a process takes.
type Meter struct {
	pid  int
	from time.Duration
	err  error
}

// NewMeter begins to measure a process.
func NewMeter(pid int) *Meter {
	t, err := Read(pid)
	return &Meter{pid, t.Own, err}
}

// Read returns the CPU time since the beginning.
func (m *Meter) Read() (time.Duration, error) {
	if m.err != nil {
		return 0, m.err
	}
	t, err := Read(m.pid)
	return t.Own - m.from, err
}
