package server

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/quipudb/quipu/internal/access"
	"github.com/quipudb/quipu/internal/jwks"
	"github.com/quipudb/quipu/internal/jwt"
	"github.com/quipudb/quipu/internal/keyring"
)

// tokensMax is how many tokens are remembered that were verified, and spendersMax of how many
// holders of tokens and certificates it is known what they have spent.
const (
	tokensMax   = 10_000
	spendersMax = 10_000
)

// ErrCredentials is returned for a credential that is nobody's. It does not say why: that is
// for the log.
var ErrCredentials = errors.New("the credentials are wrong, were revoked or have expired")

// GateOptions say who may come in. Without any of it everyone may do everything.
type GateOptions struct {
	Keys      Keys          // that may do everything
	Ring      *keyring.Ring // the keys of the store; nil if there are none
	Tokens    *jwks.Source  // verifies tokens; nil if none are taken
	Check     jwt.Check     // of tokens; its time is not used
	TokenMap  []access.Mapping
	CertMap   []access.Mapping
	Anonymous []access.Rule // of whoever shows nothing
	Quota     access.Quota  // of each principal that has none of its own and is no server key
	Required  bool          // nobody may do anything without, even while no key is known

	Logger *slog.Logger // nil for slog.Default()
	Audit  *slog.Logger // takes what administrators do; nil for Logger
}

// A Gate knows who callers are: by the key, token or certificate that they show. It is safe
// for concurrent use.
type Gate struct {
	o         GateOptions
	roots     []*access.Principal // of each of the keys
	failures  failures
	audit     trail
	logins    logins
	anyone    atomic.Pointer[access.Principal] // nil if whoever shows nothing is nobody
	open      atomic.Bool
	wrong     atomic.Uint64
	limited   atomic.Uint64
	denied    atomic.Uint64
	overQuota atomic.Uint64

	mu       sync.Mutex // guards the fields below
	watchers []func()
	tokens   map[[sha256.Size]byte]verified
	spenders map[Holder]*access.Spending
}

// A verified token is one that was good by the keys of a generation.
type verified struct {
	who        *access.Principal
	generation uint64
}

// NewGate returns a gate.
func NewGate(o GateOptions) *Gate {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Audit == nil {
		o.Audit = o.Logger
	}
	g := &Gate{o: o, tokens: map[[sha256.Size]byte]verified{}, spenders: map[Holder]*access.Spending{}}
	for _, name := range o.Keys.names() {
		g.roots = append(g.roots, access.Everything(access.Configured, name))
	}
	g.settle()
	return g
}

// closed reports whether someone is known, so that all others are strangers.
func (g *Gate) closed() bool {
	return g.o.Required || g.o.Keys.Required() || g.o.Tokens != nil || len(g.o.CertMap) > 0 || len(g.o.Anonymous) > 0 ||
		g.o.Ring != nil && g.o.Ring.Any()
}

// settle finds out who whoever shows nothing is.
func (g *Gate) settle() {
	g.mu.Lock()
	defer g.mu.Unlock()
	was := g.anyone.Load()
	switch closed := g.closed(); {
	case !closed && was == nil:
		g.open.Store(true)
		g.anyone.Store(access.Everything(access.Anyone, access.Anyone.String()))
	case closed && (was == nil || g.open.Load()):
		g.open.Store(false)
		var p *access.Principal
		if len(g.o.Anonymous) > 0 {
			p = &access.Principal{Kind: access.Anyone, Name: access.Anyone.String(), Rules: g.o.Anonymous}
			if g.o.Quota != (access.Quota{}) {
				p.Quota, p.Spent = g.o.Quota, &access.Spending{}
			}
		}
		g.anyone.Store(p)
		if was != nil {
			was.End()
		}
	}
}

// Changed is called when the keys of the store have changed. It tells those who keep
// principals for longer than a call.
func (g *Gate) Changed() {
	g.settle()
	g.mu.Lock()
	watchers := g.watchers
	g.mu.Unlock()
	for _, f := range watchers {
		f()
	}
}

// OnChange has f be called when principals may have ended.
func (g *Gate) OnChange(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.watchers = append(slices.Clip(g.watchers), f)
}

// Open reports whether everyone may do everything: then nobody has to show anything.
func (g *Gate) Open() bool { return g.open.Load() }

// Anyone returns who whoever shows nothing is, or nil.
func (g *Gate) Anyone() *access.Principal { return g.anyone.Load() }

// Ring returns the keys of the store, or nil.
func (g *Gate) Ring() *keyring.Ring { return g.o.Ring }

// Administered reports whether someone administers the server who is known by no key of the
// store: a key that the server was started with.
func (g *Gate) Administered() bool { return g.o.Keys.Required() }

// A Caller is from where someone calls.
type Caller struct {
	Door string
	Addr string // HOST:PORT
}

// Enter returns who shows a key or a token.
func (g *Gate) Enter(ctx context.Context, from Caller, credential string) (*access.Principal, error) {
	now := time.Now()
	if g.o.Ring != nil { // Nobody guesses 256 bits: it is right, or not.
		if p := g.o.Ring.Find(credential); p != nil && !p.Ended(now.UnixMilli()) {
			return p, nil
		}
	}
	if jwt.Looks(credential) && g.o.Tokens != nil {
		if p := g.remembered(credential, now); p != nil {
			return p, nil
		}
	}
	if wait, limited := g.failures.blocked(from.Addr, now); limited {
		g.limited.Add(1)
		return nil, &TooManyError{After: wait}
	}
	if i := g.o.Keys.index(credential); i >= 0 {
		return g.roots[i], nil
	}
	why := errors.New("no such key")
	if g.o.Tokens != nil && jwt.Looks(credential) {
		p, err := g.token(ctx, credential, now)
		if err == nil {
			return p, nil
		}
		why = err
	}
	if credential == "" {
		why = errors.New("it is empty")
	}
	g.failures.note(from.Addr, now)
	g.wrong.Add(1)
	g.o.Logger.Warn("caller refused", "door", from.Door, "remote", from.Addr, "error", why)
	return nil, ErrCredentials
}

