package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/policy"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
)

// A shelf is a book of policies, with its files and its log.
type shelf struct {
	t                *testing.T
	book             *policyBook
	db               *quipu.DB
	confFile, inFile string
	log              bytes.Buffer
	logMu            sync.Mutex
}

// Write writes to the log.
func (s *shelf) Write(p []byte) (int, error) {
	s.logMu.Lock()
	defer s.logMu.Unlock()
	return s.log.Write(p)
}

// openShelf opens a book over a configuration file, and none of policies made by
// API.
func openShelf(t *testing.T, conf string) *shelf {
	t.Helper()
	dir := t.TempDir()
	s := &shelf{t: t, confFile: filepath.Join(dir, "quipu.yaml"), inFile: filepath.Join(dir, policyFileName)}
	s.write(s.confFile, conf)
	s.reopen()
	return s
}

// reopen opens the book again, as a restart does.
func (s *shelf) reopen() {
	s.t.Helper()
	c := &config{}
	if err := c.load(s.confFile, nil); err != nil {
		s.t.Fatal(err)
	}
	db := quipu.New(memstore.New(memstore.Options{}), quipu.Options{Policies: c.policies})
	s.t.Cleanup(func() { _ = db.Close() })
	s.db = db
	var err error
	if s.book, err = openPolicies(s.db, s.inFile, c, false, slog.New(slog.NewTextHandler(s, nil))); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shelf) write(file, text string) {
	s.t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// holds checks the patterns of the policies that hold, in order, and how many of
// them were made by API.
func (s *shelf) holds(made int, patterns ...string) {
	s.t.Helper()
	all, n := s.book.Policies()
	var got []string
	for _, p := range all {
		got = append(got, p.Pattern)
	}
	if n != made || !slices.Equal(got, patterns) || !slices.Equal(s.db.Policies(), all) {
		s.t.Errorf("policies %q, %d of them made, and in the DB %v; want %q and %d", got, n, s.db.Policies(), patterns, made)
	}
}

// meters checks how many files were read again, and how many could not be.
func (s *shelf) meters(reloads, failures float64) {
	s.t.Helper()
	var got []float64
	s.book.Meters(func(_, _ string, v float64) { got = append(got, v) })
	all, _ := s.book.Policies()
	if want := []float64{float64(len(all)), reloads, failures}; !slices.Equal(got, want) {
		s.t.Errorf("meters %v, want %v", got, want)
	}
}

// says checks that the log has a text, and empties it.
func (s *shelf) says(text string) {
	s.t.Helper()
	s.logMu.Lock()
	defer s.logMu.Unlock()
	if got := s.log.String(); text == "" && got != "" || !strings.Contains(got, text) {
		s.t.Errorf("log %q, want %q in it", got, text)
	}
	s.log.Reset()
}

func policies(patterns ...string) []quipu.Policy {
	var all []quipu.Policy
	for _, p := range patterns {
		all = append(all, quipu.Policy{Pattern: p})
	}
	return all
}

func TestPoliciesAreReloaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openShelf(t, "policies: [{pattern: a}]\n")
		ctx, cancel := context.WithCancel(t.Context())
		hangup := make(chan os.Signal)
		var watch sync.WaitGroup
		watch.Go(func() { s.book.watch(ctx, hangup) })
		defer func() { cancel(); watch.Wait() }()
		look := func() {
			<-time.After(lookEvery)
			synctest.Wait()
		}
		s.holds(0, "a")
		look()
		look()
		s.meters(0, 0)

		// A change is taken at the second look that finds it the same.
		s.write(s.confFile, "policies: [{pattern: bb}")
		look()
		s.holds(0, "a")
		s.write(s.confFile, "policies: [{pattern: bb}, {pattern: cc}]\n")
		look()
		s.holds(0, "a")
		s.says("")
		look()
		s.holds(0, "bb", "cc")
		s.says("policies reloaded")
		look()
		look()
		s.says("")
		s.meters(1, 0)

		// What is wrong is said once, with its line, and changes nothing.
		s.write(s.confFile, "policies:\n  - pattern: d\n  - {pattern: e, timing: never}\n")
		look()
		look()
		s.holds(0, "bb", "cc")
		s.says(s.confFile + ":3: ")
		look()
		look()
		s.meters(1, 1)
		if err := os.Remove(s.confFile); err != nil {
			t.Fatal(err)
		}
		look()
		look()
		s.holds(0, "bb", "cc")
		s.says("no such file")
		s.meters(1, 2)

		// A hangup takes all files at once, changed or not.
		s.write(s.confFile, "policies: [{pattern: d}]\n")
		hangup <- os.Interrupt
		synctest.Wait()
		s.holds(0, "d")
		s.meters(3, 2)

		// The other file is someone's too.
		s.write(s.inFile, "policies: [{pattern: x}]\n")
		look()
		look()
		s.holds(1, "x", "d")
		s.write(s.inFile, "policies: [{pattern: x}]\nhttp: 127.0.0.1:0\n")
		look()
		look()
		s.holds(1, "x", "d")
		s.says(s.inFile + ":2: unknown setting")
		if err := os.Remove(s.inFile); err != nil {
			t.Fatal(err)
		}
		look()
		look()
		s.holds(1, "x", "d")
		s.says("no such file")
		s.meters(4, 4)
	})
}

