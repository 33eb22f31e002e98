package resp

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quipudb/quipu/internal/track"
	"github.com/quipudb/quipu/store"
)

// Keys that clients have read are in a table, with what they were then. A write through
// any door of this process is told by the port when it can be seen. Everything else (a
// deadline that passes, a write of another server) is found by looking at the keys, some
// thousand of them four times a second: see docs/redis.md.
//
// A session is told news. They are appended to its replies when it has no other
// under way: whatever it has read before they came, the reply is before them. A session
// with news executes nothing more before it has told them.

const (
	// trackedDefault is how many keys are tracked, unless CONFIG SET says otherwise.
	trackedDefault = 100_000
	trackedMax     = 1_000_000
	// lookEach is how often keys are looked at, and lookKeys how many then, of a store
	// that others share; of one in this process it is lookNear times as many.
	lookEach = 250 * time.Millisecond
	lookKeys = 2048
	lookNear = 4
	// newsMax and newsBytesMax bound what a session may have to tell. What is over it is
	// told as one: everything may have changed.
	newsMax      = 1024
	newsBytesMax = 64 << 10
	// prefixesMax is how many prefixes a connection may listen to.
	prefixesMax = 64
)

// A tracker knows which sessions are to be told what.
type tracker struct {
	d       *Door
	max     atomic.Int64 // keys
	told    atomic.Uint64
	running sync.WaitGroup

	mu    sync.Mutex // guards the fields below, and the news of all sessions
	table *track.Table
	on    map[int64]*session // those that track
	stop  func()             // ends what looks and listens

	evicted uint64 // by tables before
}

// A news is what a session has to tell. The tracker's lock guards it.
type news struct {
	keys   []string
	casts  []cast          // of who listens to prefixes: a message for each
	seen   map[string]bool // a key of these is told once
	bytes  int
	all    bool
	broken []int64 // clients that are gone, to which invalidations were to go

	// Of a session that does not want to hear of what it has changed itself:
	held []string        // changed since the last reply
	own  map[string]bool // by this session
}

// A cast is keys that have changed and begin with a prefix.
type cast struct {
	prefix string
	keys   []string
}

func newTracker(d *Door) *tracker {
	t := &tracker{d: d, table: track.New(trackedDefault), on: map[int64]*session{}}
	t.max.Store(trackedDefault)
	return t
}

// join has a session track. The lock is held.
func (t *tracker) join(s *session) {
	if len(t.on) == 0 {
		ctx, cancel := context.WithCancel(t.d.ctx)
		unwatch := t.d.db.Port().Watch(t)
		t.stop = func() { cancel(); unwatch() }
		t.running.Go(func() { t.run(ctx) })
	}
	t.on[s.id] = s
	t.table.Join(s.id)
}

// leave has a session track no more.
func (t *tracker) leave(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.part(s)
}

// part is leave for who holds the lock. When nobody tracks nothing is kept.
func (t *tracker) part(s *session) {
	if t.on[s.id] == nil {
		return
	}
	delete(t.on, s.id)
	t.table.Leave(s.id)
	if len(t.on) == 0 {
		t.stop()
		t.evicted += t.table.Evicted()
		t.table = track.New(int(t.max.Load()))
	}
}

// move takes notice of the namespace that a session works in.
func (t *tracker) move(s *session, namespace string) {
	if s.follow.on {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.table.Move(s.id, namespace)
	}
}

// Changed tells those who have read counters that they have changed: of one call together.
func (t *tracker) Changed(cells []store.Cell) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range cells {
		t.table.Changed(track.Name{Space: c.Namespace, Key: c.Key}, t.tell)
	}
}

// tell takes down that a session is to be told of a key. The lock is held.
func (t *tracker) tell(id int64, key string, all bool) {
	s := t.on[id]
	if s == nil {
		return
	}
	t.told.Add(1)
	if s.follow.noloop && !all {
		s.news.hold(key)
		s.wakeForNews()
		return
	}
	t.pass(s, key, all)
}

// pass takes down what a session is told, or the one that it has chosen for that. The
// lock is held.
func (t *tracker) pass(s *session, key string, all bool) {
	to := s
	if id := s.follow.redirect; id != 0 {
		if to = t.d.session(id); to == nil {
			s.follow.broken.Store(true)
			s.news.broken = append(s.news.broken[:0], id)
			s.wakeForNews()
			return
		}
	}
	switch n := &to.news; {
	case n.all:
	case all || len(n.keys)+len(n.seen) == newsMax || n.bytes+len(key) > newsBytesMax:
		n.all, n.keys, n.casts, n.seen, n.bytes = true, nil, nil, nil, 0
	case s.follow.bcast:
		n.cast(t.table.PrefixOf(s.id, key), key)
	default:
		n.keys = append(n.keys, key)
		n.bytes += len(key)
	}
	to.wakeForNews()
}

