package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/access"
	"github.com/quipudb/quipu/internal/jwks"
	"github.com/quipudb/quipu/internal/jwt"
	"github.com/quipudb/quipu/internal/keyring"
	"github.com/quipudb/quipu/internal/server"
)

// accessFlags say who may come in, besides those with an --api-key.
type accessFlags struct {
	RequireAuth bool     `help:"Refuse callers without a key, token or certificate, even if the server has no keys yet."`
	Anonymous   []string `help:"Grant to callers without credentials, such as \"read:shop\". Everything else needs a key. Repeatable." placeholder:"GRANT" sep:"none"`

	TLSClientCA string   `name:"tls-client-ca" help:"Certificates of the issuers of client certificates (PEM)." placeholder:"FILE"`
	CertGrant   []string `help:"Grant to holders of certificates, such as \"CN=billing => read+write:shop\". Repeatable." placeholder:"MAPPING" sep:"none"`

	JWKS        string        `name:"jwks" help:"Keys that verify tokens (JWT): a JSON web key set, as a file or an https URL." placeholder:"FILE|URL"`
	JWTIssuer   string        `name:"jwt-issuer" help:"Issuer (iss) that tokens must have." placeholder:"ISSUER"`
	JWTAudience string        `name:"jwt-audience" help:"Audience (aud) that tokens must be for." placeholder:"AUDIENCE"`
	JWTLeeway   time.Duration `name:"jwt-leeway" help:"How far the clock of the token's issuer may differ from the server's." default:"30s"`
	JWTGrant    []string      `name:"jwt-grant" help:"Grant to holders of tokens, such as \"groups=shop-team => read+write:shop\". Repeatable." placeholder:"MAPPING" sep:"none"`

	QuotaRequests    int64 `help:"Requests per second that each key, token or certificate may send to this server; 0 is unlimited. A key's own quota takes precedence." default:"0" placeholder:"N"`
	QuotaWrites      int64 `help:"Writes per second that each key, token or certificate may send." default:"0" placeholder:"N"`
	QuotaBytes       int64 `help:"Bytes per second that each key, token or certificate may send." default:"0" placeholder:"N"`
	QuotaConnections int64 `help:"New connections per second that each key, token or certificate may open." default:"0" placeholder:"N"`
}

// leewayMax is how much clocks may differ at most: more would keep tokens alive that have
// expired.
const leewayMax = 10 * time.Minute

// guarded reports whether callers have to show something, whatever keys the store has.
func (c *serveCmd) guarded() bool {
	return len(c.APIKey) > 0 || c.RequireAuth || len(c.Anonymous) > 0 || c.JWKS != "" || c.TLSClientCA != ""
}

func (f *accessFlags) quota() access.Quota {
	return access.Quota{Requests: f.QuotaRequests, Writes: f.QuotaWrites, Bytes: f.QuotaBytes, Connections: f.QuotaConnections}
}

// check returns an error that names a flag.
func (f *accessFlags) check() error {
	if _, err := access.ParseRules(f.Anonymous); err != nil {
		return &flagError{"anonymous", err}
	}
	certs, err := access.ParseMappings(f.CertGrant)
	if err != nil {
		return &flagError{"cert-grant", err}
	}
	for _, m := range certs {
		if !server.CertificateField(strings.ToUpper(m.Field)) {
			return &flagError{"cert-grant", fmt.Errorf("%q is not a field of a certificate: want CN, O, OU, DNS, URI or EMAIL", m.Field)}
		}
	}
	if _, err := access.ParseMappings(f.JWTGrant); err != nil {
		return &flagError{"jwt-grant", err}
	}
	for _, n := range []struct {
		flag  string
		quota access.Quota
	}{
		{"quota-requests", access.Quota{Requests: f.QuotaRequests}},
		{"quota-writes", access.Quota{Writes: f.QuotaWrites}},
		{"quota-bytes", access.Quota{Bytes: f.QuotaBytes}},
		{"quota-connections", access.Quota{Connections: f.QuotaConnections}},
	} {
		if err := n.quota.Check(); err != nil {
			return &flagError{n.flag, err}
		}
	}
	for _, n := range []struct {
		flag string
		ok   bool
		want string
	}{
		{"tls-client-ca", f.TLSClientCA == "" || len(f.CertGrant) > 0, "want --cert-grant too: a certificate that is granted nothing is of no use"},
		{"cert-grant", len(f.CertGrant) == 0 || f.TLSClientCA != "", "want --tls-client-ca too, to know which certificates are genuine"},
		{"jwks", f.JWKS == "" || f.JWTIssuer != "", "want --jwt-issuer too"},
		{"jwks", f.JWKS == "" || f.JWTAudience != "", "want --jwt-audience too: otherwise tokens for other services would be taken"},
		{"jwks", f.JWKS == "" || len(f.JWTGrant) > 0, "want --jwt-grant too: a token that is granted nothing is of no use"},
		{"jwt-issuer", f.JWTIssuer == "" || f.JWKS != "", "want --jwks too, to know which tokens are genuine"},
		{"jwt-audience", f.JWTAudience == "" || f.JWKS != "", "want --jwks too, to know which tokens are genuine"},
		{"jwt-grant", len(f.JWTGrant) == 0 || f.JWKS != "", "want --jwks too, to know which tokens are genuine"},
		{"jwt-leeway", f.JWTLeeway >= 0 && f.JWTLeeway <= leewayMax, "want 0s to 10m"},
	} {
		if !n.ok {
			return &flagError{n.flag, errors.New(n.want)}
		}
	}
	if f.JWKS != "" {
		if err := jwks.Check(f.JWKS); err != nil {
			return &flagError{"jwks", err}
		}
	}
	return nil
}

