package resp

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// Messages are told to those who listen when they are published, and to nobody later: at most once, as in
// Redis. Channels are a user's, whatever database is selected; two users never share one. Servers
// do not tell each other.
//
// A message goes to the mail of each session that listens. The session appends it to its replies when it has
// nothing under way, as it does with its news, and only while few replies wait to be sent: so what a client does
// not take stays in its mail, up to a limit at which its connection is closed.

const (
	// mailBytesMax is how much mail a session may have: as much as Redis lets a subscriber fall behind for a
	// minute. With room for what it takes beside its text.
	mailBytesMax  = 8 << 20
	mailBytesEach = 64
	// channelsMax is how many channels a connection may listen to, and listeningBytesEach what one takes, beside
	// its name.
	channelsMax        = 10_000
	listeningBytesEach = 200
	// patternsMax is how many patterns a connection may listen to, and patternsOfUserMax how many all of a user:
	// each of these is matched with the channel of every message. How long one may be, and all of a user
	// together, bounds what that takes: BenchmarkHostilePatterns measures it.
	patternsMax             = 100
	patternsOfUserMax       = 1000
	patternListenedBytesMax = 256
	patternBytesOfUserMax   = 32 << 10
)

// A hub knows which sessions listen to what. It is safe for concurrent use.
type hub struct {
	d *Door

	published, told, dropped atomic.Uint64

	mu       sync.Mutex // guards the fields below, and the mail and the listening of all sessions
	channels map[channel]map[*session]struct{}
	patterns map[string]map[string]map[*session]struct{} // by user
	bytes    map[string]int                              // of a user's patterns
}

// A channel is a name of a user's.
type channel struct{ user, name string }

// A message is what is told of a channel, to those who listen to a pattern with that.
type message struct {
	pattern       string
	byPattern     bool
	channel, text string
}

func (m *message) size() int { return mailBytesEach + len(m.pattern) + len(m.channel) + len(m.text) }

// A listening is what a session listens to. The hub's lock guards it; the counts are for everybody.
type listening struct {
	user               string // whose channels these are
	channels, patterns map[string]struct{}
	bytes              atomic.Int64
	nChannels          atomic.Int64
	nPatterns          atomic.Int64

	mail      []message
	mailBytes atomic.Int64
}

func newHub(d *Door) *hub {
	return &hub{d: d, channels: make(map[channel]map[*session]struct{}), patterns: make(map[string]map[string]map[*session]struct{}), bytes: make(map[string]int)}
}

// listens reports whether a session listens to anything: with RESP2 it takes what it reads for messages then.
func (s *session) listens() bool {
	return s.subscribed || s.listening.nChannels.Load()+s.listening.nPatterns.Load() > 0
}

// subscriptions returns what replies to subscriptions tell.
func (s *session) subscriptions() int64 {
	n := s.listening.nChannels.Load() + s.listening.nPatterns.Load()
	if s.subscribed {
		n++
	}
	return n
}

// subscribe has a session listen to a channel.
func (h *hub) subscribe(s *session, name string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := &s.listening
	if _, has := l.channels[name]; has {
		return nil
	}
	if len(l.channels) == channelsMax {
		return errChannels
	}
	l.user = s.user
	at := channel{s.user, name}
	if h.channels[at] == nil {
		h.channels[at] = make(map[*session]struct{})
	}
	h.channels[at][s] = struct{}{}
	if l.channels == nil {
		l.channels = make(map[string]struct{})
	}
	l.channels[name] = struct{}{}
	l.count(len(name))
	return nil
}

// psubscribe has a session listen to a pattern.
func (h *hub) psubscribe(s *session, pattern string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := &s.listening
	if _, has := l.patterns[pattern]; has {
		return nil
	}
	of := h.patterns[s.user]
	if len(l.patterns) == patternsMax || of[pattern] == nil && len(of) == patternsOfUserMax {
		return errPatterns
	}
	if of[pattern] == nil && h.bytes[s.user]+len(pattern) > patternBytesOfUserMax {
		return errPatternBytes
	}
	l.user = s.user
	if of == nil {
		of = make(map[string]map[*session]struct{})
		h.patterns[s.user] = of
	}
	if of[pattern] == nil {
		of[pattern] = make(map[*session]struct{})
		h.bytes[s.user] += len(pattern)
	}
	of[pattern][s] = struct{}{}
	if l.patterns == nil {
		l.patterns = make(map[string]struct{})
	}
	l.patterns[pattern] = struct{}{}
	l.count(len(pattern))
	return nil
}

// count takes notice of a name that came, or if bytes is negative, went.
func (l *listening) count(bytes int) {
	l.nChannels.Store(int64(len(l.channels)))
	l.nPatterns.Store(int64(len(l.patterns)))
	if bytes < 0 {
		l.bytes.Add(int64(bytes - listeningBytesEach))
	} else {
		l.bytes.Add(int64(bytes + listeningBytesEach))
	}
}

