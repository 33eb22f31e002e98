//go:build unix

package engine

import (
	"io"
	"os"
	"syscall"
)

// holder returns the process that has a file locked, 0 if that is not known. It must
// not be called for a file that this process has locked: to close a file gives up
// the locks that its process has on it.
func holder(path string) int {
	f, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }()
	lock := syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart}
	if err := syscall.FcntlFlock(f.Fd(), syscall.F_GETLK, &lock); err != nil || lock.Type == syscall.F_UNLCK {
		return 0
	}
	return max(int(lock.Pid), 0)
}
