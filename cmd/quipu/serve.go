package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/memory"
	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/internal/server/pulse"
	"github.com/quipudb/quipu/internal/server/resp"
	"github.com/quipudb/quipu/internal/server/rest"
	"github.com/quipudb/quipu/internal/server/roster"
	"github.com/quipudb/quipu/internal/server/rpc"
	"github.com/quipudb/quipu/internal/trace"
)

const (
	// drainMax is how long calls under way may take to finish at the end, and endMax
	// how long all of it takes, whatever a store that others run does.
	drainMax = 6 * time.Second
	endMax   = 9500 * time.Millisecond
	// memoryMin is the least that the embedded store works with; it would take no
	// notice of less.
	memoryMin = 16 << 20
	// doorOff is the address of a door that is not opened.
	doorOff = "off"
)

type serveCmd struct {
	Config     configFile `help:"YAML file with settings, named like these flags, and policies." placeholder:"FILE"`
	PolicyFile string     `help:"File that stores the policies made through the API. The default with the embedded store is policies.yaml in its directory." placeholder:"FILE"`

	Data  string `help:"Directory of the embedded store." default:"./quipu-data"`
	Store string `help:"Where counts are kept: embedded:, memory:, postgres://…, or redis://HOST:PORT[,HOST:PORT…]." default:"embedded:" placeholder:"URL"`
	HTTP  string `name:"http" help:"Address for the REST API, or off. Port 0 picks a free port." default:"127.0.0.1:8080"`
	RESP  string `name:"resp" help:"Address for Redis clients (RESP), or off. Port 0 picks a free port." default:"127.0.0.1:6380"`
	RPC   string `name:"rpc" help:"Address for gRPC and the Go client, or off. Port 0 picks a free port." default:"127.0.0.1:50051"`

	StatsD          string `name:"statsd" help:"UDP address for StatsD and DogStatsD, such as 127.0.0.1:8125, or off. Port 0 picks a free port." default:"off" placeholder:"ADDR"`
	StatsDNamespace string `name:"statsd-namespace" help:"Namespace that StatsD counts in." default:"default" placeholder:"NAME"`

	WaitForStore time.Duration `help:"How long to wait at the start for a PostgreSQL or Redis server that can't be reached." default:"0s"`

	StoreName          string `help:"Name of the schema in PostgreSQL, or prefix of the keys in Redis." default:"quipu" placeholder:"NAME"`
	StoreConnections   int    `help:"Maximum number of connections to PostgreSQL." default:"16"`
	RedisReplicas      int    `help:"Number of Redis replicas that must have a write before it is acknowledged as synced." default:"0" placeholder:"N"`
	RedisAllowEviction bool   `help:"Accept a Redis server that may drop counters when its memory is full."`
	ReadOnly           bool   `help:"Refuse writes. Useful for servers that share a store with others."`

	APIKey    apiKeys  `name:"api-key" help:"Key that callers must send as a bearer token. Repeatable." placeholder:"KEY"`
	Insecure  bool     `help:"Serve other machines without an API key, and under any host name."`
	AllowHost []string `help:"Host name that requests may use besides localhost and IP addresses. Only checked without an API key. Repeatable." placeholder:"NAME"`
	TLSCert   string   `name:"tls-cert" help:"TLS certificate chain (PEM)." placeholder:"FILE"`
	TLSKey    string   `name:"tls-key" help:"Private key of the TLS certificate (PEM)." placeholder:"FILE"`

	accessFlags `embed:""`

	MemoryTotal    size          `help:"Memory limit of the whole server. By default three quarters of what the control group or the machine has." placeholder:"SIZE"`
	Memory         size          `help:"Memory limit of the embedded store. By default 256MiB, or a quarter of the total if that is less." placeholder:"SIZE"`
	KeyQuota       int64         `help:"Maximum number of keys in one namespace." default:"1000000000"`
	TokenQuota     int64         `help:"Maximum number of tokens remembered in one namespace." default:"10000000"`
	NamespaceQuota int           `help:"Maximum number of namespaces that have a key or a token." default:"10000"`
	UserQuota      int64         `help:"Maximum number of user reactions in one namespace (approximate)." default:"1000000000"`
	HoldQuota      int64         `help:"Maximum number of open reservations in one namespace (approximate)." default:"10000000"`
	TokenWindow    time.Duration `help:"How long a token is remembered. Within this time, a repeated write counts once and returns the first result." default:"24h"`
	MaxConnections *int          `help:"Maximum number of open connections for each of --http, --resp and --rpc. By default 10000, or as many as the total has memory for." placeholder:"N"`
	RequestTimeout time.Duration `help:"Time limit for a call, including the time to receive it." default:"5s"`
	RequestMemory  size          `help:"Memory for large requests and replies. When it is used up, further large calls wait. By default 64MiB, or a sixteenth of the total if that is less." placeholder:"SIZE"`

	traceFlags `embed:""`

	Pprof     bool   `help:"Serve Go profiles under /debug/pprof/."`
	LogLevel  string `help:"Lowest level to log: debug, info, warn or error." enum:"debug,info,warn,error" default:"info"`
	LogFormat string `help:"Log format: text, json, or auto (text on a terminal, else json)." enum:"auto,text,json" default:"auto"`

	plan memoryPlan // made by Validate
}

