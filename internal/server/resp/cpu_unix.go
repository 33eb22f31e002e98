//go:build unix

package resp

import (
	"syscall"
	"time"
)

// cpuTime returns what time the process has had of the CPUs, in the kernel and
// outside.
func cpuTime() (system, user time.Duration) {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0, 0
	}
	return time.Duration(u.Stime.Nano()), time.Duration(u.Utime.Nano())
}
