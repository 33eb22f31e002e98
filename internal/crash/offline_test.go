package crash

import (
	"path/filepath"
	"strconv"
)

// checkOffline has the command's own tools look at what the last kill left, and
// takes copies of it, which must hold the same.
func (w *world) checkOffline() {
	t := w.t
	command(t, w.binary, "verify", "--data", w.dir)
	w.restart()
	backups := t.TempDir()
	served, resting := filepath.Join(backups, "served.tar"), filepath.Join(backups, "resting.tar")
	command(t, w.binary, "backup", "--addr", "http://"+w.addr, "--out", served)
	w.stop()
	command(t, w.binary, "verify", "--data", w.dir)
	command(t, w.binary, "backup", "--data", w.dir, "--out", resting)
	for i, backup := range []string{served, resting} {
		w.dir = filepath.Join(backups, "copy"+strconv.Itoa(i))
		command(t, w.binary, "restore", backup, "--data", w.dir)
		command(t, w.binary, "verify", "--data", w.dir)
		w.start()
		w.fatal(w.judge(t.Context(), w.client))
		w.stop()
	}
}
