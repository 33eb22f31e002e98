// Package memory finds out how much memory this process may use.
//
// It returns the smallest limit: of the machine, and of every control group
// that the process is in, of version 1 or 2. It only reads files, so a test can
// simulate any machine.
package memory

import (
	"bufio"
	"bytes"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// A Limit is how much memory there is, and what says so.
type Limit struct {
	Bytes int64  // 0 if it is not known
	By    string // "machine" or "cgroup"
}

// Find returns the limit of this process on a machine with the given files:
// os.DirFS("/") for the one it runs on.
func Find(root fs.FS) Limit {
	l := Limit{Bytes: machine(root), By: "machine"}
	for _, file := range groupFiles(root) {
		raw, err := fs.ReadFile(root, file)
		if err != nil {
			continue
		}
		// "max", and in version 1 a number near the largest, is no limit.
		n, err := strconv.ParseInt(string(bytes.TrimSpace(raw)), 10, 64)
		if err == nil && n > 0 && (l.Bytes == 0 && n < 1<<60 || n < l.Bytes) {
			l = Limit{n, "cgroup"}
		}
	}
	return l
}

// machine returns the memory of the machine, or 0.
func machine(root fs.FS) int64 {
	raw, err := fs.ReadFile(root, "proc/meminfo")
	if err != nil {
		return 0
	}
	for lines := bufio.NewScanner(bytes.NewReader(raw)); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if len(words) == 3 && words[0] == "MemTotal:" && words[2] == "kB" {
			n, err := strconv.ParseInt(words[1], 10, 64)
			if err != nil {
				return 0
			}
			return n << 10
		}
	}
	return 0
}

// groupFiles returns the files that may hold a limit: of the process's own
// groups and of all above them. In a container the own group may be mounted as
// the root, whatever its path says.
func groupFiles(root fs.FS) (files []string) {
	const v1, v2 = "sys/fs/cgroup/memory", "sys/fs/cgroup"
	raw, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(raw)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		base, name := v2, "memory.max"
		if parts[0] != "0" {
			if parts[1] != "memory" {
				continue
			}
			base, name = v1, "memory.limit_in_bytes"
		}
		for p := path.Clean("/" + parts[2]); ; p = path.Dir(p) {
			files = append(files, path.Join(base, p, name))
			if p == "/" {
				break
			}
		}
	}
	return files
}