// Help is shown by --help.
func (*serveCmd) Help() string {
	return `When the server is ready, it prints one line, such as

  ready http=127.0.0.1:8080 resp=127.0.0.1:6380 rpc=127.0.0.1:50051

On SIGTERM and SIGINT it accepts no new connections, gives running calls up to 6 s to finish, and exits with code 0. It
exits within 10 s, even if PostgreSQL or Redis does not answer.

The server reloads policies, TLS certificates and the keys that verify tokens when their files change and on SIGHUP.
Other settings take effect at the next start.

An address that other machines can reach needs an API key, --jwks, --tls-client-ca, --require-auth or --insecure.
Callers with an --api-key may do everything. "quipu key" creates keys that may do less: see docs/security.md. Without
an API key, the server answers only requests that are addressed to an IP address, to localhost or to a name of
--allow-host. So a web page can't reach it through a domain of its own.

Examples:

  quipu serve --data /var/lib/quipu
  quipu serve --http 0.0.0.0:8080 --api-key "$KEY" --tls-cert cert.pem --tls-key key.pem
  quipu serve --store memory: --http 127.0.0.1:0
  quipu serve --store "postgres://quipu@db/app" --read-only
  quipu serve --store redis://10.0.0.1:6379,10.0.0.2:6379 --redis-replicas 1
  quipu serve --store "postgres://quipu@db/app" --wait-for-store 2m
  quipu serve --config quipu.yaml

A configuration file sets flags by name, and lists policies. The first policy that matches a key applies:

  data: /var/lib/quipu
  http: 127.0.0.1:8080
  token-window: 48h
  policies:
    - {namespace: ads, pattern: "view.*", durability: written}`
}

// Validate is called after the flags are parsed. What serve refuses before it
// opens the store, it refuses here, and so does config check.
func (c *serveCmd) Validate() error {
	for _, f := range []struct {
		name string
		ok   bool
		want string
	}{
		{"tls-key", c.TLSKey != "" || c.TLSCert == "", "want the private key of --tls-cert"},
		{"tls-cert", c.TLSCert != "" || c.TLSKey == "", "want the certificate of --tls-key"},
		{"key-quota", c.KeyQuota >= 1, "want at least 1"},
		{"token-quota", c.TokenQuota >= 1, "want at least 1"},
		{"namespace-quota", c.NamespaceQuota >= 1, "want at least 1"},
		{"user-quota", c.UserQuota >= 1, "want at least 1"},
		{"hold-quota", c.HoldQuota >= 1, "want at least 1"},
		{"max-connections", c.MaxConnections == nil || *c.MaxConnections >= 1, "want at least 1"},
		{"request-timeout", c.RequestTimeout > 0, "want more than 0s"},
		{"memory", c.Memory == 0 || c.Memory >= memoryMin, "want at least 16MiB"},
		{"token-window", c.TokenWindow >= time.Millisecond, "want at least 1ms"},
		{"store-name", c.StoreName != "", "want a name"},
		{"store-connections", c.StoreConnections >= 2, "want at least 2"},
		{"redis-replicas", c.RedisReplicas >= 0, "want 0 or more"},
		{"wait-for-store", c.WaitForStore >= 0, "want 0s or more"},
	} {
		if !f.ok {
			return &flagError{f.name, errors.New(f.want)}
		}
	}
	if c.HTTP == doorOff && c.RESP == doorOff && c.RPC == doorOff {
		return errors.New("nothing to serve: --http, --resp and --rpc are off")
	}
	for _, name := range c.AllowHost {
		if name == "" || strings.ContainsAny(name, ":/ ") {
			return &flagError{"allow-host", fmt.Errorf("%q: want a name, without a port", name)}
		}
	}
	if err := c.accessFlags.check(); err != nil {
		return err
	}
	if err := c.traceFlags.check(); err != nil {
		return err
	}
	if err := c.tlsFiles().Check(); err != nil {
		return err
	}
	scheme, err := storeScheme(c.Store)
	switch {
	case err != nil:
		return err
	case scheme == schemeEmbedded && c.Store != schemeEmbedded+":":
		return errors.New("--store embedded: takes its directory from --data")
	}
	if err := c.ignored(scheme); err != nil {
		return err
	}
	if c.plan, err = c.planMemory(memory.Find(os.DirFS("/"))); err != nil {
		return &flagError{"memory-total", err}
	}
	if err := checkStore(c.Store, c.options(&config{}, slog.Default())); err != nil {
		return &flagError{"store", err}
	}
	for _, d := range []struct{ flag, addr string }{{"http", c.HTTP}, {"resp", c.RESP}, {"rpc", c.RPC}} {
		if d.addr == doorOff {
			continue
		}
		_, err := c.listen(d.addr, "").Resolve()
		if _, ok := errors.AsType[*server.ExposedError](err); ok {
			return &flagError{d.flag, fmt.Errorf("%w: give it an --api-key, or --insecure if the network is trusted", err)}
		}
		if err != nil {
			return &flagError{d.flag, err}
		}
	}
	if c.takesStatsD() {
		_, err = c.resolveStatsD()
	}
	return err
}

