package server_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quipudb/quipu/internal/access"
	"github.com/quipudb/quipu/internal/server"
)

func gateOf(t *testing.T, o server.GateOptions, keys ...string) *server.Gate {
	t.Helper()
	var err error
	if o.Keys, err = server.NewKeys(keys); err != nil {
		t.Fatal(err)
	}
	o.Logger = quiet
	return server.NewGate(o)
}

// An address that guesses is refused unheard after some failures, and heard again later. Others
// are not concerned; those of one /64 are one.
func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gateOf(t, server.GateOptions{}, "secret")
		enter := func(addr, key string) error {
			_, err := g.Enter(t.Context(), server.Caller{Door: "rest", Addr: addr}, key)
			return err
		}
		const bad = "192.0.2.1:1000"
		failed := 0
		for i := range 200 {
			err := enter(bad, fmt.Sprint("guess", i))
			if errors.Is(err, server.ErrCredentials) {
				failed++
			} else if _, ok := errors.AsType[*server.TooManyError](err); !ok {
				t.Fatal(err)
			}
		}
		if failed != 60 {
			t.Errorf("%d guesses were heard", failed)
		}
		if _, ok := errors.AsType[*server.TooManyError](enter("192.0.2.1:2", "secret")); !ok {
			t.Error("the right key was heard, as any guess would be")
		}
		if err := enter("192.0.2.2:1", "secret"); err != nil {
			t.Error(err)
		}
		<-time.After(2 * time.Second)
		if err := enter(bad, "secret"); err != nil {
			t.Errorf("later: %v", err)
		}
		for i := range 100 {
			_ = enter(fmt.Sprintf("[2001:db8::%x]:1", i+1), "guess")
		}
		if _, ok := errors.AsType[*server.TooManyError](enter("[2001:db8::ffff]:1", "secret")); !ok {
			t.Error("another address of the same network was heard")
		}
		if err := enter("[2001:db8:0:1::1]:1", "secret"); err != nil {
			t.Error(err)
		}
		for i := range 30_000 { // more addresses than are remembered
			_ = enter(fmt.Sprintf("10.%d.%d.1:1", i>>8, i&255), "guess")
		}
	})
}

