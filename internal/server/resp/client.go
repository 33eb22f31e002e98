package resp

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/access"
	"github.com/quipudb/quipu/store"
)

// userDefault is the user of who names none. It works in the namespace of the
// same name.
const userDefault = "default"

// Redis's words.
const (
	errWrongPass = wireError("WRONGPASS invalid username-password pair or user is disabled.")
	errNoPass    = wireError("ERR AUTH <password> called without any password configured for the default user. " +
		"Are you sure your configuration is correct?")
	errHelloAuth = wireError("NOAUTH HELLO must be called with the client already authenticated, otherwise the " +
		"HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time")
)

func ping(s *session, args [][]byte) error {
	if s.listens() && !s.resp3 && len(args) <= 2 { // It takes what it reads for a message.
		s.array(2)
		s.text("pong")
		s.bulk(slices.Concat(args[1:]...))
		return nil
	}
	switch len(args) {
	case 1:
		s.simple("PONG")
	case 2:
		s.bulk(args[1])
	default:
		return wireError("ERR wrong number of arguments for 'ping' command")
	}
	return nil
}

func echo(s *session, args [][]byte) error {
	s.bulk(args[1])
	return nil
}

func quit(s *session, _ [][]byte) error {
	s.ok()
	s.closing = true
	return nil
}

// reset makes the session what it was when it began.
func resetSession(s *session, _ [][]byte) error {
	s.discard()
	s.muted, s.skip = false, false
	s.unfollow()
	s.setSubscribed(false)
	s.d.hub.leave(s)
	s.leave()
	s.mu.Lock()
	s.name, s.noEvict, s.noTouch = "", false, false
	s.mu.Unlock()
	s.simple("RESET")
	return nil
}

func auth(s *session, args [][]byte) error {
	switch {
	case len(args) > 3:
		return errSyntax
	case len(args) == 2 && s.d.gate.Open():
		return errNoPass
	case len(args) == 2:
		return s.enterAndReply(userDefault, string(args[1]))
	}
	return s.enterAndReply(string(args[1]), string(args[2]))
}

func (s *session) enterAndReply(user, key string) error {
	err := s.enter(user, key)
	if err == nil {
		s.ok()
	}
	return err
}

// enter lets a user in, whose name is the namespace to work in.
func (s *session) enter(user, key string) error {
	who, namespace, err := s.login(user, key)
	if err != nil {
		return err
	}
	if store.CheckNamespace(namespace) != nil {
		return errWrongPass
	}
	return s.enterAs(who, namespace)
}

// enterAs has the session be a principal's, in the database that it has selected of a user.
func (s *session) enterAs(who *access.Principal, user string) error {
	if s.place.Used(who) {
		if err := s.d.gate.Spend(who, access.Cost{Connections: 1}); err != nil {
			return wireError("ERR quota exceeded: " + err.Error())
		}
	}
	if err := s.use(who, user, s.index); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parser.known, s.strange = true, 0
	s.unwatch() // they were of another namespace
	s.place.Known()
	return nil
}