// remembered returns who a token is of that was verified with the present keys, or nil.
func (g *Gate) remembered(token string, now time.Time) *access.Principal {
	g.mu.Lock()
	defer g.mu.Unlock()
	v, ok := g.tokens[sha256.Sum256([]byte(token))]
	if !ok || v.generation != g.o.Tokens.Generation() || v.who.Ended(now.UnixMilli()) {
		return nil
	}
	return v.who
}

// token verifies a token.
func (g *Gate) token(ctx context.Context, token string, now time.Time) (*access.Principal, error) {
	generation := g.o.Tokens.Generation()
	check := g.o.Check
	check.Now = now
	claims, err := g.o.Tokens.Verify(ctx, token, check)
	if err != nil {
		return nil, fmt.Errorf("token: %w", err)
	}
	p := &access.Principal{
		Kind: access.Token, Name: nameOf("token", claims.Subject), Rules: access.RulesFor(g.o.TokenMap, claims.Values), UntilMS: claims.Expires.UnixMilli(),
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pay(p)
	if len(g.tokens) >= tokensMax {
		for sum, v := range g.tokens {
			if v.who.Ended(now.UnixMilli()) || len(g.tokens) >= tokensMax {
				delete(g.tokens, sum)
			}
		}
	}
	g.tokens[sha256.Sum256([]byte(token))] = verified{p, generation}
	return p, nil
}

// pay has a principal have the quota of everybody, together with all that have its name. The
// lock is held.
func (g *Gate) pay(p *access.Principal) {
	if g.o.Quota == (access.Quota{}) {
		return
	}
	key := HolderOf(p)
	s := g.spenders[key]
	if s == nil {
		if len(g.spenders) >= spendersMax { // What they have spent in the last second is forgotten.
			clear(g.spenders)
		}
		s = &access.Spending{}
		g.spenders[key] = s
	}
	p.Quota, p.Spent = g.o.Quota, s
}

// nameOf returns the name of a principal for logs: without what would break a line.
func nameOf(kind, name string) string {
	name = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == unicode.ReplacementChar {
			return '.'
		}
		return r
	}, name)
	if len(name) > access.NameBytesMax {
		name = strings.ToValidUTF8(name[:access.NameBytesMax], "")
	}
	return kind + ":" + name
}

// Certificate returns who the holder of a verified client certificate is, or nil if it is
// granted nothing or the connection has none.
func (g *Gate) Certificate(state *tls.ConnectionState) *access.Principal {
	if state == nil || len(state.VerifiedChains) == 0 || len(g.o.CertMap) == 0 {
		return nil
	}
	cert := state.PeerCertificates[0]
	fields := certificateFields(cert)
	rules := access.RulesFor(g.o.CertMap, func(field string) []string { return fields[strings.ToUpper(field)] })
	if len(rules) == 0 || !time.Now().Before(cert.NotAfter) {
		return nil
	}
	p := &access.Principal{Kind: access.Certificate, Name: nameOf("certificate", holderOf(fields)), Rules: rules, UntilMS: cert.NotAfter.UnixMilli()}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pay(p)
	return p
}

// Spend takes the cost of a call from its caller's quota, or returns an error that says what
// it would exceed.
func (g *Gate) Spend(p *access.Principal, c access.Cost) error {
	if p.Spent == nil { // Fast path.
		return nil
	}
	if e := p.Spent.Spend(p.Quota, c, time.Now().UnixMicro()); e != nil {
		g.overQuota.Add(1)
		return e
	}
	return nil
}

// Denied counts a call that its caller is not granted, and returns why in words. What it was
// about is named as its caller did.
func (g *Gate) Denied(v *access.View, n access.Need) string {
	g.denied.Add(1)
	grants := strings.ReplaceAll(n.Grants.String(), "+", " and ")
	if n.Any {
		grants = strings.ReplaceAll(n.Grants.String(), "+", " or ")
	}
	text := v.Principal.Name + " is not granted " + grants
	switch n.Scope {
	case access.OnKeys:
		text += " on this key of namespace " + quoted(v.Namespace)
	case access.OnPrefix:
		text += " on all keys with this prefix in namespace " + quoted(v.Namespace)
	case access.OnNamespace:
		text += " on all of namespace " + quoted(v.Namespace)
	case access.OnServer:
		text += " on all namespaces"
	default:
	}
	return text
}

func quoted(s string) string { return fmt.Sprintf("%q", s) }

// Meters calls f for each meter.
func (g *Gate) Meters(f func(name, help string, value float64)) {
	f("quipu_auth_failures_total", "Callers with a wrong key or token.", float64(g.wrong.Load()))
	f("quipu_auth_limited_total", "Callers that were refused unheard, because their address had failed too often.", float64(g.limited.Load()))
	f("quipu_auth_denied_total", "Calls that their callers were not granted.", float64(g.denied.Load()))
	f("quipu_auth_quota_refused_total", "Calls refused because of their caller's quota.", float64(g.overQuota.Load()))
	if g.o.Ring != nil {
		g.o.Ring.Meters(f)
	}
	g.o.Tokens.Meters(f)
}
