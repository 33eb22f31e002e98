package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of CPU time in /proc. It is the same on every Linux.
const tick = 10 * time.Millisecond

// procField returns the value of a "name: value" line of a file in /proc.
func procField(path, name string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value), nil
		}
	}
	return "", fmt.Errorf("read %s: no %s", path, name)
}

// memoryOf returns a size of this process, such as VmRSS, in bytes.
func memoryOf(name string) (float64, error) {
	value, err := procField("/proc/self/status", name)
	if err != nil {
		return 0, err
	}
	kib, err := strconv.ParseFloat(strings.TrimSuffix(value, " kB"), 64)
	if err != nil {
		return 0, fmt.Errorf("parse %s: %w", name, err)
	}
	return kib * 1024, nil
}

// procStat is what /proc says of the time a process took.
type procStat struct {
	parent      int
	own, reaped time.Duration // of the process, and of its children that ended
}

func readStat(path string) (procStat, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return procStat{}, err
	}
	// The name, in parentheses, may hold anything. After it come the state,
	// the parent, and from the twelfth on user and system time, then those of
	// the children.
	after := text[strings.LastIndexByte(string(text), ')')+1:]
	fields := strings.Fields(string(after))
	if len(fields) < 15 {
		return procStat{}, fmt.Errorf("read %s: too short", path)
	}
	var s procStat
	var times [4]int
	if s.parent, err = strconv.Atoi(fields[1]); err != nil {
		return procStat{}, fmt.Errorf("read %s: %w", path, err)
	}
	for i := range times {
		if times[i], err = strconv.Atoi(fields[11+i]); err != nil {
			return procStat{}, fmt.Errorf("read %s: %w", path, err)
		}
	}
	s.own = time.Duration(times[0]+times[1]) * tick
	s.reaped = time.Duration(times[2]+times[3]) * tick
	return s, nil
}

// cpuTime returns the CPU time of a process.
func cpuTime(pid int) (time.Duration, error) {
	s, err := readStat(fmt.Sprintf("/proc/%d/stat", pid))
	return s.own, err
}

// cpuTimeOfAll returns the CPU time of a process and all its children, those
// that ended included.
func cpuTimeOfAll(pid int) (time.Duration, error) {
	s, err := readStat(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	total := s.own + s.reaped
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range all {
		if s, err := readStat(path); err == nil && s.parent == pid { // others may end meanwhile
			total += s.own
		}
	}
	return total, err
}

// usage returns the CPU seconds that this process took, and the most bytes
// that it had resident.
func usage() (seconds, peak float64, err error) {
	cpu, err := cpuTime(os.Getpid())
	if err != nil {
		return 0, 0, err
	}
	peak, err = memoryOf("VmHWM")
	return cpu.Seconds(), peak, err
}