// ignored returns an error that names a flag that was given and means nothing to a
// store: whoever gave it expects something of it.
func (c *serveCmd) ignored(scheme string) error {
	embedded, postgres, redis := scheme == schemeEmbedded, scheme == schemePostgres, scheme == schemeRedis
	for _, f := range []struct {
		flag  string
		given bool
		means bool
		only  string
	}{
		{"data", c.Data != "./quipu-data", embedded, "embedded:"},
		{"memory", c.Memory != 0, embedded, "embedded:"},
		{"store-name", c.StoreName != "quipu", shared(scheme), "postgres:// and redis://"},
		{"store-connections", c.StoreConnections != 16, postgres, "postgres://"},
		{"redis-replicas", c.RedisReplicas != 0, redis, "redis://"},
		{"redis-allow-eviction", c.RedisAllowEviction, redis, "redis://"},
		{"wait-for-store", c.WaitForStore != 0, shared(scheme), "postgres:// and redis://"},
	} {
		if f.given && !f.means {
			return &flagError{f.flag, fmt.Errorf("it is for --store %s; the %s store would ignore it", f.only, scheme)}
		}
	}
	return nil
}

// listen describes the listener of a door, and what it tells a client that is
// one too many.
func (c *serveCmd) listen(addr, refusal string) server.Listen {
	return server.Listen{
		Addr:           addr,
		Exposed:        c.guarded() || c.Insecure,
		ConnectionsMax: c.plan.conns,
		Refusal:        refusal,
	}
}

// options returns what the store and the DB are told.
func (c *serveCmd) options(conf *config, logger *slog.Logger) storeOptions {
	return storeOptions{
		Options: quipu.Options{
			Limits: quipu.Limits{
				KeysMax: c.KeyQuota, TokensMax: c.TokenQuota, NamespacesMax: c.NamespaceQuota, TokenWindow: c.TokenWindow,
				UsersMax: c.UserQuota, HoldsMax: c.HoldQuota,
			},
			Policies: conf.policies,
			Memory:   c.plan.store,
			ReadOnly: c.ReadOnly,
			Logger:   logger,
		},
		Dir:            c.Data,
		Name:           c.StoreName,
		Conns:          c.StoreConnections,
		Replicas:       c.RedisReplicas,
		AcceptEviction: c.RedisAllowEviction,
	}
}

