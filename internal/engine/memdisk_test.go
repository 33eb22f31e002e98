package engine_test

import (
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// memDisk is Pebble's file system in memory, of which a test can take what a
// power cut would leave. MemFS.Link takes the lock of CrashClone for reading
// twice: a CrashClone that asks between the two waits for the first while the
// second waits for it, forever. So here they take turns.
type memDisk struct {
	*vfs.MemFS
	linking sync.Mutex
}

func newMemDisk() *memDisk { return &memDisk{MemFS: vfs.NewCrashableMem()} }

func (d *memDisk) Link(oldname, newname string) error {
	d.linking.Lock()
	defer d.linking.Unlock()
	return d.MemFS.Link(oldname, newname)
}

func (d *memDisk) CrashClone(cfg vfs.CrashCloneCfg) *memDisk {
	d.linking.Lock()
	defer d.linking.Unlock()
	return &memDisk{MemFS: d.MemFS.CrashClone(cfg)}
}