// What changes between the first reading and the first look is noticed, and what
// can't be read twice is not.
func TestPoliciesAreReadOnce(t *testing.T) {
	s := openShelf(t, "policies: [{pattern: a}]\n")
	c := &config{}
	if err := c.load(s.confFile, nil); err != nil {
		t.Fatal(err)
	}
	s.write(s.confFile, "policies: [{pattern: long}]\n")
	open := func(c *config) {
		t.Helper()
		var err error
		if s.book, err = openPolicies(s.db, "", c, false, slog.New(slog.NewTextHandler(s, nil))); err != nil {
			t.Fatal(err)
		}
	}
	open(c)
	s.holds(0, "a")
	s.book.reload(false)
	s.book.reload(false)
	s.holds(0, "long")
	s.meters(1, 0)

	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	var writer sync.WaitGroup
	writer.Go(func() { s.write(pipe, "policies: [{pattern: p}]\n") })
	if err := c.load(pipe, nil); err != nil {
		t.Fatal(err)
	}
	writer.Wait()
	open(c)
	s.book.reload(true)
	s.holds(0, "p")
	s.meters(0, 0)
}

// What can never match is said when it is read, with its line.
func TestReloadSaysWhatNeverMatches(t *testing.T) {
	text := func(line int) string {
		return fmt.Sprintf(`msg="some policies can never match, because earlier ones match all of their keys" count=2 first="FILE:%d: policy 1 can never match`, line)
	}
	s := openShelf(t, "policies: [{pattern: '*'}, {pattern: a}, {pattern: b}]\n")
	s.says(strings.ReplaceAll(text(1), "FILE", s.confFile))
	s.write(s.confFile, "policies: [{pattern: a}, {pattern: '*'}]\n")
	s.book.reload(true)
	s.says("policies reloaded")
	s.write(s.confFile, "policies:\n- {pattern: 'a*'}\n- {pattern: a}\n- {pattern: ab}\n")
	s.book.reload(true)
	s.says(strings.ReplaceAll(text(3), "FILE", s.confFile))
}

