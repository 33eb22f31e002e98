package main

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"time"
)

// An output is where a command speaks: results to stdout, the rest to stderr.
type output struct {
	stdout, stderr io.Writer
	colours        bool // of stderr
	live           bool // stderr is a terminal that shows progress
	stdoutTerminal bool
}

func newOutput(stdout, stderr *os.File) *output {
	live := terminal(stderr)
	return &output{
		stdout: stdout, stderr: stderr, live: live, stdoutTerminal: terminal(stdout),
		colours: live && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb",
	}
}

// terminal reports whether someone watches f.
func terminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// print writes a result.
func (o *output) print(format string, args ...any) error {
	_, err := fmt.Fprintf(o.stdout, format+"\n", args...)
	return err
}

// printLines prints lines.
func (o *output) printLines(lines []string) error {
	for _, line := range lines {
		if err := o.print("%s", line); err != nil {
			return err
		}
	}
	return nil
}

// ownName is the name with which the errors of the library begin, wherever they
// are wrapped.
var ownName = regexp.MustCompile(`(?m)(^|: )quipu: `)

// fromVariable is how the parser tells the value of a variable that it refused.
// The name is enough, and the value may be a secret.
var fromVariable = regexp.MustCompile(` \(from envar (\w+)="(?:[^"\\]|\\.)*"\)`)

// fail says that the command failed.
func (o *output) fail(err error) {
	label := "quipu: error:"
	if o.colours {
		label = "\x1b[31m" + label + "\x1b[0m"
	}
	text := fromVariable.ReplaceAllString(err.Error(), " (from $1)")
	text = ownName.ReplaceAllString(text, "$1")
	_, _ = fmt.Fprintln(o.stderr, label, strings.ReplaceAll(text, quotedEscape, ""))
}

// hint adds a line for people.
func (o *output) hint(text string) { _, _ = fmt.Fprintln(o.stderr, "quipu:", text) }

// progress shows how far long work has come, while someone watches. The
// returned function ends it.
func (o *output) progress(what string, bytes *atomic.Int64) (end func()) {
	if !o.live {
		return func() {}
	}
	const every = 200 * time.Millisecond
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		start := time.Now()
		for {
			select {
			case <-ticker.C:
				took := time.Since(start).Round(time.Second)
				_, _ = fmt.Fprintf(o.stderr, "\r\x1b[K%s %s, %s", what, formatSize(bytes.Load()), took)
			case <-stop:
				_, _ = io.WriteString(o.stderr, "\r\x1b[K")
				return
			}
		}
	}()
	return func() { close(stop); <-stopped }
}

// formatSize writes a number of bytes for people; 0 is nothing to show.
func formatSize(n int64) string {
	switch {
	case n == 0:
		return "…"
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	default:
		return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
	}
}

// A meter counts the bytes written through it.
type meter struct {
	w     io.Writer
	bytes atomic.Int64
}

// Write writes p.
func (m *meter) Write(p []byte) (int, error) {
	n, err := m.w.Write(p)
	m.bytes.Add(int64(n))
	return n, err
}
