package resp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quipudb/quipu/internal/access"
	"github.com/quipudb/quipu/internal/server"
)

// Redis's words for what is not granted.
const (
	errNoKeys    = wireError("NOPERM No permissions to access a key")
	errNoChannel = wireError("NOPERM No permissions to access a channel")
	errEnded     = wireError("NOAUTH Authentication required: what this connection has shown was revoked, or has expired.")
)

// loginTimeout bounds the verifying of a token, which may have to fetch the issuer's keys.
const loginTimeout = 5 * time.Second

// handshakeTimeout bounds a TLS handshake.
const handshakeTimeout = 10 * time.Second

// become has a session be a principal's, in a namespace. Without one it is a stranger.
func (s *session) become(who *access.Principal, namespace string) {
	s.checked, s.picky = false, false
	if who == nil {
		s.view = access.View{}
		return
	}
	s.view = who.In(namespace)
	everything := access.Need{Scope: access.OnServer, Grants: access.All}
	s.checked = !s.view.Freely(everything) || who.Spent != nil
	s.picky = who.Spent != nil
	for i := range who.Rules {
		s.picky = s.picky || who.Rules[i].Prefix != ""
	}
}

// ended reports whether the session's principal may not be used any more.
func (s *session) ended() bool {
	p := s.view.Principal
	if p == nil {
		return false
	}
	now := int64(0)
	if p.UntilMS != 0 {
		now = time.Now().UnixMilli()
	}
	return p.Ended(now)
}

// expel makes a stranger of a session whose principal has ended.
func (s *session) expel() {
	s.discard()
	s.unfollow()
	s.setSubscribed(false)
	s.d.hub.leave(s)
	s.leave()
}

// expelEnded closes the connections whose principals have ended, also those that only listen.
func (d *Door) expelEnded() {
	for _, s := range d.all() {
		if p := s.principal(); p != nil && p.Ended(time.Now().UnixMilli()) {
			s.hang()
		}
	}
}

// principal returns who the session is of, to any goroutine.
func (s *session) principal() *access.Principal {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.who
}

// login finds out who shows a key. It returns the namespace to work in, which is the user, or
// if none is named the one of the key.
func (s *session) login(user, key string) (who *access.Principal, namespace string, err error) {
	gate := s.d.gate
	if gate.Open() {
		return gate.Anyone(), user, nil
	}
	ctx, cancel := context.WithTimeout(s.d.ctx, loginTimeout)
	defer cancel()
	who, err = gate.Enter(ctx, s.caller(), key)
	if many, ok := errors.AsType[*server.TooManyError](err); ok {
		return nil, "", wireError("ERR " + many.Error())
	}
	if err != nil {
		s.d.meters.strangers.Add(1)
		return nil, "", errWrongPass
	}
	if namespace = user; user == userDefault {
		namespace = who.Home(userDefault)
	}
	return who, namespace, s.mayUse(who, namespace)
}

// mayUse returns why a principal can't work in a namespace.
func (s *session) mayUse(who *access.Principal, namespace string) error {
	if who.Some(namespace) == 0 {
		return wireError(fmt.Sprintf("NOPERM %s is granted nothing in namespace %.80q: name one of its namespaces as the user", who.Name, namespace))
	}
	return nil
}

func (s *session) caller() server.Caller { return server.Caller{Door: "resp", Addr: s.addr} }

// enterByCertificate lets in whoever holds a certificate that is granted something.
func (s *session) enterByCertificate(c *tls.Conn) error {
	ctx, cancel := context.WithTimeout(s.d.ctx, handshakeTimeout)
	defer cancel()
	if err := c.HandshakeContext(ctx); err != nil {
		return err
	}
	state := c.ConnectionState()
	who := s.d.gate.Certificate(&state)
	if who == nil {
		return nil
	}
	return s.enterAs(who, who.Home(userDefault))
}

// vet returns why the session may not execute a command that it has sent. A command that is
// tried again, because it had to wait, costs its quota and is written down once.
func (s *session) vet(c *command, args [][]byte) (err error) {
	again := s.seen
	s.seen = true
	if s.checked { // or it may do everything
		if !again {
			err = s.spend(c, args)
		}
		if err == nil {
			err = s.permit(c, args)
		}
	}
	if !again && c.need.Audited() {
		s.note(c, args, err)
	}
	return err
}

// permit returns why the session may not execute a command, whoever sends it: a connection, a
// transaction when it is gathered, or a script.
func (s *session) permit(c *command, args [][]byte) error {
	need := c.need
	if c.name == "SET" && setReads(args) {
		need.Grants |= access.Read
	}
	view, denied := s.view, errNoKeys
	if c.group == "pubsub" { // Channels are the user's, whatever database is selected.
		view, denied = s.view.Principal.In(s.user), errNoChannel
	}
	if view.Freely(need) { // Fast path.
		return nil
	}
	names, err := s.namesIn(c, args)
	if err != nil {
		return err
	}
	if c.name == "SUBSCRIBE" { // What is told there is what the session has read.
		if names = slices.DeleteFunc(names, func(name []byte) bool { return string(name) == invalidateChannel }); len(names) == 0 {
			return nil
		}
	}
	if len(names) > 0 && view.Principal.Some(view.Namespace)&need.Grants != 0 {
		for _, name := range names {
			if !view.MayName(need, textOf(name)) {
				_ = s.d.gate.Denied(&view, need)
				return denied
			}
		}
		return nil
	}
	_ = s.d.gate.Denied(&view, need)
	return wireError("NOPERM User " + s.whoami() + " has no permissions to run the '" + c.lower + "' command")
}

