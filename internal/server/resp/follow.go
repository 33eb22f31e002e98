package resp

import (
	"context"
	"sync/atomic"

	"github.com/quipudb/quipu/internal/track"
	"github.com/quipudb/quipu/store"
)

// A follow is how a session tracks. The session's goroutine changes it, under the
// tracker's lock, and others read it under that.
type follow struct {
	on, bcast, optin, optout, noloop bool

	redirect int64       // whom to tell instead; 0 is the session itself
	broken   atomic.Bool // that one is gone
	caching  bool        // of OPTIN the next command is tracked, of OPTOUT it is not

	// looked is what keys of the command to come were when a job has looked.
	looked map[string]track.Seen
}

// clear has the session track no more.
func (f *follow) clear() {
	f.on, f.bcast, f.optin, f.optout, f.noloop, f.redirect, f.caching, f.looked = false, false, false, false, false, 0, false, nil
	f.broken.Store(false)
}

// tracks returns how CLIENT LIST says that the session tracks, and where it redirects to.
func (s *session) tracks() (flags string, redirect int64) {
	s.d.tracker.mu.Lock()
	defer s.d.tracker.mu.Unlock()
	f := &s.follow
	if !f.on {
		return "", -1
	}
	flags = "t"
	if f.broken.Load() {
		flags += "R"
	}
	if f.bcast {
		flags += "B"
	}
	return flags, f.redirect
}

// recall notes which keys a command is about to read, if they are tracked. It reports
// false if these have to be looked at first: that is the session's job then, and the
// command is to be tried again after it.
func (w *worker) recall(s *session, c *command, args [][]byte) bool {
	f := &s.follow
	if f.bcast || f.optin && !f.caching || f.optout && f.caching {
		return true
	}
	var keys [][]byte
	if c.name == "EXEC" {
		for _, q := range s.queue {
			keys = q.command.readKeys(keys, q.args)
		}
	} else {
		keys = c.readKeys(nil, args)
	}
	if len(keys) == 0 {
		return true
	}
	t, space := s.d.tracker, s.db.Port().Namespace()
	t.mu.Lock()
	strange := t.strange(f, space, keys)
	if len(strange) == 0 {
		t.read(s, space, keys)
		t.mu.Unlock()
		return true
	}
	t.mu.Unlock()
	if seen, ok := w.glance(s, strange); ok {
		f.looked = seen
		t.mu.Lock()
		t.read(s, space, keys)
		t.mu.Unlock()
		return true
	}
	if w.alone(s) {
		s.job = func(ctx context.Context) { s.lookFirst(ctx, strange) }
	}
	return false
}

// readKeys appends the keys that a command only reads, of those that can be counters.
func (c *command) readKeys(keys, args [][]byte) [][]byte {
	if c.flags&flagRead == 0 {
		return keys
	}
	for _, at := range c.keys.positions(args) {
		if checkKey(args[at]) == nil {
			keys = append(keys, args[at])
		}
	}
	return keys
}

// strange returns the keys of which nobody knows what they were.
func (t *tracker) strange(f *follow, space string, keys [][]byte) (names []string) {
	for _, key := range keys {
		if _, looked := f.looked[string(key)]; !looked && !t.table.Has(space, key) {
			names = append(names, string(key))
		}
	}
	return names
}

// read notes that a session is about to read keys.
func (t *tracker) read(s *session, space string, keys [][]byte) {
	for _, key := range keys {
		name := string(key)
		t.table.Read(s.id, track.Name{Space: space, Key: name}, s.follow.looked[name], t.tell)
	}
	s.follow.looked = nil
}

// glance looks at keys without waiting, if the store can.
func (w *worker) glance(s *session, names []string) (map[string]track.Seen, bool) {
	values := w.room(len(names))
	if !s.db.Port().Peek(names, values) {
		return nil, false
	}
	seen := make(map[string]track.Seen, len(names))
	for i, name := range names {
		seen[name] = track.Look(values[i])
	}
	return seen, true
}

// lookFirst looks at keys. If it can't they are tracked as never seen, and the first look
// that can will tell.
func (s *session) lookFirst(ctx context.Context, names []string) {
	looked := make(map[string]track.Seen, len(names))
	seen, err := s.d.seen(ctx, s.db.Port().Namespace(), names)
	for i, name := range names {
		looked[name] = track.Seen{}
		if err == nil {
			looked[name] = seen[i]
		}
	}
	s.follow.looked = looked
}

// changedBy takes down which keys a session has changed itself, of entries that are being
// replied.
func (c *cycle) changedBy(s *session, entries []entry) {
	t := s.d.tracker
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(s.news.held) == 0 {
		return
	}
	own := func(key string) {
		if s.news.own == nil {
			s.news.own = map[string]bool{}
		}
		s.news.own[key] = true
	}
	for i := range entries {
		e := &entries[i]
		if e.kind == added && c.lane.took(e) {
			if a := &c.lane.Each[e.at]; int32(a.Taken) > e.nth {
				own(string(c.lane.KeyOf(a)))
			}
			continue
		}
		for at, to := c.deltasOf(e); at < to && int(at) < len(c.results) && int(at) < len(c.deltas); at++ {
			if c.err != nil || c.errs != nil && c.errs[at] != nil {
				continue
			}
			if d, r := &c.deltas[at], &c.results[at]; d.Op != store.OpGet && r.Outcome == store.Applied && !r.Replayed {
				own(d.Cell.Key)
			}
		}
	}
}
