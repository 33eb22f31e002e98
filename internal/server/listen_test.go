package server_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/quipudb/quipu/internal/server"
)

func TestExposure(t *testing.T) {
	f := func(addr string, exposed, want bool) {
		t.Helper()
		l, _, err := server.Listen{Addr: addr, Exposed: exposed, ConnectionsMax: 1}.Open()
		if err == nil {
			_ = l.Close()
		}
		_, refused := errors.AsType[*server.ExposedError](err)
		if err != nil && !refused {
			t.Fatalf("listen on %q: %v", addr, err)
		}
		if refused == want {
			t.Errorf("listen on %q, exposed %v: %v", addr, exposed, err)
		}
	}
	f("127.0.0.1:0", false, true)
	f("127.9.9.9:0", false, true)
	f("localhost:0", false, true)
	f("0.0.0.0:0", false, false)
	f(":0", false, false)
	f("0.0.0.0:0", true, true)
	f(":0", true, true)

	for _, bad := range []string{"", "nothing", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:99999", "no host:1"} {
		if _, _, err := (server.Listen{Addr: bad, ConnectionsMax: 1}).Open(); err == nil {
			t.Errorf("listen on %q: no error", bad)
		}
	}
}

func TestAddressInUse(t *testing.T) {
	l, _ := listen(t, 1)
	defer func() { _ = l.Close() }()
	if _, _, err := (server.Listen{Addr: l.Addr().String(), ConnectionsMax: 1}).Open(); err == nil {
		t.Error("the address was given twice")
	}
}

// Over the limit a client is told so at once; a place that is given back can
// be taken, and giving it back twice gives one.
func TestConnectionLimit(t *testing.T) {
	l, limited := listen(t, 1)
	accepted := make(chan net.Conn)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	dial := func() net.Conn {
		t.Helper()
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	client := dial()
	first := <-accepted

	over := dial()
	res, err := http.ReadResponse(bufio.NewReader(over), nil)
	if err != nil {
		t.Fatalf("over the limit: %v", err)
	}
	body, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil || res.StatusCode != http.StatusServiceUnavailable || !json.Valid(body) {
		t.Errorf("over the limit: %d %q, %v", res.StatusCode, body, err)
	}
	if n, err := over.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("the refused connection is open")
	}
	if n := limited.Connections(); n != (server.Connections{Open: 1, Refused: 1}) {
		t.Errorf("%+v", n)
	}
	_ = first.Close()
	_ = first.Close()
	if n := limited.Connections(); n.Open != 0 {
		t.Errorf("open %d after close", n.Open)
	}
	third := dial()
	second := <-accepted
	for _, c := range []net.Conn{client, over, third, second} {
		_ = c.Close()
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	<-ended
}

func TestTLS(t *testing.T) {
	certFile, keyFile, pool := selfSigned(t)
	files, err := server.LoadTLS(server.TLSFiles{Cert: certFile, Key: keyFile}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	l, _, err := server.Listen{Addr: "127.0.0.1:0", ConnectionsMax: 10, TLS: files.Web()}.Open()
	if err != nil {
		t.Fatal(err)
	}
	door := server.HTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Proto)
	}), time.Minute, quiet)
	served := make(chan error, 1)
	go func() { served <- door.Serve(l) }()
	f := func(transport *http.Transport, want string) {
		t.Helper()
		transport.TLSClientConfig = &tls.Config{RootCAs: pool}
		defer transport.CloseIdleConnections()
		got, err := get(t.Context(), &http.Client{Transport: transport}, "https://"+l.Addr().String())
		if err != nil || got != want {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
	f(&http.Transport{}, "HTTP/1.1")
	f(&http.Transport{ForceAttemptHTTP2: true}, "HTTP/2.0")
	heldBack(t, l.Addr().String(), pool)
	if err := door.Shutdown(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
	<-served

	if _, err := server.LoadTLS(server.TLSFiles{Cert: certFile, Key: certFile}, quiet); err == nil {
		t.Error("a certificate was taken for a key")
	}
	if _, err := server.LoadTLS(server.TLSFiles{Cert: certFile + "x", Key: keyFile}, quiet); err == nil {
		t.Error("a file that is not there was loaded")
	}
}

// heldBack checks how much the server lets one HTTP/2 connection begin and send
// before anything is read of it.
func heldBack(t *testing.T, addr string, pool *x509.CertPool) {
	t.Helper()
	c, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: pool, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(c, c)
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	frame, err := framer.ReadFrame()
	if err != nil {
		t.Fatal(err)
	}
	settings, ok := frame.(*http2.SettingsFrame)
	if !ok {
		t.Fatalf("the server began with %v", frame)
	}
	f := func(id http2.SettingID, most uint32) {
		t.Helper()
		if value, ok := settings.Value(id); !ok || value > most {
			t.Errorf("%v is %d (%t), want at most %d", id, value, ok, most)
		}
	}
	f(http2.SettingMaxConcurrentStreams, 100)
	f(http2.SettingInitialWindowSize, 64<<10)
}

// selfSigned writes a certificate for 127.0.0.1 and its key.
func selfSigned(t *testing.T) (certFile, keyFile string, pool *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotAfter:     time.Now().Add(time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, der []byte) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	parsed, err := x509.ParseCertificate(cert)
	if err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AddCert(parsed)
	return write("cert.pem", "CERTIFICATE", cert), write("key.pem", "PRIVATE KEY", private), pool
}
