package clock

import (
	"syscall"
	"time"
	"unsafe"
)

// The clocks of Linux that tell how long the machine was suspended.
const (
	clockMonotonic = 1
	clockBoot      = 7 // the monotonic clock, and what it missed
)

// slept returns how long the machine has been suspended since it was started.
func slept() time.Duration {
	var monotonic, boot syscall.Timespec
	if !gettime(clockMonotonic, &monotonic) || !gettime(clockBoot, &boot) {
		return 0
	}
	// The two are not read at one moment.
	return max(0, time.Duration(boot.Nano()-monotonic.Nano())).Round(time.Millisecond)
}

func gettime(clock uintptr, to *syscall.Timespec) bool {
	_, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(to)), 0)
	return errno == 0
}
