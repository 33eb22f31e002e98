package engine

import (
	"archive/tar"
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/quipudb/quipu/internal/wal"
	"github.com/quipudb/quipu/store"
)

const (
	snapshotDir = "snapshot.tmp" // + a number: files being copied
	restoreDir  = "restore.tmp"  // files being brought back
	sumsFile    = "SHA256SUMS"   // the last file of a snapshot: without it, it is not whole
)

// Snapshot writes a copy of the store at one position to w while it serves: a
// tar file of a store that needs no replay, and the checksums of its files.
func (e *Engine) Snapshot(ctx context.Context, w io.Writer) error {
	if err := e.use(); err != nil {
		return err
	}
	defer e.users.Done()
	dir, err := guard(e, func() (string, error) { return e.snapshotFiles(ctx) })
	if err != nil {
		return err
	}
	out := tarWriter{tw: tar.NewWriter(w), pace: e.newPace()}
	err = out.tree(ctx, e.o.FS, dir, "")
	if err == nil {
		err = out.close()
	}
	return withKind("take snapshot", errors.Join(err, e.o.FS.RemoveAll(dir)))
}

// snapshotFiles makes a checkpoint and links its files into a directory.
func (e *Engine) snapshotFiles(ctx context.Context) (string, error) {
	if err := e.checkpointing.enter(ctx); err != nil {
		return "", err
	}
	defer e.checkpointing.leave()
	e.mu.Lock()
	e.snapshots++
	dir := e.path(fmt.Sprintf("%s%d", snapshotDir, e.snapshots))
	e.mu.Unlock()
	if err := e.checkpointLocked(ctx, false); err != nil {
		return "", err
	}
	fs := e.o.FS
	err := fs.MkdirAll(dir, 0o700)
	if err == nil {
		err = e.db.Checkpoint(fs.PathJoin(dir, diskDir))
	}
	if err == nil {
		o := e.logOptions()
		o.Dir = fs.PathJoin(dir, logDir)
		err = wal.Create(o, e.saved, e.epoch)
	}
	if err == nil {
		err = beginFile(fs, dir, identityFile, []byte(identity(int(e.format.Load()), e.id)))
	}
	if err == nil {
		err = endFile(fs, dir, identityFile)
	}
	if err != nil {
		return "", withKind("take snapshot", errors.Join(err, fs.RemoveAll(dir)))
	}
	return dir, nil
}

// removeLeftovers removes the files of snapshots and checkpoints that were cut
// off, and the other name of the identity file if a power loss brought it back.
func (e *Engine) removeLeftovers() error {
	names, err := e.o.FS.List(e.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasPrefix(name, snapshotDir) || name == restoreDir || name == identityFile+tempSuffix {
			err = errors.Join(err, e.o.FS.RemoveAll(e.path(name)))
		}
	}
	tables, listErr := e.o.FS.List(e.path(diskDir))
	if listErr != nil && !errors.Is(listErr, fs.ErrNotExist) { // opening it tells
		err = errors.Join(err, listErr)
	}
	for _, name := range tables {
		if strings.HasPrefix(name, tableFile) {
			err = errors.Join(err, e.o.FS.Remove(e.o.FS.PathJoin(e.path(diskDir), name)))
		}
	}
	return err
}

// tarWriter writes files and remembers their checksums.
type tarWriter struct {
	tw   *tar.Writer
	sums strings.Builder
	pace *pace
}

func (t *tarWriter) tree(ctx context.Context, fs vfs.FS, dir, name string) error {
	names, err := fs.List(fs.PathJoin(dir, name))
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, n := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		n = path.Join(name, n)
		info, err := fs.Stat(fs.PathJoin(dir, n))
		if err != nil {
			return err
		}
		if info.IsDir() {
			err = t.tree(ctx, fs, dir, n)
		} else {
			err = t.file(fs, fs.PathJoin(dir, n), n, info.Size())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *tarWriter) header(name string, size int64) error {
	return t.tw.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: size, ModTime: time.Unix(0, 0), Format: tar.FormatPAX})
}

func (t *tarWriter) file(fs vfs.FS, from, name string, size int64) error {
	f, err := fs.Open(from)
	if err != nil {
		return err
	}
	if err := t.header(name, size); err != nil {
		return errors.Join(err, f.Close())
	}
	sum := sha256.New()
	_, err = io.CopyN(io.MultiWriter(t.tw, sum, t.pace), f, size)
	fmt.Fprintf(&t.sums, "%x  %s\n", sum.Sum(nil), name)
	return errors.Join(err, f.Close())
}

func (t *tarWriter) close() error {
	if err := t.header(sumsFile, int64(t.sums.Len())); err != nil {
		return err
	}
	if _, err := io.WriteString(t.tw, t.sums.String()); err != nil {
		return err
	}
	return t.tw.Close()
}