// cast adds a key to what is told of a prefix, unless it is there.
func (n *news) cast(prefix, key string) {
	if n.seen[key] {
		return
	}
	if n.seen == nil {
		n.seen = map[string]bool{}
	}
	n.seen[key] = true
	n.bytes += len(key)
	at := slices.IndexFunc(n.casts, func(c cast) bool { return c.prefix == prefix })
	if at < 0 {
		at = len(n.casts)
		n.casts = append(n.casts, cast{prefix: prefix})
	}
	n.casts[at].keys = append(n.casts[at].keys, key)
}

// hold is add for a session that may have changed the key itself. Too many are told as
// they are.
func (n *news) hold(key string) {
	if len(n.held) == newsMax {
		n.all = true
		return
	}
	n.held = append(n.held, key)
}

// wakeForNews has the session's transport tell its news soon.
func (s *session) wakeForNews() {
	if !s.heard.Swap(true) {
		s.nudge()
	}
}

// session returns a session by its id, or nil.
func (d *Door) session(id int64) *session {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sessions[id]
}

// tellNews appends the session's news to its replies. Nothing of it is under way.
func (s *session) tellNews() {
	t := s.d.tracker
	t.mu.Lock()
	held, own := s.news.held, s.news.own
	s.news.held, s.news.own = nil, nil
	for _, key := range held {
		if !own[key] {
			t.pass(s, key, false)
		}
	}
	n := s.news
	s.news = news{}
	s.heard.Store(false)
	t.mu.Unlock()
	if s.closing {
		return
	}
	for _, id := range n.broken {
		if s.resp3 {
			s.push(2)
			s.text("tracking-redir-broken")
			s.integer(id)
		}
	}
	start := len(s.out)
	if n.all && s.invalidate() {
		s.null()
	}
	for _, c := range n.casts { // as Redis has them
		if s.invalidate() {
			s.texts(c.keys)
		}
	}
	for _, key := range n.keys {
		if s.invalidate() {
			s.array(1)
			s.text(key)
		}
	}
	if s.fault != nil { // There is no room; and what it has read may be old.
		s.overflow(start)
		return
	}
	s.tellMail()
}

// invalidate begins an invalidation, and reports whether the session can be told one.
func (s *session) invalidate() bool {
	switch {
	case s.resp3:
		s.push(2)
		s.text("invalidate")
	case s.subscribed:
		s.array(3)
		s.text("message")
		s.text(invalidateChannel)
	default:
		return false
	}
	return true
}

// texts appends an array of texts.
func (e *encoder) texts(all []string) {
	e.array(len(all))
	for _, text := range all {
		e.text(text)
	}
}

// run looks at keys until nobody tracks any.
func (t *tracker) run(ctx context.Context) {
	tick := time.NewTicker(lookEach)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			t.look(ctx)
		}
	}
}

// look looks at some keys, and tells of those that have changed.
func (t *tracker) look(ctx context.Context) {
	n := lookKeys
	near := !t.d.db.Port().Traits().Shared
	if near {
		n *= lookNear
	}
	t.mu.Lock()
	names := t.table.Next(n, func(n track.Name) int64 {
		p := t.d.db.Port()
		return p.NowMS(store.Cell{Namespace: n.Space, Key: n.Key})
	})
	t.mu.Unlock()
	spaces := map[string][]string{}
	for _, name := range names {
		spaces[name.Space] = append(spaces[name.Space], name.Key)
	}
	for space, keys := range spaces {
		for len(keys) > 0 {
			some := keys[:min(len(keys), lookAtOnce)]
			keys = keys[len(some):]
			seen, err := t.d.seen(ctx, space, some)
			if err != nil { // The store is away, or was told to end: next time.
				return
			}
			t.mu.Lock()
			for i, key := range some {
				t.table.Judge(track.Name{Space: space, Key: key}, seen[i], t.tell)
			}
			t.mu.Unlock()
		}
	}
}

// lookAtOnce is how many keys a call of the store looks at.
const lookAtOnce = 512

// seen returns what keys are, as a client would be told.
func (d *Door) seen(ctx context.Context, space string, keys []string) ([]track.Seen, error) {
	ctx, cancel := d.deadline(ctx)
	defer cancel()
	p, values, seen := d.view(space).Port(), make([]store.Value, len(keys)), make([]track.Seen, len(keys))
	if !p.Peek(keys, values) {
		if err := p.Values(ctx, keys, values); err != nil {
			return nil, err
		}
	}
	for i := range values {
		seen[i] = track.Look(values[i])
	}
	return seen, nil
}

// flushed tells those who work in namespaces that these are about to be emptied.
func (t *tracker) flushed(namespaces ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.on) == 0 {
		return
	}
	in := map[string]bool{}
	for _, name := range namespaces {
		in[name] = true
	}
	t.table.Flushed(func(id int64) bool { return in[t.on[id].namespace()] }, t.tell)
}

// resize takes notice of a new limit of keys.
func (t *tracker) resize() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.table.Resize(int(t.max.Load()), t.tell)
}

// counts returns how many sessions track, and how many keys, readers of keys and prefixes
// there are, and how often there was no room.
func (t *tracker) counts() (sessions, keys, items, prefixes int, evicted uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.on), t.table.Keys(), t.table.Items(), t.table.Prefixes(), t.evicted + t.table.Evicted()
}
