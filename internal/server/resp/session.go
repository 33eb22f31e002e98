package resp

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/access"
	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/store"
)

// The limits of what a connection may have waiting.
const (
	// outBytesSoft is how much unsent reply stops a session from executing more.
	outBytesSoft = 256 << 10
	// outBytesMax is how much unsent reply there may be: what stops a session, and
	// the longest reply after it.
	outBytesMax = outBytesSoft + 16<<20
	// inBytesMax is the longest command.
	inBytesMax = 8 << 20
)

// A session is the state of one connection, whatever carries it. One goroutine
// at a time has it: the one that carries the connection, or, while job is set,
// the one that runs the job.
type session struct {
	encoder // replies not sent yet
	parser  parser

	d  *Door
	db *quipu.DB // in the session's namespace

	view    access.View   // who the session is of, there
	checked bool          // not everything is granted, or there is a quota: see vet
	picky   bool          // it depends on the key, or there is a quota
	rest    time.Duration // for how long nothing is executed, because much was refused: see access.ExceededError
	seen    bool          // the command was looked at already, and is tried again: see vet

	in []byte // what came and was not executed yet

	pending int                   // runs of the session in cycles that are not finished
	job     func(context.Context) // what must be waited for before anything else
	joint   []queued              // the job's commands, if it executes some on one snapshot and takes more
	slots   chan struct{}         // where the job takes a turn
	turn    chan struct{}         // where it has taken one
	jobs    chan struct{}         // where those take it who wait for the store; nil if they need none
	kept    int                   // bytes that the job holds of its command
	refused bool                  // the next command waits for those before
	held    int                   // cycles that the session must wait for before it executes more
	behind  bool                  // a run of the cycle that is being finished waits
	conn    *conn                 // in a loop
	owed    int                   // bytes of replies that wait in cycles
	guarded []qAdd                // Q.ADDs that follow each other, and take a receipt each
	calls   uint64                // commands executed, not yet metered
	strange int                   // commands executed before the client said who it is

	came    time.Duration // when what is executed came, by the door's clock
	answers []answer      // to commands since, whose replies are those in out and the job's

	multi    bool // between MULTI and EXEC
	dirty    bool // a command of the transaction was refused
	long     bool // it takes long to execute: a goroutine does
	queue    []queued
	queued   int               // bytes in queue
	watched  []store.Condition // with versions
	watching int               // bytes in watched
	queuing  atomic.Int32      // how many commands are in queue; -1 if multi is not set

	follow     follow      // what it tracks
	subscribed bool        // to invalidations
	listening  listening   // what it listens to, and what it was told there
	news       news        // that it is to be told
	heard      atomic.Bool // there is some
	nudge      func()      // has the transport tell it, from any goroutine

	muted   bool // CLIENT REPLY OFF
	skip    bool // CLIENT REPLY SKIP: the next reply is dropped
	drop    bool // the reply that is being made is dropped
	broken  bool // a reply was left out: none may follow
	closing bool // nothing more is executed: close when out is sent

	id      int64
	addr    string // of the client
	local   string // of the door
	since   time.Time
	hang    func()        // ends the connection, from any goroutine
	part    func()        // closes gone
	gone    chan struct{} // closed when the connection is, or is about to be
	place   *server.Place
	active  atomic.Int64
	last    atomic.Pointer[command]
	bytes   atomic.Int64 // that the session holds, as the door knows it: see account
	waiting atomic.Int64 // bytes in out

	mu       sync.Mutex        // guards what CLIENT LIST of others reads
	who      *access.Principal // nil is a stranger
	name     string
	library  [2]string // name and version
	user     string
	index    int // of the database that was selected
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
func (d *Door) open(addr, local string, hang, nudge func()) *session {
	now := time.Now()
	s := &session{d: d, db: d.db, addr: addr, local: local, since: now, gone: make(chan struct{}), nudge: nudge}
	s.part = sync.OnceFunc(func() { close(s.gone) })
	s.hang = func() { s.part(); hang() }
	s.claim = s.claimMemory
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
	s.part()
	s.d.tracker.leave(s)
	s.d.hub.leave(s)
	s.d.mu.Lock()
	delete(s.d.sessions, s.id)
	s.d.mu.Unlock()
	s.d.buffered.Add(-s.bytes.Swap(0))
}

// leave makes the client one who has shown nothing.
func (s *session) leave() {
	who := s.d.gate.Anyone()
	s.become(who, userDefault)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.db, s.who, s.user, s.index = s.d.db, who, userDefault, 0
	s.parser.known, s.resp3, s.protocol = who != nil, false, 2
}

// discard ends a transaction.
func (s *session) discard() {
	s.multi, s.dirty, s.long, s.queue, s.queued = false, false, false, nil, 0
	s.queuing.Store(-1)
	s.unwatch()
}

// unwatch forgets what was watched.
func (s *session) unwatch() { s.watched, s.watching = nil, 0 }

// account tells the door how much memory the session holds beyond what every
// connection may keep, and how much of it is unsent. It is called when the session
// has nothing more to do for now; meanwhile claimMemory adds what a reply takes.
func (s *session) account(at time.Time) {
	now := large(cap(s.in)) + large(cap(s.out)) + large(16*cap(s.parser.spans)) + large(s.kept) + large(s.owed) +
		int64(s.queued+s.watching+len(s.name)+len(s.library[0])+len(s.library[1])) + s.listening.bytes.Load() + s.listening.mailBytes.Load()
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

// claimMemory takes memory for the reply that is being made, from the session's
// share and the door's. If all hold too much, the one that holds most makes room; and
// if that is this one, there is none. A long reply lets others have a turn here, and
// is made in pieces that way.
func (s *session) claimMemory(bytes int64) error {
	s.bytes.Add(bytes)
	s.d.buffered.Add(bytes)
	if !s.d.makeRoom(s) {
		s.bytes.Add(-bytes)
		s.d.buffered.Add(-bytes)
		return errReplyMemory
	}
	return s.pass()
}

// pass lets others have a turn at something costly, if this session has one, and
// waits for the next. If the connection is closed meanwhile nobody will read the
// reply, and it returns an error.
func (s *session) pass() error {
	slots := s.turn
	if slots == nil || slots == s.jobs {
		return nil
	}
	s.leaveTurn()
	runtime.Gosched() // the loop too may wait for a processor
	if !s.takeTurn(slots) {
		return errReplyMemory
	}
	return nil
}

// takeTurn waits for a place among those who may do something costly at the same
// time, and reports whether there is one: not if the connection is closed first.
func (s *session) takeTurn(slots chan struct{}) bool {
	if slots == nil {
		return true
	}
	select {
	case slots <- struct{}{}:
		s.turn = slots
		return true
	case <-s.gone:
		return false
	}
}

// leaveTurn gives the place to another.
func (s *session) leaveTurn() {
	if s.turn != nil {
		<-s.turn
		s.turn = nil
	}
}

// overflow ends the session after the replies before start: those that follow do
// not fit into memory, and can't be taken back, because what they tell has
// happened. So does Redis at its limit of output.
func (s *session) overflow(start int) {
	s.d.meters.overflowed.Add(1)
	s.d.options.Logger.Warn("connection closed: its replies did not fit into memory", "client", s.addr, "error", s.fault)
	s.breakOff(start)
}

// breakOff ends the session after the replies before start. Those that follow in other
// runs would be taken for others, and are not sent either.
func (s *session) breakOff(start int) {
	s.cut(start)
	s.broken = true
	s.close()
}

// close has nothing more executed, and lets go of what was to be.
func (s *session) close() {
	s.closing = true
	s.discard()
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

// ConnBytesMax is about how much memory a connection takes beside what counts
// for Options.Memory: its session, and the buffers that it may keep.
const ConnBytesMax = 4<<10 + 3*keptBytesMax

// keptBytesMax is the largest buffer that an idle connection keeps.
const keptBytesMax = 4 << 10
