package resp

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/store"
)

// What a connection may have waiting.
const (
	// outBytesSoft is how much unsent reply stops a session from executing more.
	outBytesSoft = 256 << 10
	// inBytesMax is the longest command.
	inBytesMax = 8 << 20
	// replyBytesMax is the longest reply.
	replyBytesMax = 16 << 20
)

// A session is the state of one connection, whatever carries it. One goroutine
// at a time has it: the one that carries the connection, or, while job is set,
// the one that runs the job.
type session struct {
	encoder // replies not sent yet
	parser  parser

	d  *Door
	db *quipu.DB // in the session's namespace
	in []byte    // what came and was not executed yet

	pending int                   // runs of the session in cycles that are not finished
	job     func(context.Context) // what must be waited for before anything else
	sweep   bool                  // it goes through all keys
	refused bool                  // the next command waits for those before
	held    int                   // cycles that the session must wait for before it executes more
	conn    *conn                 // in a loop
	guarded []qAdd                // Q.ADDs that follow each other, and take a receipt each
	calls   uint64                // commands executed, not yet metered

	came     time.Duration // when what is executed came, by the door's clock
	answered int           // commands since, whose replies are those in out and the job's

	multi   bool // between MULTI and EXEC
	dirty   bool // a command of the transaction was refused
	queue   []queued
	queued  int               // bytes in queue
	watched []store.Condition // with versions
	queuing atomic.Int32      // how many commands are in queue; -1 if multi is not set

	muted   bool // CLIENT REPLY OFF
	skip    bool // CLIENT REPLY SKIP: the next reply is dropped
	drop    bool // the reply that is being made is dropped
	closing bool // nothing more is executed: close when out is sent

	id      int64
	addr    string // of the client
	local   string // of the door
	since   time.Time
	hang    func() // ends the connection, from any goroutine
	place   *server.Place
	active  atomic.Int64
	last    atomic.Pointer[command]
	bytes   atomic.Int64 // held by in, out, spans and queue, as the door knows it
	waiting atomic.Int64 // bytes in out

	mu       sync.Mutex // guards what CLIENT LIST of others reads
	name     string
	library  [2]string // name and version
	user     string
	index    int  // of the database that was selected
	entered  bool // has a key, or needs none
	noEvict  bool
	noTouch  bool
	protocol int
}

// A queued is a command of a transaction.
type queued struct {
	command *command
	args    [][]byte
}

// open adds a session to the door.
func (d *Door) open(addr, local string, hang func()) *session {
	now := time.Now()
	s := &session{d: d, db: d.db, addr: addr, local: local, since: now, hang: hang}
	s.active.Store(now.UnixMilli())
	s.queuing.Store(-1)
	s.leave()
	s.id = d.ids.Add(1)
	d.mu.Lock()
	d.sessions[s.id] = s
	d.mu.Unlock()
	d.meters.connections.Add(1)
	return s
}

// end takes the session from the door.
func (s *session) end() {
	s.d.mu.Lock()
	delete(s.d.sessions, s.id)
	s.d.mu.Unlock()
	s.d.buffered.Add(-s.bytes.Swap(0))
}

// leave makes the client a stranger, if keys are needed.
func (s *session) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.db, s.user, s.index, s.entered = s.d.db, userDefault, 0, !s.d.options.Keys.Required()
	s.parser.known, s.resp3, s.protocol = s.entered, false, 2
}

// discard ends a transaction.
func (s *session) discard() {
	s.multi, s.dirty, s.queue, s.queued, s.watched = false, false, nil, 0, nil
	s.queuing.Store(-1)
}

// account tells the door how much memory the session holds beyond what every
// connection may keep, and how much of it is unsent. It is called when the session has nothing more to do for now.
func (s *session) account(at time.Time) {
	now := large(cap(s.in)) + large(cap(s.out)) + large(16*cap(s.parser.spans)) + int64(s.queued)
	if was := s.bytes.Swap(now); was != now {
		s.d.buffered.Add(now - was)
	}
	s.waiting.Store(int64(len(s.out)))
	s.active.Store(at.UnixMilli())
	if s.calls > 0 {
		s.d.meters.commands.Add(s.calls)
		s.calls = 0
	}
}

// sent takes n bytes from the replies, and lets go of a large buffer that is
// empty.
func (s *session) sent(n int) {
	if n < len(s.out) {
		s.out = s.out[:copy(s.out, s.out[n:])]
		return
	}
	s.out = keep(s.out)
}

// keep returns an empty buffer: the same, unless it is large.
func keep(b []byte) []byte {
	if cap(b) > keptBytesMax {
		return nil
	}
	return b[:0]
}

// large returns what a buffer holds beyond that.
func large(bytes int) int64 { return int64(max(bytes-keptBytesMax, 0)) }

// keptBytesMax is the largest buffer that an idle connection keeps.
const keptBytesMax = 4 << 10