// A configuration file that has no policies any more is taken at its word, which
// is said, once.
func TestReloadSaysThatNoneAreLeft(t *testing.T) {
	const text = `level=WARN msg="the configuration file no longer has policies`
	s := openShelf(t, "policies: [{pattern: a}, {pattern: b}]\n")
	for _, empty := range []string{"", "# nothing\n", "policies: []\n", "policies:\n"} {
		s.write(s.confFile, "policies: [{pattern: a}, {pattern: b}]\n")
		s.book.reload(true)
		s.holds(0, "a", "b")
		s.says("policies reloaded")
		s.write(s.confFile, empty)
		s.book.reload(true)
		s.holds(0)
		s.says(text + `: the server dropped the earlier ones" file=` + s.confFile + " dropped=2")
		s.book.reload(true)
		if strings.Contains(s.log.String(), text) {
			t.Errorf("said again: %s", s.log.String())
		}
	}
}

// A reload says which other settings have changed, and leaves them alone.
func TestReloadLeavesSettingsAlone(t *testing.T) {
	s := openShelf(t, "")
	parser, err := newParser(&output{}, &config{})
	if err != nil {
		t.Fatal(err)
	}
	s.book.conf.flags = parser.Model.Children[0].Flags
	s.write(s.confFile, "token-window: 48h\npolicies: [{pattern: a}]\n")
	s.book.reload(true)
	s.holds(0, "a")
	s.says("setting=token-window")
}

func TestReplacePolicies(t *testing.T) {
	s := openShelf(t, "policies: [{pattern: a}]\n")
	f := func(old, made []quipu.Policy, want error) {
		t.Helper()
		if err := s.book.ReplacePolicies(t.Context(), old, made); !errors.Is(err, want) {
			t.Errorf("replace %v by %v: %v, want %v", old, made, err, want)
		}
	}
	f(nil, policies("x", "y*"), nil)
	s.holds(2, "x", "y*", "a")
	f(nil, policies("z"), store.ErrChanged)
	f(policies("x"), policies("z"), store.ErrChanged)
	f(policies("x", "y*"), policies("z", "*z"), store.ErrInvalid)
	f(policies("x", "y*"), make([]quipu.Policy, policy.Max), store.ErrTooLarge) // with that of the configuration
	s.holds(2, "x", "y*", "a")
	s.book.reload(false)
	s.book.reload(false)
	s.meters(0, 0) // what it wrote itself is nothing new
	s.reopen()
	s.holds(2, "x", "y*", "a")

	// Another server has written the file.
	s.write(s.inFile, "policies: [{pattern: other}]\n")
	f(policies("x", "y*"), policies("z"), store.ErrChanged)
	s.holds(1, "other", "a")
	f(policies("other"), nil, nil)
	s.holds(0, "a")
	s.reopen()
	s.holds(0, "a")

	// What is broken is not replaced.
	s.write(s.inFile, "policies: [{pattern: mi")
	f(nil, policies("z"), store.ErrUnsupported)
	s.holds(0, "a")

	// What is gone is made anew, by who knows what it had.
	s.write(s.inFile, "policies: [{pattern: x}]\n")
	f(nil, policies("z"), store.ErrChanged)
	if err := os.Remove(s.inFile); err != nil {
		t.Fatal(err)
	}
	f(nil, policies("z"), store.ErrChanged)
	f(policies("x"), policies("x", "y*"), nil)
	s.holds(2, "x", "y*", "a")
	s.reopen()
	s.holds(2, "x", "y*", "a")
	f(policies("x", "y*"), nil, nil)

	if err := os.RemoveAll(filepath.Dir(s.inFile)); err != nil {
		t.Fatal(err)
	}
	f(nil, policies("z"), store.ErrUnavailable)
	s.holds(0, "a")
	s.book.file.name = ""
	f(nil, policies("z"), store.ErrUnsupported)
	s.book.readOnly = true
	f(nil, policies("z"), store.ErrReadOnly)
}

