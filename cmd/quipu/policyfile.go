package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/store"
)

const (
	// policyFileName is the file of policies in the directory of an embedded
	// store.
	policyFileName = "policies.yaml"
	// lookEvery is how often files of policies are looked at.
	lookEvery = 2 * time.Second
	// lockEvery is how often a lock is tried that someone holds.
	lockEvery = 5 * time.Millisecond
)

// A policyBook keeps the policies of a server that runs: those made by API, which
// are in a file of their own, before those of the configuration file. It is safe
// for concurrent use.
type policyBook struct {
	db       *quipu.DB
	logger   *slog.Logger
	readOnly bool

	// mu guards the fields below, but for the names of the files, which stay. Who
	// replaces the file locks that first, and mu then: while another process is
	// waited for, policies can be read.
	mu     sync.Mutex
	made   []quipu.Policy
	file   watched // of those made; no name if they can't be kept
	given  []quipu.Policy
	places []int   // the lines of those given
	conf   *config // as it was at the start
	seen   watched // its file; no name if it can't be read again

	proposed *config // as the file was read last

	reloads, failures atomic.Uint64
}

// openPolicies reads the policies made by API, and has them hold before those of
// the configuration. The logger must hold nothing back: what is wrong with a file
// is logged once, and at every hangup.
func openPolicies(db *quipu.DB, file string, conf *config, readOnly bool, logger *slog.Logger) (*policyBook, error) {
	b := &policyBook{
		db: db, logger: logger, readOnly: readOnly,
		file: watched{name: file}, given: conf.policies, places: conf.places, conf: conf, proposed: conf,
	}
	if conf.stamp != (stamp{}) { // not a pipe: what was read from one is gone
		b.seen = watched{name: conf.file, have: conf.stamp}
	}
	made, err := b.readMade()
	if err == nil {
		err = b.hold(made, b.given)
	}
	if err != nil {
		return nil, fmt.Errorf("read policies: %w", err)
	}
	b.warn()
	return b, nil
}

// Policies returns all policies, and how many of them, the first, were made by
// API.
func (b *policyBook) Policies() (all []quipu.Policy, made int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Concat(b.made, b.given), len(b.made)
}

// ReplacePolicies replaces the policies made by API, if they are still the old
// ones, and otherwise returns ErrChanged. A nil error means that the file has
// the new ones, durably. ctx limits how long another server that replaces the same
// file is waited for.
func (b *policyBook) ReplacePolicies(ctx context.Context, old, made []quipu.Policy) error {
	switch {
	case b.readOnly:
		return store.ErrReadOnly
	case b.file.name == "":
		return store.Errorf(store.KindUnsupported, "this server has no file for policies made by API: start it with --policy-file")
	}
	unlock, err := lockBeside(ctx, b.file.name)
	if err != nil {
		return store.Errorf(store.KindUnavailable, "the policies can't be written, since %s can't be locked: %w", filepath.Base(b.file.name), err)
	}
	err = b.replace(old, made)
	unlock()
	if err != nil {
		return err
	}
	if err := syncDir(filepath.Dir(b.file.name)); err != nil {
		return store.Errorf(store.KindUnknown, "the policies hold, but a power loss may take them back: %w", err)
	}
	return nil
}

// replace replaces the policies made by API, if the file still has the old ones.
// The caller has the lock of the file.
func (b *policyBook) replace(old, made []quipu.Policy) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	// Someone else may have written the file since. One that is gone is made anew:
	// what this server has of it is all that there is.
	present, err := b.readMade()
	if errors.Is(err, fs.ErrNotExist) {
		present, err = b.made, nil
	}
	if err != nil {
		return store.Errorf(store.KindUnsupported, "policies can't be changed until their file is mended; those from before hold: %w", err)
	}
	if !slices.Equal(present, b.made) {
		if err := b.hold(present, b.given); err != nil {
			return err
		}
	}
	if !slices.Equal(b.made, old) {
		return store.ErrChanged
	}
	if err := (quipu.Options{Policies: slices.Concat(made, b.given)}).Validate(); err != nil {
		return err
	}
	if err := replaceFile(b.file.name, policyText(made)); err != nil {
		return store.Errorf(store.KindUnavailable, "the policies can't be written to %s: %w", filepath.Base(b.file.name), err)
	}
	b.file.have = stampOf(b.file.name)
	if err := b.hold(slices.Clone(made), b.given); err != nil {
		return err
	}
	b.warn()
	return nil
}

// Meters calls f for each meter.
func (b *policyBook) Meters(f func(name, help string, value float64)) {
	all, _ := b.Policies()
	f("quipu_policies", "Policies that hold.", float64(len(all)))
	f("quipu_policy_reloads_total", "Files of policies that were read again.", float64(b.reloads.Load()))
	f("quipu_policy_reload_failures_total", "Files of policies that could not be: those from before hold.", float64(b.failures.Load()))
}

// hold has policies hold. The caller has the lock.
func (b *policyBook) hold(made, given []quipu.Policy) error {
	if err := b.db.SetPolicies(slices.Concat(made, given)); err != nil {
		return err
	}
	b.made, b.given = made, given
	return nil
}

// warn logs that policies can never match: how many, and the first of them. The
// caller has the lock.
func (b *policyBook) warn() {
	texts := unmatched(slices.Concat(b.made, b.given), func(i int) string {
		if i < len(b.made) {
			return fmt.Sprintf("policy %d, made by API,", i)
		}
		return fmt.Sprintf("%s:%d: policy %d", b.conf.file, b.places[i-len(b.made)], i)
	})
	if texts != nil {
		b.logger.Warn("some policies can never match, because earlier ones match all of their keys", "count", len(texts), "first", texts[0])
	}
}