// view returns the DB in a namespace, the same each time, so that sessions share
// their cycles.
func (d *Door) view(namespace string) *quipu.DB {
	if namespace == userDefault {
		return d.db
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	db := d.views[namespace]
	if db == nil {
		db = d.db.In(namespace)
		if len(d.views) < viewsMax {
			d.views[namespace] = db
		}
	}
	return db
}

// viewsMax is how many namespaces are remembered. In others sessions gather apart.
const viewsMax = 1000

func hello(s *session, args [][]byte) error {
	protocol := 2
	if s.resp3 {
		protocol = 3
	}
	rest := args[1:]
	if len(rest) > 0 {
		n, ok := parseInt(rest[0])
		if !ok {
			return wireError("ERR Protocol version is not an integer or out of range")
		}
		if n < 2 || n > 3 {
			return wireError("NOPROTO unsupported protocol version")
		}
		protocol, rest = int(n), rest[1:]
	}
	var name *string
	for len(rest) > 0 {
		switch {
		case is(rest[0], "AUTH") && len(rest) > 2:
			if err := s.enter(string(rest[1]), string(rest[2])); err != nil {
				return err
			}
			rest = rest[3:]
		case is(rest[0], "SETNAME") && len(rest) > 1:
			if err := checkName("Client names", rest[1]); err != nil {
				return err
			}
			n := string(rest[1])
			name = &n
			rest = rest[2:]
		default:
			return wireError("ERR Syntax error in HELLO option '" + clip(rest[0], 128) + "'")
		}
	}
	if !s.parser.known {
		return errHelloAuth
	}
	s.mu.Lock()
	if name != nil {
		s.name = *name
	}
	s.resp3, s.protocol = protocol == 3, protocol
	s.mu.Unlock()
	s.fields(7)
	s.text("server")
	s.text("redis")
	s.text("version")
	s.text(redisVersion)
	s.text("proto")
	s.integer(int64(protocol))
	s.text("id")
	s.integer(s.id)
	s.text("mode")
	s.text("standalone")
	s.text("role")
	s.text("master")
	s.text("modules")
	s.array(0)
	return nil
}

// nameBytesMax bounds what a client calls itself, its library and its version: every
// connection may have them, and CLIENT LIST tells them all.
const nameBytesMax = 256

// checkName returns why a name can't be in a line of CLIENT LIST.
func checkName(what string, name []byte) error {
	for _, c := range name {
		if c < '!' || c > '~' {
			return wireError("ERR " + what + " cannot contain spaces, newlines or special characters.")
		}
	}
	if len(name) > nameBytesMax {
		return wireError("ERR " + what + " can have at most " + itoa(nameBytesMax) + " bytes.")
	}
	return nil
}

func clientID(s *session, _ [][]byte) error {
	s.integer(s.id)
	return nil
}

func clientInfo(s *session, args [][]byte) error {
	s.verbatim(s.describe(time.Now(), sizeOf(args)) + "\n")
	return nil
}

func clientGetName(s *session, _ [][]byte) error {
	s.mu.Lock()
	name := s.name
	s.mu.Unlock()
	if name == "" {
		s.null()
	} else {
		s.text(name)
	}
	return nil
}

func clientSetName(s *session, args [][]byte) error {
	if err := checkName("Client names", args[2]); err != nil {
		return err
	}
	s.mu.Lock()
	s.name = string(args[2])
	s.mu.Unlock()
	s.ok()
	return nil
}

func clientSetInfo(s *session, args [][]byte) error {
	option := strings.ToLower(clip(args[2], 128))
	i := slices.Index([]string{"lib-name", "lib-ver"}, option)
	if i < 0 {
		return wireError("ERR Unrecognized option '" + clip(args[2], 128) + "'")
	}
	if err := checkName(option, args[3]); err != nil {
		return err
	}
	s.mu.Lock()
	s.library[i] = string(args[3])
	s.mu.Unlock()
	s.ok()
	return nil
}

func clientSwitch(set func(*session, bool)) func(*session, [][]byte) error {
	return func(s *session, args [][]byte) error {
		on := is(args[2], "ON")
		if !on && !is(args[2], "OFF") {
			return errSyntax
		}
		s.mu.Lock()
		set(s, on)
		s.mu.Unlock()
		s.ok()
		return nil
	}
}

// clientMaintenance takes the wish for news of maintenance, of which there are
// none.
func clientMaintenance(s *session, args [][]byte) error {
	if !is(args[2], "ON") && !is(args[2], "OFF") {
		return errSyntax
	}
	s.ok()
	return nil
}

func clientReply(s *session, args [][]byte) error {
	switch {
	case is(args[2], "ON"):
		s.muted, s.drop = false, false
		s.ok()
	case is(args[2], "OFF"):
		s.muted = true
	case is(args[2], "SKIP"):
		s.skip = !s.muted
	default:
		return errSyntax
	}
	return nil
}

// all returns the door's sessions in the order of their ids.
func (d *Door) all() []*session {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := make([]*session, 0, len(d.sessions))
	for _, s := range d.sessions {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b *session) int { return cmp.Compare(a.id, b.id) })
	return list
}

func clientList(s *session, args [][]byte) error {
	var ids map[int64]bool
	all, kind := true, kindAny
	switch {
	case len(args) == 2:
	case len(args) == 4 && is(args[2], "TYPE"):
		var err error
		if kind, err = clientKind(args[3]); err != nil {
			return err
		}
	case len(args) > 3 && is(args[2], "ID"):
		all, ids = false, map[int64]bool{}
		for _, a := range args[3:] {
			id, ok := parseInt(a)
			if !ok {
				return wireError("ERR Invalid client ID")
			}
			ids[id] = true
		}
	default:
		return errSyntax
	}
	start, now := len(s.out), time.Now()
	for _, o := range s.d.all() {
		if s.full() {
			break
		}
		if (all || ids[o.id]) && kind.matches(o) {
			size := 0
			if o == s {
				size = sizeOf(args)
			}
			s.chars(o.describe(now, size) + "\n")
		}
	}
	s.frameText(start)
	return nil
}

// A kindOfClient is what CLIENT LIST and CLIENT KILL call a type of clients.
type kindOfClient int

const (
	kindAny kindOfClient = iota
	kindNormal
	kindPubSub
	kindNone // nobody here is
)

func clientKind(kind []byte) (kindOfClient, error) {
	switch {
	case is(kind, "NORMAL"):
		return kindNormal, nil
	case is(kind, "PUBSUB"):
		return kindPubSub, nil
	case is(kind, "MASTER"), is(kind, "REPLICA"), is(kind, "SLAVE"):
		return kindNone, nil
	}
	return kindNone, wireError("ERR Unknown client type '" + clip(kind, 128) + "'")
}

