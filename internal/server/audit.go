package server

import (
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/quipudb/quipu/internal/access"
)

// auditMax is how many acts a server remembers. The log has all.
const auditMax = 1000

// An Act is something that an administrator did, or tried to.
type Act struct {
	At      time.Time `json:"at"`
	Who     string    `json:"who"`
	Kind    string    `json:"kind"`             // by what it is known who that was
	Key     string    `json:"key_id,omitempty"` // of a key of the store
	Door    string    `json:"door"`
	Remote  string    `json:"remote"`
	Act     string    `json:"act"`              // the operation, as its door calls it
	Target  string    `json:"target,omitempty"` // what it was about
	Outcome string    `json:"outcome"`          // "done", "denied", or why it failed
}

// A trail is the last acts.
type trail struct {
	mu   sync.Mutex // guards the fields below
	acts []Act      // a ring, once it is full
	next int
}

// Audit writes down what an administrator did.
func (g *Gate) Audit(who *access.Principal, from Caller, a Act) {
	a.At, a.Door, a.Remote = time.Now().UTC(), from.Door, from.Addr
	a.Who, a.Kind, a.Key = who.Name, who.Kind.String(), who.ID
	g.o.Audit.Info("audit", slog.String("who", a.Who), slog.String("kind", a.Kind), slog.String("key_id", a.Key), slog.String("door", a.Door),
		slog.String("remote", a.Remote), slog.String("act", a.Act), slog.String("target", a.Target), slog.String("outcome", a.Outcome))
	t := &g.audit
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.acts) < auditMax {
		t.acts = append(t.acts, a)
		return
	}
	t.acts[t.next] = a
	t.next = (t.next + 1) % auditMax
}

// Acts returns the last acts that this server remembers, the latest first.
func (g *Gate) Acts(limit int) []Act {
	t := &g.audit
	t.mu.Lock()
	defer t.mu.Unlock()
	n := min(limit, len(t.acts))
	acts := make([]Act, n)
	for i := range acts {
		acts[i] = t.acts[(t.next+len(t.acts)-1-i)%len(t.acts)]
	}
	return acts
}

// Clip returns the beginning of what a caller named, for a line of the audit log.
func Clip(s string) string {
	const most = 256
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
