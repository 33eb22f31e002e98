package memory_test

import (
	"testing"
	"testing/fstest"

	"github.com/quipudb/quipu/internal/memory"
)

func TestFind(t *testing.T) {
	f := func(want memory.Limit, files ...string) {
		t.Helper()
		root := fstest.MapFS{}
		for i := 0; i < len(files); i += 2 {
			root[files[i]] = &fstest.MapFile{Data: []byte(files[i+1])}
		}
		if got := memory.Find(root); got != want {
			t.Errorf("%q: %+v, want %+v", files, got, want)
		}
	}
	const (
		info    = "proc/meminfo"
		four    = "MemFree:  1 kB\nMemTotal:  4194304 kB\n"
		group   = "proc/self/cgroup"
		machine = int64(4) << 30
	)
	f(memory.Limit{By: "machine"})
	f(memory.Limit{By: "machine"}, info, "MemTotal: x kB\n")
	f(memory.Limit{Bytes: machine, By: "machine"}, info, four)
	f(memory.Limit{Bytes: machine, By: "machine"}, info, four, group, "no cgroup\n")

	// Version 2: own group, a group above, the root of a container.
	f(memory.Limit{Bytes: 1 << 30, By: "cgroup"}, info, four, group, "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max", "1073741824\n")
	f(memory.Limit{Bytes: 1 << 29, By: "cgroup"}, info, four, group, "0::/a/b\n",
		"sys/fs/cgroup/a/b/memory.max", "1073741824\n", "sys/fs/cgroup/a/memory.max", "536870912\n")
	f(memory.Limit{Bytes: 1 << 30, By: "cgroup"}, info, four, group, "0::/kubepods/x\n", "sys/fs/cgroup/memory.max", "1073741824\n")
	f(memory.Limit{Bytes: machine, By: "machine"}, info, four, group, "0::/\n", "sys/fs/cgroup/memory.max", "max\n")
	f(memory.Limit{Bytes: machine, By: "machine"}, info, four, group, "0::/\n", "sys/fs/cgroup/memory.max", "8589934592\n")

	// Version 1.
	f(memory.Limit{Bytes: 1 << 30, By: "cgroup"}, info, four, group, "5:cpu:/\n4:memory:/docker/x\n0::/\n",
		"sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "1073741824\n")
	f(memory.Limit{Bytes: machine, By: "machine"}, info, four, group, "4:memory:/x\n",
		"sys/fs/cgroup/memory/x/memory.limit_in_bytes", "9223372036854771712\n")
	f(memory.Limit{By: "machine"}, group, "4:memory:/x\n", "sys/fs/cgroup/memory/x/memory.limit_in_bytes", "9223372036854771712\n")
	f(memory.Limit{Bytes: 1 << 20, By: "cgroup"}, group, "4:memory:/x\n", "sys/fs/cgroup/memory/x/memory.limit_in_bytes", "1048576\n")
}