// readMade reads the policies made by API. There are none before the file is
// first written; a file that is gone again is an error.
func (b *policyBook) readMade() ([]quipu.Policy, error) {
	if b.file.name == "" {
		return nil, nil
	}
	var c config
	err := c.load(b.file.name, nil)
	b.file.have = c.stamp
	if errors.Is(err, fs.ErrNotExist) && len(b.made) == 0 {
		return nil, nil
	}
	if err == nil && c.definitions != nil {
		err = c.at(c.definitions[0].Line, errors.New("this file can have only policies: the store keeps definitions, and quipu policy apply changes them"))
	}
	return c.policies, err
}

// watch reads files again that have changed, and all of them at a hangup, until
// ctx ends.
func (b *policyBook) watch(ctx context.Context, hangup <-chan os.Signal) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			b.reload(false)
		case <-hangup:
			b.reload(true)
			b.publish(ctx)
		}
	}
}

// reload reads the files again that have changed since they were read, or all.
func (b *policyBook) reload(all bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.seen.name != "" && (b.seen.settled() || all) {
		b.again(b.seen.name, b.rereadConfig)
	}
	if b.file.name != "" && (b.file.settled() || all) {
		b.again(b.file.name, func() error {
			made, err := b.readMade()
			if err != nil {
				return err
			}
			return b.hold(made, b.given)
		})
	}
}

// publish publishes the definitions of the configuration file, as it was read last.
func (b *policyBook) publish(ctx context.Context) {
	b.mu.Lock()
	conf := b.proposed
	b.mu.Unlock()
	if !b.readOnly {
		publish(ctx, b.db, conf, b.logger)
	}
}

// again says and counts how reading a file again went.
func (b *policyBook) again(name string, read func() error) {
	if err := read(); err != nil {
		b.failures.Add(1)
		b.logger.Error("policies not reloaded: the previous ones stay in effect", "file", name, "error", err)
		return
	}
	b.reloads.Add(1)
	b.logger.Info("policies reloaded", "file", name, "made", len(b.made), "configured", len(b.given))
	b.warn()
}

// rereadConfig takes the policies of the configuration file, and says which other
// settings have changed in it.
func (b *policyBook) rereadConfig() error {
	var c config
	err := c.load(b.conf.file, b.conf.flags)
	b.seen.have = c.stamp
	if err != nil {
		return err
	}
	dropped := len(b.given)
	if err := b.hold(b.made, c.policies); err != nil {
		return err
	}
	b.places, b.proposed = c.places, &c
	if dropped > 0 && len(c.policies) == 0 { // more likely a slip than a wish
		b.logger.Warn("the configuration file no longer has policies: the server dropped the earlier ones", "file", b.conf.file, "dropped", dropped)
	}
	names := maps.Clone(b.conf.settings)
	maps.Copy(names, c.settings)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !reflect.DeepEqual(b.conf.settings[name], c.settings[name]) {
			b.logger.Warn("a changed setting takes effect at the next start", "file", b.conf.file, "setting", name)
		}
	}
	return nil
}

// A watched is a file that is read again when it changes.
type watched struct {
	name string
	have stamp // of what was read
	last stamp // at the last look
}

// A stamp tells a file from what it was before.
type stamp struct {
	changed int64 // Unix nanoseconds
	size    int64
}

// stampOf returns the stamp of a file, and none for what is no file.
func stampOf(name string) stamp {
	info, err := os.Stat(name)
	if err != nil || !info.Mode().IsRegular() {
		return stamp{}
	}
	return stamp{info.ModTime().UnixNano(), info.Size()}
}

// settled reports whether the file is another than was read, and the same as at
// the last look: one that is being written is left alone until it is whole.
func (w *watched) settled() bool {
	now := stampOf(w.name)
	settled := now == w.last && now != w.have
	w.last = now
	return settled
}

// policyText returns the file of policies.
func policyText(policies []quipu.Policy) string {
	var b strings.Builder
	b.WriteString("# Policies made by API. The server replaces this file as a whole, and reads it again when it changes.\npolicies:")
	if len(policies) == 0 {
		b.WriteString(" []")
	}
	for _, p := range policies {
		b.WriteString("\n  - " + p.String())
	}
	b.WriteString("\n")
	return b.String()
}

// replaceFile makes a file have a text, or leaves it as it was. What is to
// survive a power loss also needs syncDir.
func replaceFile(name, text string) error {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".partial-")
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// lockBeside locks a file for those who would replace it, in this process and in
// others, and returns what unlocks it. It waits until ctx ends.
//
// Without the lock, two servers that share the file lose what was acknowledged:
// both read it, both find that it is still what their caller had read, both
// rename their own over it, and the later one knows nothing of the earlier. What
// is locked is a file beside it, because the rename puts another file in place of
// the one that others wait for; and it is never removed, for the same reason. The
// lock of a process that dies is gone with it. Who only reads needs none: a rename
// is whole.
func lockBeside(ctx context.Context, name string) (unlock func(), err error) {
	f, err := os.OpenFile(name+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		locked, err := tryLock(f)
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		if locked {
			return func() { _ = f.Close() }, nil // which unlocks it, and has nothing to write
		}
		select {
		case <-time.After(lockEvery):
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("another server has it: %w", context.Cause(ctx)), f.Close())
		}
	}
}
