package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// tlsLookEvery is how often the files of TLS are looked at.
const tlsLookEvery = 2 * time.Second

// TLSFiles name PEM files.
type TLSFiles struct {
	Cert, Key string
	ClientCA  string // who issues the certificates of clients; "" asks for none
}

// A TLS is the certificates of a server, which are read again when their files change. It is
// safe for concurrent use.
type TLS struct {
	files  TLSFiles
	logger *slog.Logger

	mu    sync.Mutex // held by who reads the files
	stamp stamps
	last  stamps // at the look before

	now      atomic.Pointer[tlsConfigs]
	reloads  atomic.Uint64
	failures atomic.Uint64
}

// tlsConfigs are what connections are made with, as the files are now. Each has keys of its
// own for the tickets of sessions: one that was made with other files is not resumed.
type tlsConfigs struct{ web, plain *tls.Config }

// stamps tell files from what they were before.
type stamps [3]struct{ changed, size int64 }

func (f TLSFiles) stamps() (s stamps) {
	for i, name := range []string{f.Cert, f.Key, f.ClientCA} {
		if info, err := os.Stat(name); err == nil {
			s[i].changed, s[i].size = info.ModTime().UnixNano(), info.Size()
		}
	}
	return s
}

// LoadTLS reads a certificate and its key, and who issues the certificates of clients.
func LoadTLS(files TLSFiles, logger *slog.Logger) (*TLS, error) {
	t := &TLS{files: files, logger: logger, stamp: files.stamps()}
	t.last = t.stamp
	return t, t.load()
}

func (t *TLS) load() error {
	cert, err := tls.LoadX509KeyPair(t.files.Cert, t.files.Key)
	if err != nil {
		return fmt.Errorf("load TLS certificate: %w", err)
	}
	base := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	if t.files.ClientCA != "" {
		raw, err := os.ReadFile(t.files.ClientCA)
		if err != nil {
			return fmt.Errorf("load the issuers of client certificates: %w", err)
		}
		base.ClientCAs = x509.NewCertPool()
		if !base.ClientCAs.AppendCertsFromPEM(raw) {
			return fmt.Errorf("load the issuers of client certificates: %s has no certificate in PEM", t.files.ClientCA)
		}
		base.ClientAuth = tls.VerifyClientCertIfGiven
	}
	web := base.Clone()
	web.NextProtos = []string{"h2", "http/1.1"}
	t.now.Store(&tlsConfigs{web: web, plain: base})
	return nil
}

// Web returns the configuration of doors that speak HTTP, and Plain that of others. Each
// connection is made with the files as they were read last.
func (t *TLS) Web() *tls.Config {
	return t.config(func(c *tlsConfigs) *tls.Config { return c.web })
}

// Plain is Web for other protocols.
func (t *TLS) Plain() *tls.Config {
	return t.config(func(c *tlsConfigs) *tls.Config { return c.plain })
}

func (t *TLS) config(of func(*tlsConfigs) *tls.Config) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return of(t.now.Load()), nil },
	}
}

// Watch reads the files again when they have changed, and at a hangup, until ctx ends. If they
// can't be read those from before stay in use.
func (t *TLS) Watch(ctx context.Context, hangup <-chan os.Signal) {
	ticker := time.NewTicker(tlsLookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			t.Reload(false)
		case <-hangup:
			t.Reload(true)
		}
	}
}

// Reload reads the files again if they have changed and are the same as at the last look, so
// that they are whole; or, if it is forced to, at once.
func (t *TLS) Reload(force bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.files.stamps()
	settled := now == t.last && now != t.stamp
	t.last = now
	if !settled && !force {
		return
	}
	t.stamp = now
	if err := t.load(); err != nil {
		t.failures.Add(1)
		t.logger.Error("TLS certificates not reloaded: the previous ones stay in use", "error", err)
		return
	}
	t.reloads.Add(1)
	t.logger.Info("TLS certificates reloaded", "file", t.files.Cert, "until", t.until())
}

// until returns when the certificate in use expires.
func (t *TLS) until() time.Time {
	now := t.now.Load()
	if now == nil {
		return time.Unix(0, 0)
	}
	c := now.plain.Certificates[0]
	leaf := c.Leaf
	if leaf == nil {
		var err error
		if leaf, err = x509.ParseCertificate(c.Certificate[0]); err != nil {
			return time.Time{}
		}
	}
	return leaf.NotAfter
}

// Meters calls f for each meter. Those of no certificate are 0.
func (t *TLS) Meters(f func(name, help string, value float64)) {
	if t == nil {
		t = &TLS{}
	}
	f("quipu_tls_reloads_total", "Times that the TLS files were read again.", float64(t.reloads.Load()))
	f("quipu_tls_reload_failures_total", "Times that they could not be: those from before stay in use.", float64(t.failures.Load()))
	f("quipu_tls_expiry_timestamp_seconds", "When the TLS certificate expires, in Unix seconds.", float64(t.until().Unix()))
}

// Check returns why the files can't be used.
func (f TLSFiles) Check() error {
	if f.Cert == "" {
		if f.ClientCA != "" {
			return errors.New("client certificates need TLS: give it --tls-cert and --tls-key")
		}
		return nil
	}
	_, err := LoadTLS(f, slog.Default())
	return err
}