// matches reports whether a session is of a kind, to any goroutine.
func (k kindOfClient) matches(s *session) bool {
	s.mu.Lock()
	listens := s.listens()
	s.mu.Unlock()
	return k == kindAny || k == kindNormal && !listens || k == kindPubSub && listens
}

// sizeOf returns how many bytes a command is.
func sizeOf(args [][]byte) int {
	line := func(n int) int { return len("*\r\n") + len(strconv.Itoa(n)) }
	size := line(len(args))
	for _, a := range args {
		size += line(len(a)) + len(a) + len("\r\n")
	}
	return size
}

// describe returns the session's line in CLIENT LIST, with the size of the command that it
// executes. It is called from other sessions too, to which it executes none.
func (s *session) describe(now time.Time, size int) string {
	tracks, redirect := s.tracks()
	s.mu.Lock()
	defer s.mu.Unlock()
	last := "NULL"
	if c := s.last.Load(); c != nil {
		last = c.lower
	}
	flag, sub, psub := tracks, s.listening.nChannels.Load(), s.listening.nPatterns.Load()
	if s.subscribed {
		sub++
	}
	if sub+psub > 0 {
		flag = "P" + flag
	}
	queued := s.queuing.Load()
	if queued >= 0 {
		flag += "x"
	}
	if s.noEvict {
		flag += "e"
	}
	if s.noTouch {
		flag += "T"
	}
	if flag == "" {
		flag = "N"
	}
	idle := max(now.UnixMilli()-s.active.Load(), 0) / 1000
	return fmt.Sprintf("id=%d addr=%s laddr=%s fd=0 name=%s age=%d idle=%d flags=%s db=%d sub=%d psub=%d ssub=0 multi=%d "+
		"qbuf=%d qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=%d oll=0 omem=0 tot-mem=%d events=r cmd=%s user=%s redir=%d resp=%d lib-name=%s lib-ver=%s",
		s.id, s.addr, s.local, s.name, int64(now.Sub(s.since)/time.Second), idle, flag, s.index, sub, psub, queued,
		size, s.waiting.Load(), s.bytes.Load(), last, s.user, redirect, s.protocol, s.library[0], s.library[1])
}

// killFilter says which sessions CLIENT KILL means.
type killFilter struct {
	id          int64
	addr, local string
	user        string
	age         int64
	kind        kindOfClient
	self        bool // the caller too
}

func clientKill(s *session, args [][]byte) error {
	f := killFilter{age: -1}
	old := len(args) == 3
	if old { // the form of old: an address
		f.addr, f.self = string(args[2]), true
	} else if err := f.parse(args[2:]); err != nil {
		return err
	}
	n, all := 0, s.d.all()
	if f.user != "" && f.user != userDefault && !slices.ContainsFunc(all, func(o *session) bool { return (&killFilter{user: f.user, age: -1}).matches(o) }) {
		return wireError("ERR No such user '" + f.user + "'") // A user is who is connected as one.
	}
	for _, o := range all {
		if !f.matches(o) || o == s && !f.self {
			continue
		}
		n++
		if o == s {
			s.closing = true // after the reply
		} else {
			o.hang()
		}
	}
	switch {
	case !old:
		s.integer(int64(n))
	case n == 0:
		return wireError("ERR No such client")
	default:
		s.ok()
	}
	return nil
}

func (f *killFilter) parse(args [][]byte) error {
	for i := 0; i < len(args); i += 2 {
		if i+1 == len(args) {
			return errSyntax
		}
		value := string(args[i+1])
		number, ok := parseInt(args[i+1])
		switch {
		case is(args[i], "ID"):
			if !ok || number < 1 {
				return wireError("ERR client-id should be greater than 0")
			}
			f.id = number
		case is(args[i], "ADDR"):
			f.addr = value
		case is(args[i], "LADDR"):
			f.local = value
		case is(args[i], "USER"):
			if store.CheckNamespace(value) != nil {
				return wireError("ERR No such user '" + clip(args[i+1], 128) + "'")
			}
			f.user = value
		case is(args[i], "MAXAGE") && ok:
			f.age = number
		case is(args[i], "TYPE"):
			var err error
			if f.kind, err = clientKind(args[i+1]); err != nil {
				return err
			}
		case is(args[i], "SKIPME") && (is(args[i+1], "YES") || is(args[i+1], "NO")):
			f.self = is(args[i+1], "NO")
		default:
			return errSyntax
		}
	}
	return nil
}

func (f *killFilter) matches(s *session) bool {
	s.mu.Lock()
	user := s.user
	s.mu.Unlock()
	return f.kind.matches(s) &&
		(f.id == 0 || f.id == s.id) && (f.addr == "" || f.addr == s.addr) && (f.local == "" || f.local == s.local) &&
		(f.user == "" || f.user == user) && (f.age < 0 || time.Since(s.since) >= time.Duration(f.age)*time.Second)
}