// A guard is the gate of a server, and what it needs.
type guard struct {
	gate   *server.Gate
	ring   *keyring.Ring
	tokens *jwks.Source // nil if none are taken
	tls    *server.TLS  // nil without TLS
	end    func()
	done   sync.WaitGroup
}

// openGuard makes the gate of a server, with the keys of its store as they are now.
func (c *serveCmd) openGuard(ctx context.Context, db *quipu.DB, out *output, logger *slog.Logger) (g *guard, err error) {
	keys, err := server.NewKeys(c.APIKey)
	if err != nil {
		return nil, err
	}
	g = &guard{ring: keyring.New(db.Port().Store(), keyring.Options{Logger: logger, ReadOnly: c.ReadOnly, Quota: c.quota()}), end: func() {}}
	if err := g.ring.Load(ctx); err != nil {
		return nil, fmt.Errorf("read the API keys of the store: %w", err)
	}
	o := server.GateOptions{
		Keys: keys, Ring: g.ring, Quota: c.quota(), Required: c.RequireAuth, Logger: logger, Audit: c.auditLog(out),
		Check: jwt.Check{Issuer: c.JWTIssuer, Audience: c.JWTAudience, Leeway: c.JWTLeeway},
	}
	// Validate has parsed these before.
	o.Anonymous, _ = access.ParseRules(c.Anonymous)
	o.CertMap, _ = access.ParseMappings(c.CertGrant)
	o.TokenMap, _ = access.ParseMappings(c.JWTGrant)
	if c.TLSCert != "" {
		if g.tls, err = server.LoadTLS(c.tlsFiles(), logger); err != nil {
			return nil, err
		}
	}
	if c.JWKS != "" {
		if g.tokens, err = jwks.New(ctx, c.JWKS, logger); err != nil {
			return nil, fmt.Errorf("--jwks: %w", err)
		}
		o.Tokens = g.tokens
	}
	g.gate = server.NewGate(o)
	c.warnShut(g.ring.Any(), logger)
	g.ring.OnChange(g.gate.Changed)
	g.ring.Start()
	g.watch(ctx)
	return g, nil
}

// warnShut logs that nobody can come in: callers need a key, and there is none to make
// others with.
func (c *serveCmd) warnShut(keys bool, logger *slog.Logger) {
	if c.RequireAuth && !keys && len(c.APIKey) == 0 && len(c.Anonymous) == 0 && c.JWKS == "" && c.TLSClientCA == "" {
		logger.Warn("--require-auth refuses every caller, because there is no key yet: start the server with --api-key as well, and use that key to create others with quipu key create")
	}
}

// watch reads files again that have changed, or at a hangup.
func (g *guard) watch(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	g.end = func() { signal.Stop(hangups); cancel() }
	if g.tls != nil {
		again := make(chan os.Signal, 1)
		signal.Notify(again, syscall.SIGHUP)
		g.done.Go(func() { defer signal.Stop(again); g.tls.Watch(ctx, again) })
	}
	g.done.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-hangups:
				if g.tokens != nil {
					g.tokens.Refresh()
				}
			}
		}
	})
}

// close ends what the gate needs.
func (g *guard) close() {
	g.end()
	g.done.Wait()
	g.ring.Close()
	if g.tokens != nil {
		g.tokens.Close()
	}
}

// meters adds what is measured.
func (g *guard) meters(m *server.Metrics) {
	m.WatchMeter(g.gate)
	m.WatchMeter(g.tls)
}

func (c *serveCmd) tlsFiles() server.TLSFiles {
	return server.TLSFiles{Cert: c.TLSCert, Key: c.TLSKey, ClientCA: c.TLSClientCA}
}

// auditLog returns the log of what administrators do: it has all of it, whatever the level of
// the other log is.
func (c *serveCmd) auditLog(out *output) *slog.Logger {
	return slog.New(c.handler(out, slog.LevelInfo))
}
