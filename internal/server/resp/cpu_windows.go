package resp

import (
	"syscall"
	"time"
)

// cpuTime returns what time the process has had of the CPUs, in the kernel and
// outside.
func cpuTime() (system, user time.Duration) {
	var created, ended, kernel, own syscall.Filetime
	p, err := syscall.GetCurrentProcess()
	if err != nil || syscall.GetProcessTimes(p, &created, &ended, &kernel, &own) != nil {
		return 0, 0
	}
	since := func(t syscall.Filetime) time.Duration {
		return 100 * time.Duration(int64(t.HighDateTime)<<32|int64(t.LowDateTime))
	}
	return since(kernel), since(own)
}
