package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/internal/server/rest"
)

const (
	// drainMax is how long calls under way may take to finish at the end.
	drainMax = 10 * time.Second
	// doorOff is the address of a door that is not opened.
	doorOff = "off"
)

type serveCmd struct {
	Config configFile `help:"Read settings from a YAML file: the names of these flags, and policies." placeholder:"FILE"`

	Data  string `help:"Directory of the embedded store." default:"./quipu-data"`
	Store string `help:"Where counts are kept: embedded: or memory:." default:"embedded:"`
	HTTP  string `name:"http" help:"Address of the REST door; off closes it, port 0 picks a free one." default:"127.0.0.1:8080"`
	RESP  string `name:"resp" help:"Address of the RESP door, which this version does not have." default:"127.0.0.1:6380"`
	RPC   string `name:"rpc" help:"Address of the RPC door, which this version does not have." default:"127.0.0.1:9090"`

	APIKey   apiKeys `name:"api-key" help:"A key that callers must send as a bearer token. May be given more than once." placeholder:"KEY"`
	Insecure bool    `help:"Serve other machines without an API key."`
	TLSCert  string  `name:"tls-cert" help:"Certificate chain, PEM." placeholder:"FILE"`
	TLSKey   string  `name:"tls-key" help:"Private key of the certificate, PEM." placeholder:"FILE"`

	Memory         size          `help:"Memory limit of the embedded store." default:"256MiB"`
	KeyQuota       int64         `help:"Keys in one namespace." default:"1000000000"`
	TokenQuota     int64         `help:"Tokens remembered in one namespace." default:"10000000"`
	NamespaceQuota int           `help:"Namespaces with a key or a token." default:"10000"`
	TokenWindow    time.Duration `help:"How long a repeat returns the first result." default:"24h"`
	MaxConnections int           `help:"Connections open at a time, for each door." default:"10000"`
	RequestTimeout time.Duration `help:"How long a call may take." default:"5s"`

	Pprof     bool   `help:"Serve profiles under /debug/pprof/."`
	LogLevel  string `help:"Least level that is logged: debug, info, warn, error." enum:"debug,info,warn,error" default:"info"`
	LogFormat string `help:"Format of the log: text, json, or auto: text on a terminal." enum:"auto,text,json" default:"auto"`
}

// Help is shown by --help.
func (*serveCmd) Help() string {
	return `When it can serve it prints one line, such as

  ready http=127.0.0.1:8080

SIGTERM and SIGINT drain: no new connections, up to 10 s for the calls under way, and exit code 0.

An address that other machines can reach needs an API key or --insecure.

Examples:

  quipu serve --data /var/lib/quipu
  quipu serve --http 0.0.0.0:8080 --api-key "$KEY" --tls-cert cert.pem --tls-key key.pem
  quipu serve --store memory: --http 127.0.0.1:0
  quipu serve --config quipu.yaml

A configuration file has the names of the flags, and policies, of which the first that names a key holds:

  data: /var/lib/quipu
  http: 127.0.0.1:8080
  token-window: 48h
  policies:
    - {namespace: ads, pattern: "view.*", durability: written}`
}

// Validate is called after the flags are parsed.
func (c *serveCmd) Validate() error {
	switch {
	case (c.TLSCert == "") != (c.TLSKey == ""):
		return errors.New("--tls-cert and --tls-key go together")
	case c.HTTP == doorOff:
		return errors.New("nothing to serve: --http is off, and this version has no other door")
	case c.KeyQuota < 1, c.TokenQuota < 1, c.NamespaceQuota < 1, c.TokenWindow <= 0, c.MaxConnections < 1, c.RequestTimeout <= 0:
		return errors.New("limits must be at least 1")
	}
	return checkStore(c.Store)
}

// options returns what the DB is told.
func (c *serveCmd) options(conf *config, logger *slog.Logger) quipu.Options {
	return quipu.Options{
		Limits: quipu.Limits{
			KeysMax: c.KeyQuota, TokensMax: c.TokenQuota, NamespacesMax: c.NamespaceQuota, TokenWindow: c.TokenWindow,
		},
		Policies: conf.policies,
		Memory:   int64(c.Memory),
		Logger:   logger,
	}
}

// Run serves until ctx ends.
func (c *serveCmd) Run(ctx context.Context, out *output, conf *config) (err error) {
	logger := c.logger(out)
	db, err := openStore(c.Store, c.Data, c.options(conf, logger))
	if err != nil {
		return fmt.Errorf("open store %s: %w", c.Store, err)
	}
	defer func() {
		if e := db.Close(); e != nil {
			err = errors.Join(err, fmt.Errorf("close store: %w", e))
		}
	}()
	metrics := server.NewMetrics(db)
	s := server.New(logger)
	closeREST, err := c.addREST(s, db, metrics, logger)
	if err != nil {
		return err
	}
	defer closeREST() // before the store is closed: ends what the drain cut off
	logger.Info("serving", "version", versionName(), "store", db.Traits().Name, "doors", s.Ready())
	if err := out.print("%s", s.Ready()); err != nil {
		return fmt.Errorf("print the ready line: %w", err)
	}
	if err := s.Run(ctx, drainMax); err != nil {
		return err
	}
	logger.Info("drained")
	return nil
}

// addREST opens the REST door.
func (c *serveCmd) addREST(s *server.Server, db *quipu.DB, m *server.Metrics, logger *slog.Logger) (closeDoor func(), err error) {
	keys, err := server.NewKeys(c.APIKey)
	if err != nil {
		return nil, err
	}
	var config *tls.Config
	if c.TLSCert != "" {
		if config, err = server.LoadTLS(c.TLSCert, c.TLSKey); err != nil {
			return nil, err
		}
	}
	l, limited, err := server.Listen{
		Addr:           c.HTTP,
		Exposed:        keys.Required() || c.Insecure,
		ConnectionsMax: c.MaxConnections,
		Refusal:        server.HTTPRefusal(),
		TLS:            config,
	}.Open()
	if _, ok := errors.AsType[*server.ExposedError](err); ok {
		return nil, usage("--http %w: give it an --api-key, or --insecure if the network is trusted", err)
	}
	if err != nil {
		return nil, err
	}
	m.Watch("http", limited)
	h := rest.New(db, rest.Options{Keys: keys, Metrics: m, Logger: logger, Timeout: c.RequestTimeout, Pprof: c.Pprof})
	s.Add("http", l, server.HTTP(h, logger))
	return h.Close, nil
}

// logger returns the log: text for people, JSON for machines.
func (c *serveCmd) logger(out *output) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.LogLevel)) // one of the enum
	options := &slog.HandlerOptions{Level: level}
	if c.LogFormat == "text" || c.LogFormat == "auto" && out.live {
		return slog.New(slog.NewTextHandler(out.stderr, options))
	}
	return slog.New(slog.NewJSONHandler(out.stderr, options))
}
