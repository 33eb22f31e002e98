package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/quipudb/quipu/internal/load/proc"
)

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

// self is this process, where a process is asked for.
const self = "self"

// memoryOf returns a size of a process, such as VmRSS, in bytes.
func memoryOf(process, name string) (float64, error) {
	value, err := procField("/proc/"+process+"/status", name)
	if err != nil {
		return 0, err
	}
	kib, err := strconv.ParseFloat(strings.TrimSuffix(value, " kB"), 64)
	if err != nil {
		return 0, fmt.Errorf("parse %s: %w", name, err)
	}
	return kib * 1024, nil
}

// cpuTime returns the CPU time of a process.
func cpuTime(pid int) (time.Duration, error) {
	t, err := proc.Read(pid)
	return t.Own, err
}

// cpuTimeOfAll returns the CPU time of a process and all its children, those
// that ended included.
func cpuTimeOfAll(pid int) (time.Duration, error) {
	t, err := proc.Read(pid)
	if err != nil {
		return 0, err
	}
	total := t.Own + t.Reaped
	all, err := os.ReadDir("/proc")
	for _, entry := range all {
		child, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue // not a process
		}
		if t, err := proc.Read(child); err == nil && t.Parent == pid { // others may end meanwhile
			total += t.Own
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
	peak, err = memoryOf(self, "VmHWM")
	return cpu.Seconds(), peak, err
}