// Restore makes a store in a directory, which must not exist or be empty, from
// a snapshot. It checks every file. The identity file comes last: what was cut
// off before is no store, and Open says so. A nil fs is the operating system's.
func Restore(fs vfs.FS, r io.Reader, dir string) error {
	if fs == nil {
		fs = vfs.Default
	}
	dir = strings.TrimRight(dir, "/")
	info, err := fs.Stat(dir)
	there := err == nil
	if there && !info.IsDir() {
		return store.Errorf(store.KindInvalid, "%s is a file: restore into a new directory", dir)
	}
	names, _ := fs.List(dir) // unpacking tells what is wrong with it
	names = slices.DeleteFunc(names, func(name string) bool { return name == restoreDir })
	if len(names) > 0 {
		return store.Errorf(store.KindInvalid, "%s is not empty: restore into a new directory", dir)
	}
	if err := makeDir(fs, dir); err != nil {
		return withKind("restore", err)
	}
	// Within the directory, since that may be where a disk is mounted.
	tmp := fs.PathJoin(dir, restoreDir)
	err = fs.RemoveAll(tmp) // of an earlier try
	if err == nil {
		err = unpack(fs, r, tmp)
	}
	if err == nil {
		err = beginFile(fs, tmp, restoredFile, nil)
	}
	if err == nil {
		err = endFile(fs, tmp, restoredFile)
	}
	for _, name := range []string{logDir, diskDir, restoredFile, identityFile} {
		if err == nil {
			err = fs.Rename(fs.PathJoin(tmp, name), fs.PathJoin(dir, name))
		}
		if err == nil {
			err = syncDir(fs, dir)
		}
	}
	if left := fs.RemoveAll(tmp); err != nil { // else Open does it
		err = errors.Join(err, left)
		for _, name := range []string{identityFile, restoredFile, logDir, diskDir} {
			err = errors.Join(err, fs.RemoveAll(fs.PathJoin(dir, name)))
		}
		if !there {
			err = errors.Join(err, fs.Remove(dir))
		}
	}
	return withKind("restore", err)
}

func unpack(fs vfs.FS, r io.Reader, dir string) error {
	for _, d := range []string{dir, fs.PathJoin(dir, logDir), fs.PathJoin(dir, diskDir)} {
		if err := fs.MkdirAll(d, 0o700); err != nil {
			return err
		}
	}
	tr := tar.NewReader(bufio.NewReaderSize(r, 1<<20))
	have := map[string]string{}
	for {
		h, err := tr.Next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				return store.Errorf(store.KindCorrupt, "%s: it ends before its checksums", noBackup)
			}
			return sourceError(err)
		}
		if h.Name == sumsFile {
			if err := checkSums(tr, have); err != nil {
				return err
			}
			return errors.Join(syncDir(fs, fs.PathJoin(dir, logDir)), syncDir(fs, fs.PathJoin(dir, diskDir)), syncDir(fs, dir))
		}
		if !validName(h) {
			return store.Errorf(store.KindCorrupt, "snapshot has a file named %q", h.Name)
		}
		sum, err := unpackFile(fs, fs.PathJoin(dir, h.Name), tr)
		if err != nil {
			return err
		}
		have[h.Name] = sum
	}
}

// validName reports whether a tar entry can be a file of a store.
func validName(h *tar.Header) bool {
	dir, name := path.Split(h.Name)
	if h.Typeflag != tar.TypeReg || name == "" || strings.ContainsAny(name, "/\\\x00") || name == "." || name == ".." {
		return false
	}
	for record := range h.PAXRecords {
		if strings.HasPrefix(record, "GNU.sparse.") { // a few bytes that claim to be many
			return false
		}
	}
	return dir == logDir+"/" || dir == diskDir+"/" || h.Name == identityFile
}

func unpackFile(fs vfs.FS, to string, r io.Reader) (string, error) {
	f, err := fs.Create(to, vfs.WriteCategoryUnspecified)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	_, err = io.Copy(f, io.TeeReader(source{r}, sum))
	return hex.EncodeToString(sum.Sum(nil)), errors.Join(err, f.Sync(), f.Close())
}

// A source reads a snapshot.
type source struct{ r io.Reader }

func (s source) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = sourceError(err)
	}
	return n, err
}

// noBackup says of a file that it is none that Snapshot has written as a whole.
const noBackup = "this is no backup of Quipu, or it is cut off"

// sourceError tells a snapshot that is no snapshot from one that can't be read.
func sourceError(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, tar.ErrHeader) || errors.Is(err, tar.ErrFieldTooLong) {
		return store.Errorf(store.KindCorrupt, "%s: %w", noBackup, err)
	}
	return store.Errorf(store.KindUnavailable, "read snapshot: %w", err)
}

func checkSums(r io.Reader, have map[string]string) error {
	sc := bufio.NewScanner(r)
	n := 0
	for ; sc.Scan(); n++ {
		sum, name, _ := strings.Cut(sc.Text(), "  ")
		if have[name] != sum {
			return store.Errorf(store.KindCorrupt, "file %s of the snapshot is damaged or missing", name)
		}
	}
	if err := sc.Err(); err != nil {
		return store.Errorf(store.KindCorrupt, "read checksums: %w", err)
	}
	if n != len(have) || have[identityFile] == "" {
		return store.Errorf(store.KindCorrupt, "the snapshot has %d files, its checksums name %d", len(have), n)
	}
	return nil
}

func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