// Run serves until ctx ends.
func (c *serveCmd) Run(ctx context.Context, out *output, conf *config) error {
	logger := c.logger(out)
	ended := make(chan error, 1)
	go func() { ended <- c.serve(ctx, out, conf, logger) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	if scheme, _ := storeScheme(c.Store); !shared(scheme) {
		return <-ended // what it has in memory is to be on the disk
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(endMax):
		logger.Warn("the store did not close in time: exiting without it", "limit", endMax)
		return nil
	}
}

// serve does what Run does, for as long as it takes.
func (c *serveCmd) serve(ctx context.Context, out *output, conf *config, logger *slog.Logger) (err error) {
	c.plan.enforce()
	db, err := awaitStore(ctx, c.Store, c.options(conf, logger), c.WaitForStore)
	if err != nil {
		return fmt.Errorf("open store: %w", err)
	}
	defer func() {
		if e := db.Close(); e != nil {
			err = errors.Join(err, fmt.Errorf("close store: %w", e))
		}
	}()
	warnFull(db.Port().Meters, c.plan.store, logger)
	book, err := openPolicies(db, c.policyFile(), conf, c.ReadOnly, slog.New(c.logHandler(out)))
	if err != nil {
		return err
	}
	if err := propose(ctx, db, conf, c.ReadOnly, logger); err != nil {
		return err
	}
	defer watchPolicies(ctx, book)()
	g, err := c.openGuard(ctx, db, out, logger)
	if err != nil {
		return err
	}
	defer g.close()
	s := server.New(logger)
	tr, err := c.openTracing(ctx, logger)
	if err != nil {
		return err
	}
	defer tr.close()
	closeDoors, err := c.addDoors(s, db, book, g, tr, logger)
	defer closeDoors() // before the store is closed: ends what the drain cut off
	if err != nil {
		return err
	}
	logger.Info("serving", "version", versionName(), "store", db.Port().Traits().Name)
	if err := out.print("%s", s.Ready()); err != nil {
		return fmt.Errorf("print the ready line: %w", err)
	}
	if err := s.Run(ctx, drainMax); err != nil {
		return err
	}
	logger.Info("drained")
	return nil
}

// warnFull logs that an embedded store takes no writes, because its disk has too
// little room for one of this memory limit. Nothing is wrong with the store, so it serves.
func warnFull(meters func(func(name, help string, value float64)), memory int64, logger *slog.Logger) {
	var full bool
	var free float64
	meters(func(name, _ string, value float64) {
		switch name {
		case "quipu_disk_full":
			full = value != 0
		case "quipu_disk_free_bytes":
			free = value
		}
	})
	if full {
		logger.Warn("the disk of --data is nearly full: the server refuses writes until --memory plus 64 MiB are free; free some space, or lower --memory",
			"free", formatSize(int64(free)), "needed", formatSize(memory+64<<20), "memory", formatSize(memory))
	}
}

// policyFile returns the file for policies made by API, "" if there is none.
func (c *serveCmd) policyFile() string {
	if c.PolicyFile == "" && c.Store == schemeEmbedded+":" {
		return filepath.Join(c.Data, policyFileName)
	}
	return c.PolicyFile
}

// watchPolicies keeps policies up to date until ctx ends, or the returned
// function is called.
func watchPolicies(ctx context.Context, book *policyBook) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	var watch sync.WaitGroup
	watch.Go(func() { book.watch(ctx, hangup) })
	return func() { signal.Stop(hangup); cancel(); watch.Wait() }
}

// means is what the doors are made of.
type means struct {
	db      *quipu.DB
	book    *policyBook
	gate    *server.Gate
	metrics *server.Metrics
	tracer  *trace.Tracer // nil if nothing is traced
	budget  *server.Budget
	logger  *slog.Logger
	pulse   *pulse.Pulse
	roster  *roster.Roster
}