// permitInScript returns the error of a command that a script of the session may not execute: what
// it calls is looked at as if the session had sent it.
func (s *session) permitInScript(args [][]byte) string {
	if !s.checked { // Fast path.
		return ""
	}
	c, err := s.d.commands.find(args, nil)
	if err == nil {
		if err := s.spend(c, args); err != nil {
			return errorText(err)
		}
		err = s.permit(c, args)
	}
	if err == nil {
		return ""
	}
	return "NOPERM ACL failure in script: " + strings.TrimPrefix(errorText(err), "NOPERM ")
}

// spend takes a command from the quota of the session's principal.
func (s *session) spend(c *command, args [][]byte) error {
	if s.view.Principal.Spent == nil || c.need.Open() {
		return nil
	}
	cost := access.Cost{Requests: 1, Bytes: int64(sizeOf(args))}
	if c.need.Changes() {
		cost.Writes = int64(max(len(c.keys.positions(args)), 1))
	}
	if err := s.d.gate.Spend(s.view.Principal, cost); err != nil {
		if e, ok := errors.AsType[*access.ExceededError](err); ok {
			s.rest = max(s.rest, time.Duration(e.RestUS)*time.Microsecond)
		}
		return wireError("ERR quota exceeded: " + err.Error())
	}
	return nil
}

// setReads reports whether a SET returns what was there before.
func setReads(args [][]byte) bool {
	for _, a := range args[3:] {
		if is(a, "GET") {
			return true
		}
	}
	return false
}

// namesIn returns the keys that a command names, or the prefix of those that it goes through.
func (s *session) namesIn(c *command, args [][]byte) (names [][]byte, err error) {
	switch c.name {
	case "KEYS":
		return [][]byte{[]byte(literalPrefix(string(args[1])))}, nil
	case "SCAN":
		prefix := ""
		for i := 2; i+1 < len(args); i += 2 {
			if is(args[i], "MATCH") { // the last one counts
				prefix = literalPrefix(string(args[i+1]))
			}
		}
		return [][]byte{[]byte(prefix)}, nil
	case "Q.TOP": // of a counter, or else of all counters of a pattern
		for i := 2; i+1 < len(args); i += 2 {
			if is(args[i], "KEY") {
				names = append(names, args[i+1])
			}
		}
		return names, nil
	case "CMS.MERGE":
		names = append(names, args[1])
		if n, ok := parseInt(args[2]); ok {
			names = append(names, args[3:3+min(max(n, 0), int64(len(args)-3))]...)
		}
		return names, nil
	case "Q.COMMIT", "Q.RELEASE", "Q.EXTEND", "Q.RESERVATION":
		key, err := s.db.Port().ReservedKey(string(args[1]))
		return [][]byte{[]byte(key)}, err
	case "Q.ALLOW", "Q.PEEK", "Q.FORGET", "PUBLISH": // the name of a limit, or of a channel
		return args[1:2], nil
	case "SUBSCRIBE":
		return slices.Clone(args[1:]), nil
	case "PUBSUB|NUMSUB":
		return args[2:], nil
	case "PSUBSCRIBE":
		for _, pattern := range args[1:] {
			names = append(names, []byte(literalPrefix(string(pattern))))
		}
		return names, nil
	case "PUBSUB|CHANNELS":
		prefix := ""
		if len(args) > 2 {
			prefix = literalPrefix(string(args[2]))
		}
		return [][]byte{[]byte(prefix)}, nil
	}
	for _, at := range c.keys.positions(args) {
		names = append(names, args[at])
	}
	return names, nil
}

// mayHear reports whether the session may be told of changes to keys with a prefix.
func (s *session) mayHear(prefix string) bool {
	return !s.checked || s.view.MayName(access.Need{Scope: access.OnPrefix, Grants: access.Read}, prefix)
}

// note writes an administrator's command down.
func (s *session) note(c *command, args [][]byte, err error) {
	act := server.Act{Act: c.name, Target: s.view.Namespace, Outcome: "done"}
	if c.name == "CONFIG|SET" && len(args) > 2 {
		act.Target = server.Clip(clip(args[2], 128))
	}
	if err != nil {
		act.Outcome = "denied"
	}
	s.d.gate.Audit(s.view.Principal, s.caller(), act)
}

// whoami returns the name of who the session is of: that of the principal, or where everyone
// with a key may do everything, the user that was named.
func (s *session) whoami() string {
	if p := s.view.Principal; p != nil && p.Kind != access.Anyone && p.Kind != access.Configured {
		return p.Name
	}
	return s.user
}

// rulesOf returns what a principal may do, as ACL LIST has it.
func rulesOf(p *access.Principal) string {
	var b strings.Builder
	for _, r := range p.Rules {
		b.WriteString(" (" + r.String() + ")")
	}
	return b.String()
}

// checkDatabase returns why the session may not select a database.
func (s *session) checkDatabase(namespace string) error {
	if s.checked && s.view.Principal.Some(namespace) == 0 {
		return wireError("NOPERM User " + s.whoami() + " has no permissions in this database")
	}
	return nil
}
