package server

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode"
)

const (
	dampEvery    = 10 * time.Second
	dampLinesMax = 256 // lines remembered
)

// Damp returns a log handler that passes each warning and error on at most once
// in ten seconds, and then says how often it was held back. A full disk fails
// every call, and its log must not fill what is left of it. Lines are the same
// if their message and their error are, but for digits.
func Damp(h slog.Handler) slog.Handler {
	return &damper{Handler: h, damped: &damped{lines: map[string]*line{}}}
}

type damper struct {
	slog.Handler
	*damped // shared by all that With makes of it
}

type damped struct {
	mu    sync.Mutex // guards lines
	lines map[string]*line
}

type line struct {
	passed time.Time
	held   int64 // since then
}

// Handle passes the record on, unless the same was just passed.
func (d *damper) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn {
		return d.Handler.Handle(ctx, r)
	}
	held, pass := d.admit(r)
	if !pass {
		return nil
	}
	if held > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int64("suppressed", held))
	}
	return d.Handler.Handle(ctx, r)
}

// admit reports whether a record is to be passed, and how many of its like were
// held back before it.
func (d *damped) admit(r slog.Record) (held int64, pass bool) {
	key := r.Message
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "error" {
			key += "\n" + a.Value.String()
		}
		return true
	})
	key = strings.Map(func(c rune) rune {
		if unicode.IsDigit(c) {
			return -1
		}
		return c
	}, key)
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.lines[key]
	if l != nil && r.Time.Sub(l.passed) < dampEvery {
		l.held++
		return 0, false
	}
	if l == nil {
		l = d.add(key, r.Time)
	}
	held = l.held
	l.passed, l.held = r.Time, 0
	return held, true
}

// add remembers a line, and forgets those that would pass again if there are
// too many; if all are recent, it remembers nothing.
func (d *damped) add(key string, now time.Time) *line {
	if len(d.lines) >= dampLinesMax {
		for k, l := range d.lines {
			if now.Sub(l.passed) >= dampEvery {
				delete(d.lines, k)
			}
		}
	}
	l := &line{}
	if len(d.lines) < dampLinesMax {
		d.lines[key] = l
	}
	return l
}

// WithAttrs returns a handler that shares the memory of this one.
func (d *damper) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &damper{d.Handler.WithAttrs(attrs), d.damped}
}

// WithGroup returns a handler that shares the memory of this one.
func (d *damper) WithGroup(name string) slog.Handler {
	return &damper{d.Handler.WithGroup(name), d.damped}
}
