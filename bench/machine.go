package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// A machine is where a result was measured.
type machine struct {
	CPU        string `json:"cpu"`
	Cores      int    `json:"cores"`
	Memory     string `json:"memory"`
	Kernel     string `json:"kernel"`
	FileSystem string `json:"file_system"`
	Go         string `json:"go"`
	Commit     string `json:"commit"`
}

// thisMachine describes the machine and the file system that dir is on.
func thisMachine(ctx context.Context, dir string) (machine, error) {
	memory, err := procField("/proc/meminfo", "MemTotal")
	if err != nil {
		return machine{}, err
	}
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return machine{}, err
	}
	model, err := procField("/proc/cpuinfo", "model name")
	if err != nil {
		model = runtime.GOARCH // not every architecture has a model name
	}
	fileSystem, err := exec.CommandContext(ctx, "df", "--output=fstype", dir).Output()
	if err != nil {
		return machine{}, fmt.Errorf("look up the file system of %s: %w", dir, err)
	}
	fields := strings.Fields(string(fileSystem))
	commit, _ := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output() // none outside a repository
	var kib int
	if _, err := fmt.Sscan(memory, &kib); err != nil {
		return machine{}, fmt.Errorf("parse MemTotal: %w", err)
	}
	return machine{
		CPU:        model,
		Cores:      runtime.NumCPU(),
		Memory:     fmt.Sprintf("%.1f GiB", float64(kib)/(1<<20)),
		Kernel:     "Linux " + strings.TrimSpace(string(kernel)),
		FileSystem: fields[len(fields)-1],
		Go:         runtime.Version(),
		Commit:     cmp.Or(strings.TrimSpace(string(commit)), "unknown"),
	}, nil
}

// String returns the machine as one line.
func (m machine) String() string {
	return fmt.Sprintf("%s, %d cores, %s, %s, %s, %s", m.CPU, m.Cores, m.Memory, m.Kernel, m.FileSystem, m.Go)
}