// unsubscribe has a session listen to a channel no more.
func (h *hub) unsubscribe(s *session, name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := &s.listening
	if _, has := l.channels[name]; !has {
		return
	}
	delete(l.channels, name)
	l.count(-len(name))
	at := channel{l.user, name}
	if delete(h.channels[at], s); len(h.channels[at]) == 0 {
		delete(h.channels, at)
	}
}

// punsubscribe has a session listen to a pattern no more.
func (h *hub) punsubscribe(s *session, pattern string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := &s.listening
	if _, has := l.patterns[pattern]; !has {
		return
	}
	delete(l.patterns, pattern)
	l.count(-len(pattern))
	of := h.patterns[l.user]
	if delete(of[pattern], s); len(of[pattern]) == 0 {
		delete(of, pattern)
		h.bytes[l.user] -= len(pattern)
	}
	if len(of) == 0 {
		delete(h.patterns, l.user)
		delete(h.bytes, l.user)
	}
}

// names returns the channels or the patterns that a session listens to, in order.
func (h *hub) names(s *session, patterns bool) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if patterns {
		return slices.Sorted(maps.Keys(s.listening.patterns))
	}
	return slices.Sorted(maps.Keys(s.listening.channels))
}

// leave has a session listen to nothing, and forget its mail.
func (h *hub) leave(s *session) {
	for _, name := range h.names(s, false) {
		h.unsubscribe(s, name)
	}
	for _, pattern := range h.names(s, true) {
		h.punsubscribe(s, pattern)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	s.listening.mail = nil
	s.charge(-s.listening.mailBytes.Load())
}

// charge takes notice of mail that came or went.
func (s *session) charge(bytes int64) {
	s.listening.mailBytes.Add(bytes)
	s.bytes.Add(bytes)
	s.d.buffered.Add(bytes)
}

// publish tells those of a user's connections that listen, and returns how many times it did.
func (h *hub) publish(user, name, text string) (told int64) {
	h.published.Add(1)
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.channels[channel{user, name}] {
		h.post(s, message{channel: name, text: text})
		told++
	}
	var to subject
	to.set(name)
	for pattern, of := range h.patterns[user] {
		if !to.matches(pattern) {
			continue
		}
		for s := range of {
			h.post(s, message{pattern: pattern, byPattern: true, channel: name, text: text})
			told++
		}
	}
	h.told.Add(uint64(told))
	return told
}

// post adds to a session's mail. One that takes none of it for too long is closed. The lock is held.
func (h *hub) post(s *session, m message) {
	size := int64(m.size())
	if s.listening.mailBytes.Load()+size > mailBytesMax {
		if s.listening.mail != nil { // It is told once.
			h.dropped.Add(1)
			h.d.options.Logger.Warn("connection closed: the client read its messages too slowly", "client", s.addr)
			s.listening.mail = nil
			s.hang()
		}
		return
	}
	s.listening.mail = append(s.listening.mail, m)
	s.charge(size)
	s.wakeForNews()
}

// receivers returns how many times a message would be told.
func (h *hub) receivers(user, name string) (n int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n = int64(len(h.channels[channel{user, name}]))
	var to subject
	to.set(name)
	for pattern, of := range h.patterns[user] {
		if to.matches(pattern) {
			n += int64(len(of))
		}
	}
	return n
}

// subscribers returns how many sessions listen to a channel itself.
func (h *hub) subscribers(user, name string) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return int64(len(h.channels[channel{user, name}]))
}

// listened returns the channels of a user that somebody listens to, in any order, and how many patterns.
func (h *hub) listened(user string) (names []string, patterns int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for at := range h.channels {
		if at.user == user {
			names = append(names, at.name)
		}
	}
	return names, len(h.patterns[user])
}

// counts returns how many channels and patterns there are, of all users.
func (h *hub) counts() (channels, patterns int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, of := range h.patterns {
		patterns += len(of)
	}
	return len(h.channels), patterns
}

// some takes as much of a session's mail as it may append now.
func (h *hub) some(s *session) (mail []message, more bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := &s.listening
	n, room := 0, outBytesSoft-len(s.out)
	for n < len(l.mail) && (room > 0 || n == 0) {
		room -= l.mail[n].size()
		s.charge(-int64(l.mail[n].size()))
		n++
	}
	mail, l.mail = l.mail[:n], l.mail[n:]
	if len(l.mail) == 0 {
		l.mail = nil
	}
	return mail, l.mail != nil
}

// tellMail appends the session's mail to its replies, or some of it. Nothing of it is under way.
func (s *session) tellMail() {
	if s.listening.mailBytes.Load() == 0 {
		return
	}
	mail, more := s.d.hub.some(s)
	start := len(s.out)
	for i := range mail {
		m := &mail[i]
		if m.byPattern {
			s.push(4)
			s.text("pmessage")
			s.text(m.pattern)
		} else {
			s.push(3)
			s.text("message")
		}
		s.text(m.channel)
		s.text(m.text)
	}
	if s.fault != nil { // There is no room, and messages that are lost are told by closing.
		s.overflow(start)
		return
	}
	if more {
		s.wakeForNews()
	}
}