// addDoors opens the doors that are not off. What it returns closes them, also
// after an error.
func (c *serveCmd) addDoors(s *server.Server, db *quipu.DB, book *policyBook, g *guard, tr *tracing, logger *slog.Logger) (closeDoors func(), err error) {
	m := means{db: db, book: book, gate: g.gate, metrics: server.NewMetrics(db.Port()), budget: server.NewBudget(c.plan.requests), logger: logger}
	m.metrics.WatchBudget(m.budget)
	m.metrics.WatchMemory(c.plan.parts())
	m.metrics.WatchMeter(book)
	g.meters(m.metrics)
	m.tracer = tr.tracer()
	tr.meters(m.metrics)
	m.pulse = pulse.New(m.metrics, db.Port(), pulse.About{Version: versionName(), Doors: s.Doors}, logger)
	m.roster = roster.New(db.Port().Store(), m.pulse, roster.Options{Logger: logger, ReadOnly: c.ReadOnly, Detail: server.ReadDetail})
	closeDoors = func() { m.roster.Close(); m.pulse.Close() }
	for _, d := range []struct {
		name, addr, refusal string
		open                func(means) (server.Door, func())
	}{
		{"http", c.HTTP, server.HTTPRefusal(), c.rest},
		{"resp", c.RESP, resp.Refusal, c.resp},
		{"rpc", c.RPC, "", c.rpc},
	} {
		if d.addr == doorOff {
			continue
		}
		listen := c.listen(d.addr, d.refusal)
		if !g.gate.Open() {
			listen.StrangersMax = server.StrangersMax(c.plan.conns)
		}
		switch {
		case g.tls == nil:
		case d.name == "resp":
			listen.TLS = g.tls.Plain()
		default:
			listen.TLS = g.tls.Web()
		}
		l, limited, err := listen.Open()
		if errors.Is(err, syscall.EADDRINUSE) {
			return closeDoors, fmt.Errorf("--%s %s: %w; choose another with --%s, or --%s off", d.name, d.addr, syscall.EADDRINUSE, d.name, d.name)
		}
		if err != nil {
			return closeDoors, fmt.Errorf("--%s: %w", d.name, err)
		}
		m.metrics.Watch(d.name, limited)
		g.gate.OnChange(func() {
			if !g.gate.Open() {
				limited.Strange(server.StrangersMax(c.plan.conns))
			}
		})
		door, closeDoor := d.open(m)
		s.Add(d.name, l, door)
		closeOthers := closeDoors
		closeDoors = func() { closeDoor(); closeOthers() }
	}
	closeStatsD, err := c.addStatsD(s, m)
	if err != nil {
		return closeDoors, err
	}
	closeOthers := closeDoors
	m.roster.Start() // The doors that it names are open.
	return func() { closeStatsD(); closeOthers() }, nil
}

// rest returns the REST door.
func (c *serveCmd) rest(m means) (server.Door, func()) {
	o := rest.Options{
		Gate: m.gate, Metrics: m.metrics, Tracer: m.tracer, Logger: m.logger, Timeout: c.RequestTimeout, Budget: m.budget, Pprof: c.Pprof,
		Policies: m.book, Pulse: m.pulse, Roster: m.roster,
	}
	if m.gate.Open() && !c.Insecure {
		o.Hosts = append(c.AllowHost, "localhost")
	}
	h := rest.New(m.db, o)
	m.metrics.WatchMeter(h)
	door := server.HTTP(h, c.RequestTimeout, m.logger)
	door.RegisterOnShutdown(h.EndStreams)
	return door, h.Close
}

// resp returns the RESP door.
func (c *serveCmd) resp(m means) (server.Door, func()) {
	d := resp.New(m.db, resp.Options{
		Gate: m.gate, Metrics: m.metrics, Logger: m.logger, Timeout: c.RequestTimeout, Version: versionName(),
		ConnectionsMax: c.plan.conns, Memory: c.plan.requests,
	})
	m.metrics.WatchMeter(d)
	return d, func() { _ = d.Close() }
}

// rpc returns the RPC door.
func (c *serveCmd) rpc(m means) (server.Door, func()) {
	d := rpc.New(m.db, rpc.Options{
		Gate: m.gate, Metrics: m.metrics, Tracer: m.tracer, Logger: m.logger, Timeout: c.RequestTimeout, Budget: m.budget,
		CallsMax: c.plan.conns,
	})
	return d, func() { _ = d.Close() }
}

// logger returns the log, which holds back what it has just said.
func (c *serveCmd) logger(out *output) *slog.Logger { return slog.New(server.Damp(c.logHandler(out))) }

// logHandler returns the log: text for people, JSON for machines.
func (c *serveCmd) logHandler(out *output) slog.Handler {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.LogLevel)) // one of the enum
	return c.handler(out, level)
}

// handler returns a log of what is at least of a level.
func (c *serveCmd) handler(out *output, level slog.Level) slog.Handler {
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: wordDurations}
	if c.LogFormat == "text" || c.LogFormat == "auto" && out.live {
		return slog.NewTextHandler(out.stderr, options)
	}
	return slog.NewJSONHandler(out.stderr, options)
}

// wordDurations writes durations as 1.5s: in JSON they would be nanoseconds,
// and no reader would know.
func wordDurations(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}