// Writers that go by what they read lose nothing of each other, also those of
// another server that shares the file, and leave no file behind but it and its
// lock.
func TestReplacePoliciesConcurrently(t *testing.T) {
	s := openShelf(t, "")
	books := []*policyBook{s.book}
	s.reopen()
	books = append(books, s.book)
	const writers, each = 4, 10
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			book := books[w%len(books)]
			for n := 0; n < each; {
				old, _ := book.Policies()
				p := quipu.Policy{Pattern: string(rune('a'+w)) + strings.Repeat("x", n)}
				switch err := book.ReplacePolicies(t.Context(), old, append(slices.Clone(old), p)); {
				case err == nil:
					n++
				case !errors.Is(err, store.ErrChanged):
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	s.reopen()
	if all, made := s.book.Policies(); made != writers*each || len(all) != made {
		t.Errorf("%d policies, want %d: %v", made, writers*each, all)
	}
	entries, err := os.ReadDir(filepath.Dir(s.inFile))
	if err != nil || len(entries) != 3 {
		t.Errorf("files %v, %v", entries, err)
	}
}

// Another server that replaces the file is waited for as long as the caller
// does, and meanwhile policies can be read.
func TestReplacePoliciesWaits(t *testing.T) {
	s := openShelf(t, "policies: [{pattern: a}]\n")
	unlock, err := lockBeside(t.Context(), s.inFile)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*lockEvery)
	defer cancel()
	err = s.book.ReplacePolicies(ctx, nil, policies("x"))
	if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "another server has it") {
		t.Errorf("replace while another does: %v", err)
	}
	done := make(chan error)
	go func() { done <- s.book.ReplacePolicies(t.Context(), nil, policies("x")) }()
	<-time.After(4 * lockEvery)
	s.holds(0, "a")
	s.book.reload(true)
	select {
	case err := <-done:
		t.Fatalf("replaced without the lock: %v", err)
	default:
	}
	unlock()
	if err := <-done; err != nil {
		t.Error(err)
	}
	s.holds(1, "x", "a")
}

// Any policies are read from the file as they were written.
func TestPolicyText(t *testing.T) {
	file := filepath.Join(t.TempDir(), policyFileName)
	duration := rapid.Custom(func(t *rapid.T) time.Duration {
		return time.Duration(rapid.Int64Range(0, 3600).Draw(t, "n")) * rapid.SampledFrom([]time.Duration{1, 1e6, 1e9}).Draw(t, "unit")
	})
	one := rapid.Custom(func(t *rapid.T) quipu.Policy {
		return quipu.Policy{
			Namespace:  rapid.StringN(0, 9, 60).Draw(t, "namespace"),
			Pattern:    rapid.StringN(0, 9, 500).Draw(t, "pattern") + rapid.SampledFrom([]string{"", "*"}).Draw(t, "end"),
			Durability: rapid.SampledFrom([]quipu.Durability{0, quipu.Memory, quipu.Written, quipu.Synced}).Draw(t, "durability"),
			Shards:     rapid.IntRange(0, 8).Draw(t, "shards"),
			MaxShards:  rapid.SampledFrom([]int{0, 8, 64}).Draw(t, "max"),
			Single:     rapid.Bool().Draw(t, "single"),
			Spread:     policy.Spread(rapid.IntRange(0, 2).Draw(t, "spread")),
			CoolDown:   duration.Draw(t, "cool"),
			Timing:     policy.Timing(rapid.IntRange(0, 2).Draw(t, "timing")),
			Interval:   duration.Draw(t, "interval"),
			Stale:      duration.Draw(t, "stale"),
			Partial:    rapid.Bool().Draw(t, "partial"),
		}
	}).Filter(func(p quipu.Policy) bool { return quipu.Options{Policies: []quipu.Policy{p}}.Validate() == nil })
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(one, 0, 3).Draw(t, "policies")
		if err := replaceFile(file, policyText(want)); err != nil {
			t.Fatal(err)
		}
		var c config
		if err := c.load(file, nil); err != nil || !slices.Equal(c.policies, want) {
			t.Fatalf("%v is read as %v, %v", want, c.policies, err)
		}
	})
}
