package resp

import (
	"github.com/quipudb/quipu/internal/track"
)

// Redis's words.
const (
	errTrackingRedirects = wireError("ERR A client can only redirect to a single other client")
	errTrackingNoClient  = wireError("ERR The client ID you want redirect to does not exist")
	errTrackingPrefix    = wireError("ERR PREFIX option requires BCAST mode to be enabled")
	errTrackingBroadcast = wireError("ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it with a different mode.")
	errTrackingOptBcast  = wireError("ERR OPTIN and OPTOUT are not compatible with BCAST")
	errTrackingOptBoth   = wireError("ERR You can't specify both OPTIN mode and OPTOUT mode")
	errTrackingOptSwitch = wireError("ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it with a different mode.")
	errCachingOff        = wireError("ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled")
	errCachingYes        = wireError("ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.")
	errCachingNo         = wireError("ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.")
)

// Our own.
const (
	errTrackingShared   = wireError("ERR BCAST is not possible over a store that other servers share: they do not tell which keys they change")
	errTrackingPrefixes = wireError("ERR too many prefixes")
)

// A wish is what CLIENT TRACKING asks for.
type wish struct {
	on, bcast, optin, optout, noloop bool
	redirect                         int64
	prefixes                         []string
}

func (s *session) parseWish(args [][]byte) (w wish, err error) {
	for i := 3; i < len(args); i++ {
		a, more := args[i], i+1 < len(args)
		switch {
		case is(a, "REDIRECT") && more:
			i++
			if w.redirect != 0 {
				return w, errTrackingRedirects
			}
			if w.redirect, err = integer(args[i]); err != nil {
				return w, err
			}
			if to := s.d.session(w.redirect); to == nil || s.checked && to.principal() != s.view.Principal { // it is none of theirs
				return w, errTrackingNoClient
			}
		case is(a, "BCAST"):
			w.bcast = true
		case is(a, "OPTIN"):
			w.optin = true
		case is(a, "OPTOUT"):
			w.optout = true
		case is(a, "NOLOOP"):
			w.noloop = true
		case is(a, "PREFIX") && more:
			i++
			w.prefixes = append(w.prefixes, string(args[i]))
		default:
			return w, errSyntax
		}
	}
	if w.on = is(args[2], "ON"); !w.on && !is(args[2], "OFF") {
		return w, errSyntax
	}
	return w, nil
}

// check returns why a session can't track so.
func (w *wish) check(s *session) error {
	f := &s.follow
	switch {
	case !w.bcast && len(w.prefixes) > 0:
		return errTrackingPrefix
	case f.on && f.bcast != w.bcast:
		return errTrackingBroadcast
	case w.bcast && (w.optin || w.optout):
		return errTrackingOptBcast
	case w.optin && w.optout:
		return errTrackingOptBoth
	case w.optin && f.optout || w.optout && f.optin:
		return errTrackingOptSwitch
	case w.bcast && s.db.Port().Traits().Shared:
		return errTrackingShared
	}
	return nil
}

func clientTracking(s *session, args [][]byte) error {
	w, err := s.parseWish(args)
	switch {
	case err != nil:
		return err
	case !w.on:
		s.unfollow()
		s.ok()
		return nil
	}
	if err := w.check(s); err != nil {
		return err
	}
	if err := w.permit(s); err != nil {
		return err
	}
	if err := s.d.tracker.follow(s, &w); err != nil {
		return err
	}
	s.ok()
	return nil
}

// permit returns why the session may not listen to prefixes: their keys are told as they change.
func (w *wish) permit(s *session) error {
	if w.bcast && len(w.prefixes) == 0 && !s.mayHear("") {
		return errNoKeys
	}
	for _, prefix := range w.prefixes {
		if !s.mayHear(prefix) {
			return errNoKeys
		}
	}
	return nil
}

// hearsAll reports whether the session may listen to what it listens to, as who it is now.
func (s *session) hearsAll() bool {
	t := s.d.tracker
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, prefix := range t.table.Listened(s.id) {
		if !s.mayHear(prefix) {
			return false
		}
	}
	return true
}

// follow has a session track.
func (t *tracker) follow(s *session, w *wish) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	listened := t.table.Listened(s.id)
	if a, b, both, found := track.Overlap(listened, w.prefixes); found {
		which := "an existing prefix"
		if both {
			which = "another provided prefix"
		}
		return wireError("ERR Prefix '" + a + "' overlaps with " + which + " '" + b + "'. Prefixes for a single client must not overlap.")
	}
	if len(listened)+len(w.prefixes) > prefixesMax {
		return errTrackingPrefixes
	}
	t.join(s)
	if prefixes := w.prefixes; w.bcast {
		if len(prefixes) == 0 {
			prefixes = []string{""}
		}
		if !t.table.Listen(s.id, s.db.Port().Namespace(), prefixes) {
			if !s.follow.on {
				t.part(s)
			}
			return errTrackingPrefixes
		}
	}
	f := &s.follow
	f.on, f.bcast, f.optin, f.optout, f.noloop, f.redirect, f.caching = true, w.bcast, w.optin, w.optout, w.noloop, w.redirect, false
	f.broken.Store(false)
	return nil
}

// unfollow has the session track no more. What it was told and has not told yet stays news.
func (s *session) unfollow() {
	t := s.d.tracker
	t.mu.Lock()
	defer t.mu.Unlock()
	t.part(s)
	s.follow.clear()
}

func clientCaching(s *session, args [][]byte) error {
	f := &s.follow
	switch {
	case !f.on:
		return errCachingOff
	case is(args[2], "YES") && !f.optin:
		return errCachingYes
	case is(args[2], "NO") && !f.optout:
		return errCachingNo
	case !is(args[2], "YES") && !is(args[2], "NO"):
		return errSyntax
	}
	f.caching = true
	s.ok()
	return nil
}

func clientGetRedir(s *session, _ [][]byte) error {
	if s.follow.on {
		s.integer(s.follow.redirect)
	} else {
		s.integer(-1)
	}
	return nil
}

func clientTrackingInfo(s *session, _ [][]byte) error {
	f, t := &s.follow, s.d.tracker
	t.mu.Lock()
	prefixes := t.table.Listened(s.id)
	t.mu.Unlock()
	words := []string{"off"}
	if f.on {
		words[0] = "on"
	}
	for _, w := range []struct {
		word string
		set  bool
	}{
		{"bcast", f.bcast},
		{"optin", f.optin},
		{"caching-yes", f.optin && f.caching},
		{"optout", f.optout},
		{"caching-no", f.optout && f.caching},
		{"noloop", f.noloop},
		{"broken_redirect", f.broken.Load()},
	} {
		if w.set {
			words = append(words, w.word)
		}
	}
	s.fields(3)
	s.text("flags")
	s.set(len(words))
	for _, w := range words {
		s.text(w)
	}
	s.text("redirect")
	if f.on {
		s.integer(f.redirect)
	} else {
		s.integer(-1)
	}
	s.text("prefixes")
	s.texts(prefixes)
	return nil
}