// What a gate logs tells nobody a key.
func TestNothingIsLogged(t *testing.T) {
	var log strings.Builder
	keys, err := server.NewKeys([]string{"sekret-right"})
	if err != nil {
		t.Fatal(err)
	}
	g := server.NewGate(server.GateOptions{Keys: keys, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for _, key := range []string{"sekret-wrong", "qk_sekret", "sekret.sekret.sekret", "sekret-right"} {
		who, _ := g.Enter(t.Context(), server.Caller{Door: "rest", Addr: "192.0.2.1:1"}, key)
		if who != nil {
			g.Audit(who, server.Caller{}, server.Act{Act: "x"})
		}
	}
	if text := log.String(); strings.Contains(text, "sekret") || !strings.Contains(text, "192.0.2.1") {
		t.Errorf("log: %s", text)
	}
}

// The audit log is bounded, and tells the latest first.
func TestActs(t *testing.T) {
	g := gateOf(t, server.GateOptions{}, "secret")
	who := access.Everything(access.Configured, "root")
	for i := range 2500 {
		g.Audit(who, server.Caller{}, server.Act{Act: fmt.Sprint(i)})
	}
	acts := g.Acts(5000)
	if len(acts) != 1000 || acts[0].Act != "2499" || acts[999].Act != "1500" {
		t.Errorf("%d acts, from %s to %s", len(acts), acts[0].Act, acts[len(acts)-1].Act)
	}
}

// An authority issues certificates.
type authority struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	dir  string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return a
}

// issue writes a certificate and its key to files, and returns them.
func (a *authority) issue(name string, c x509.Certificate) (certFile, keyFile string, cert tls.Certificate) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c.SerialNumber = big.NewInt(time.Now().UnixNano())
	if c.NotAfter.IsZero() {
		c.NotAfter = time.Now().Add(time.Hour)
	}
	c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	der, err := x509.CreateCertificate(rand.Reader, &c, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(a.dir, name+".pem"), filepath.Join(a.dir, name+".key")
	a.write(certFile, "CERTIFICATE", der)
	a.write(keyFile, "PRIVATE KEY", private)
	if cert, err = tls.LoadX509KeyPair(certFile, keyFile); err != nil {
		a.t.Fatal(err)
	}
	return certFile, keyFile, cert
}

func (a *authority) write(file, kind string, der []byte) {
	a.t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

func (a *authority) file() string {
	file := filepath.Join(a.dir, "ca.pem")
	a.write(file, "CERTIFICATE", a.cert.Raw)
	return file
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// shake makes a TLS connection, and returns what the server knows of it.
func shake(t *testing.T, files *server.TLS, client *tls.Config) (tls.ConnectionState, tls.ConnectionState, error) {
	t.Helper()
	a, b := net.Pipe()
	defer func() { _, _ = a.Close(), b.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s := tls.Server(a, files.Web())
	done := make(chan error, 1)
	go func() {
		err := s.HandshakeContext(ctx)
		if err == nil {
			_, err = s.Write([]byte("x"))
		}
		done <- err
	}()
	c := tls.Client(b, client)
	err := c.HandshakeContext(ctx)
	if err == nil {
		_, err = io.ReadFull(c, make([]byte, 1)) // in TLS 1.3 a client finds out late that it was refused
	}
	if err != nil {
		_ = b.Close()
	}
	return s.ConnectionState(), c.ConnectionState(), errors.Join(err, <-done)
}

// Certificates of clients are mapped to grants by what they say; those of others, and what is
// not mapped, are nobody's.
func TestCertificates(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	certFile, keyFile, _ := ours.issue("server", x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	files, err := server.LoadTLS(server.TLSFiles{Cert: certFile, Key: keyFile, ClientCA: ours.file()}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	mappings, err := access.ParseMappings([]string{"CN=billing => read:shop", "uri=spiffe://x/stock => write:shop/stock:*", "OU=* => read:{}"})
	if err != nil {
		t.Fatal(err)
	}
	g := gateOf(t, server.GateOptions{CertMap: mappings})
	uri, _ := url.Parse("spiffe://x/stock")
	f := func(a *authority, c x509.Certificate, name, rules string) {
		t.Helper()
		_, _, cert := a.issue("client", c)
		state, _, err := shake(t, files, &tls.Config{RootCAs: ours.pool(), ServerName: "127.0.0.1", Certificates: []tls.Certificate{cert}})
		if a != ours {
			if err == nil {
				t.Error("a certificate of another authority was taken")
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		who := g.Certificate(&state)
		switch {
		case who == nil && rules == "":
		case who == nil:
			t.Errorf("nobody, want %s", name)
		case who.Name != name || strings.Join(access.RuleTexts(who.Rules), ",") != rules || who.UntilMS == 0:
			t.Errorf("%s with %q until %d; want %s with %q", who.Name, access.RuleTexts(who.Rules), who.UntilMS, name, rules)
		}
	}
	f(ours, x509.Certificate{Subject: pkix.Name{CommonName: "billing"}}, "certificate:billing", "read:shop")
	f(ours, x509.Certificate{Subject: pkix.Name{CommonName: "other"}, URIs: []*url.URL{uri}}, "certificate:spiffe://x/stock", "write:shop/stock:*")
	f(ours, x509.Certificate{Subject: pkix.Name{CommonName: "nobody"}}, "", "")
	f(ours, x509.Certificate{Subject: pkix.Name{CommonName: "a\nb", OrganizationalUnit: []string{"acme", "*", "a/b"}}}, "certificate:a.b", "read:acme")
	f(theirs, x509.Certificate{Subject: pkix.Name{CommonName: "billing"}}, "", "")
	if g.Certificate(nil) != nil || g.Certificate(&tls.ConnectionState{}) != nil {
		t.Error("no certificate is somebody's")
	}
	state, _, err := shake(t, files, &tls.Config{RootCAs: ours.pool(), ServerName: "127.0.0.1"})
	if err != nil || g.Certificate(&state) != nil {
		t.Errorf("a client without a certificate: %v", err)
	}
	if _, _, err := shake(t, files, &tls.Config{RootCAs: ours.pool(), ServerName: "127.0.0.1", MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}); err == nil {
		t.Error("TLS 1.1 was taken")
	}
}

// Files that change are in use for the next connection; files that are broken are not.
func TestReload(t *testing.T) {
	a := newAuthority(t)
	issue := func(name string) (string, string) {
		cert, key, _ := a.issue("server", x509.Certificate{DNSNames: []string{"quipu", name}})
		return cert, key
	}
	certFile, keyFile := issue("first")
	files, err := server.LoadTLS(server.TLSFiles{Cert: certFile, Key: keyFile}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	cache := tls.NewLRUClientSessionCache(10)
	serves := func(name string) {
		t.Helper()
		_, client, err := shake(t, files, &tls.Config{RootCAs: a.pool(), ServerName: "quipu", ClientSessionCache: cache})
		if err != nil {
			t.Fatal(err)
		}
		if got := client.PeerCertificates[0].DNSNames[1]; got != name {
			t.Errorf("serves %s, want %s", got, name)
		}
	}
	serves("first")
	files.Reload(true)
	serves("first")
	issue("second")
	serves("first")
	files.Reload(false) // sees that they have changed,
	files.Reload(false) // and then that they are whole
	serves("second")
	if err := os.WriteFile(certFile, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	files.Reload(true)
	serves("second")
	issue("third")
	files.Reload(true)
	serves("third")
}
