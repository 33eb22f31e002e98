package main

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quipudb/quipu/client"
)

// as returns what runs client commands with a key.
func (p *process) as(key string) func(args ...string) result {
	return func(args ...string) result {
		p.t.Helper()
		return command(p.t, append([]string{"QUIPU_ADDR=" + p.url, "QUIPU_API_KEY=" + key}, args...)...)
	}
}

// makeKey makes a key, and returns its id and text.
func makeKey(t *testing.T, run func(args ...string) result, args ...string) (id, key string) {
	t.Helper()
	r := run(append([]string{"key", "create"}, args...)...)
	key = strings.TrimSpace(r.stdout)
	parts := strings.Split(key, "_")
	if r.code != 0 || len(parts) != 3 {
		t.Fatalf("key create %q: %d %s%s", args, r.code, r.stdout, r.stderr)
	}
	return parts[1], key
}

// Keys are made, listed, rotated and revoked by command, and outlive the server.
func TestKeyCommands(t *testing.T) {
	dir := t.TempDir()
	p := start(t, nil, "--data", dir, "--http", "127.0.0.1:0")
	nobody := p.as("")
	if r := nobody("add", "a"); r.code != 0 {
		t.Fatalf("an open server: %s", r.stderr)
	}
	if r := nobody("key", "create", "shop", "read:shop"); r.code != 1 || !strings.Contains(r.stderr, "admin:*") {
		t.Errorf("a first key that closes the server: %d %s", r.code, r.stderr)
	}
	_, root := makeKey(t, nobody, "root", "all:*")
	if r := nobody("add", "a"); r.code != 1 || !strings.Contains(r.stderr, "needs an API key") {
		t.Errorf("without a key: %d %s", r.code, r.stderr)
	}
	admin := p.as(root)
	id, shop := makeKey(t, admin, "shop", "read+write:shop/stock:*", "read:shop", "--expires", "90d", "--requests", "1000")
	if r := p.as(shop)("add", "stock:1", "--namespace", "shop"); r.code != 0 || r.stdout != "1\n" {
		t.Errorf("add: %d %s", r.code, r.stderr)
	}
	if r := p.as(shop)("add", "other", "--namespace", "shop"); r.code != 1 || !strings.Contains(r.stderr, "shop is not granted write") {
		t.Errorf("add: %d %s", r.code, r.stderr)
	}
	if r := p.as(shop)("key", "list"); r.code != 1 {
		t.Errorf("key list by shop: %d %s", r.code, r.stdout)
	}
	list := admin("key", "list").stdout
	if !strings.Contains(list, id+"\tactive\t") || !strings.Contains(list, "\tshop\tread+write:shop/stock:* read:shop\n") || strings.Contains(list, shop) {
		t.Errorf("list:\n%s", list)
	}
	r := admin("key", "rotate", id, "--grace", "1h")
	fresh := strings.TrimSpace(r.stdout)
	if r.code != 0 || fresh == shop || !strings.Contains(r.stderr, "accepted until") {
		t.Fatalf("rotate: %d %s%s", r.code, r.stdout, r.stderr)
	}
	if code, _ := p.signal(syscall.SIGTERM); code != 0 {
		t.Fatalf("exit %d: %s", code, p.stderr)
	}
	if text := p.stderr.String(); strings.Contains(text, "qk_") || !strings.Contains(text, "msg=audit") && !strings.Contains(text, `"msg":"audit"`) {
		t.Errorf("log: %s", text)
	}

	p = start(t, nil, "--data", dir, "--http", "127.0.0.1:0", "--log-level", "error")
	admin = p.as(root)
	for _, key := range []string{shop, fresh} {
		if r := p.as(key)("get", "stock:1", "--namespace", "shop"); r.code != 0 || !strings.Contains(r.stdout, "1") {
			t.Errorf("after a restart: %d %s", r.code, r.stderr)
		}
	}
	if r := admin("key", "revoke", id); r.code != 0 {
		t.Fatal(r.stderr)
	}
	for _, key := range []string{shop, fresh} {
		if r := p.as(key)("get", "stock:1", "--namespace", "shop"); r.code != 1 || !strings.Contains(r.stderr, "does not accept this API key") {
			t.Errorf("after it was revoked: %d %s", r.code, r.stderr)
		}
	}
	if list := admin("key", "list").stdout; strings.Contains(list, "shop") {
		t.Errorf("list:\n%s", list)
	}
	if list := admin("key", "list", "--all").stdout; !strings.Contains(list, "revoked") {
		t.Errorf("list --all:\n%s", list)
	}
	if acts := admin("audit").stdout; !strings.Contains(acts, "\troot\t") || !strings.Contains(acts, "DELETE /api/v1/keys/{id}") || !strings.Contains(acts, "done") {
		t.Errorf("audit:\n%s", acts)
	}
	if text := p.stderr.String(); !strings.Contains(text, "audit") {
		t.Errorf("at --log-level error the audit log is silent: %q", text)
	}
}

// Servers over one store have the same keys, and hear of one that is revoked within two seconds.
func TestKeysOverServers(t *testing.T) {
	pg := startPostgres(t)
	a, b := start(t, nil, "--http", "127.0.0.1:0", "--store", pg.URL()), start(t, nil, "--http", "127.0.0.1:0", "--store", pg.URL())
	ask := func(p *process, key string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url+"/api/v1/counters/a", nil)
		if err != nil {
			t.Fatal(err)
		}
		if key != "" {
			r.Header.Set("Authorization", "Bearer "+key)
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		return res.StatusCode
	}
	until := func(what string, is func() bool) time.Duration {
		t.Helper()
		for start := time.Now(); ; {
			if is() {
				return time.Since(start)
			}
			if time.Since(start) > 30*time.Second {
				t.Fatal(what)
			}
		}
	}
	_, root := makeKey(t, a.as(""), "root", "all:*")
	until("b stays open", func() bool { return ask(b, "") == http.StatusUnauthorized })
	if got := ask(b, root); got != http.StatusOK {
		t.Errorf("b by root: %d", got)
	}
	id, key := makeKey(t, b.as(root), "reader", "read:default")
	until("a does not know the key", func() bool { return ask(a, key) == http.StatusOK })
	if r := a.as(root)("key", "revoke", id); r.code != 0 {
		t.Fatal(r.stderr)
	}
	if took := until("b takes the key", func() bool { return ask(b, key) == http.StatusUnauthorized }); took > 5*time.Second {
		t.Errorf("a revoked key was taken for %s", took)
	}
}

// A testCA issues certificates for a test.
type testCA struct {
	t    *testing.T
	dir  string
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newCA(t *testing.T) *testCA {
	t.Helper()
	ca := &testCA{t: t, dir: t.TempDir()}
	var err error
	if ca.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, Subject: pkix.Name{CommonName: "ca"}}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &ca.key.PublicKey, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	if ca.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	ca.write("ca.pem", "CERTIFICATE", der)
	return ca
}

func (ca *testCA) write(name, kind string, der []byte) string {
	ca.t.Helper()
	file := filepath.Join(ca.dir, name)
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		ca.t.Fatal(err)
	}
	return file
}

// issue issues a certificate, and returns its files. It is of this machine, also by other
// addresses.
func (ca *testCA) issue(name string, serial int64, others ...net.IP) (certFile, keyFile string) {
	ca.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		ca.t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour), IPAddresses: append(others, net.IPv4(127, 0, 0, 1)),
		DNSNames: []string{"localhost"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, ca.cert, &key.PublicKey, ca.key)
	if err != nil {
		ca.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		ca.t.Fatal(err)
	}
	return ca.write(name+".pem", "CERTIFICATE", der), ca.write(name+".key", "PRIVATE KEY", private)
}

// trust returns what a client of the server trusts, and shows.
func (ca *testCA) trust(certFile, keyFile string) *tls.Config {
	ca.t.Helper()
	c := &tls.Config{RootCAs: x509.NewCertPool()}
	c.RootCAs.AddCert(ca.cert)
	if certFile != "" {
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			ca.t.Fatal(err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c
}

// Tokens and client certificates, given by a configuration file, open all doors; and a
// certificate that changes is served without a restart.
func TestTokensAndCertificates(t *testing.T) {
	ca := newCA(t)
	certFile, keyFile := ca.issue("server", 100)
	billing := ca.trust(ca.issue("billing", 200))
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	b64 := base64.RawURLEncoding.EncodeToString
	jwksFile := filepath.Join(ca.dir, "jwks.json")
	if err := os.WriteFile(jwksFile, fmt.Appendf(nil, `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"1","x":%q}]}`, b64(public)), 0o600); err != nil {
		t.Fatal(err)
	}
	token := func(groups ...string) string {
		raw, _ := json.Marshal(map[string]any{"iss": "https://issuer", "aud": "quipu", "sub": "ana", "exp": time.Now().Unix() + 300, "groups": groups})
		text := b64([]byte(`{"alg":"EdDSA","kid":"1"}`)) + "." + b64(raw)
		return text + "." + b64(ed25519.Sign(private, []byte(text)))
	}
	config := filepath.Join(ca.dir, "quipu.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, `store: "memory:"
http: 127.0.0.1:0
tls-cert: %s
tls-key: %s
tls-client-ca: %s
cert-grant: ["CN=billing => read+write:shop"]
jwks: %s
jwt-issuer: https://issuer
jwt-audience: quipu
jwt-grant:
  - "groups=shop => read+write:shop/stock:*"
  - "groups=* => read:{}"
anonymous: ["read:public"]
quota-requests: 100000
`, certFile, keyFile, filepath.Join(ca.dir, "ca.pem"), jwksFile), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := command(t, "config", "check", config); r.code != 0 {
		t.Fatalf("config check: %s", r.stderr)
	}
	p := start(t, nil, "--config", config)
	rest := func(conf *tls.Config, bearer, method, path string) int {
		t.Helper()
		transport := &http.Transport{TLSClientConfig: conf}
		defer transport.CloseIdleConnections()
		r, err := http.NewRequestWithContext(t.Context(), method, "https://"+p.addrOf("http")+"/api/v1/namespaces/"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if bearer != "" {
			r.Header.Set("Authorization", "Bearer "+bearer)
		}
		res, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		return res.StatusCode
	}
	f := func(want int, conf *tls.Config, bearer, method, path string) {
		t.Helper()
		if got := rest(conf, bearer, method, path); got != want {
			t.Errorf("%s %s: %d, want %d", method, path, got, want)
		}
	}
	nothing := ca.trust("", "")
	f(200, billing, "", "POST", "shop/counters/a/increment")
	f(403, billing, "", "POST", "other/counters/a/increment")
	f(200, nothing, token("shop"), "POST", "shop/counters/stock:1/increment")
	f(403, nothing, token("shop"), "POST", "shop/counters/a/increment")
	f(200, nothing, token("other"), "GET", "other/counters/a")
	f(403, nothing, token("*"), "GET", "other/counters/a")
	f(401, nothing, token("shop")+"x", "GET", "shop/counters/a")
	f(200, nothing, "", "GET", "public/counters/a")
	f(401, nothing, "", "GET", "shop/counters/a")

	// RESP: the certificate is enough, and a token is a password.
	redis := func(conf *tls.Config, commands ...string) (last string) {
		t.Helper()
		c, err := (&tls.Dialer{Config: conf}).DialContext(t.Context(), "tcp", p.addrOf("resp"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		r := bufio.NewReader(c)
		for _, command := range commands {
			if _, err := io.WriteString(c, command+"\r\n"); err != nil {
				t.Fatal(err)
			}
			if last, err = r.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		return strings.TrimSpace(last)
	}
	for want, got := range map[string]string{
		":2":                                     redis(billing, "INCR a"),
		"-NOPERM No permissions to access a key": redis(nothing, "AUTH shop "+token("shop"), "INCR a"),
		"$19":                                    redis(billing, "ACL WHOAMI"), // certificate:billing
	} {
		if got != want {
			t.Errorf("RESP: %q, want %q", got, want)
		}
	}
	// RPC.
	db, err := client.Dial(t.Context(), p.addrOf("rpc"), client.Options{TLS: billing})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := db.In("shop").Read(t.Context(), "a"); err != nil || r.Value != 2 {
		t.Errorf("RPC: %+v, %v", r, err)
	}
	_ = db.Close()

	// Another certificate is served after a hangup.
	ca.issue("server", 101)
	if err := p.c.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); ; {
		c, err := tls.Dial("tcp", p.addrOf("http"), nothing)
		if err != nil {
			t.Fatal(err)
		}
		serial := c.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
		_ = c.Close()
		if serial == 101 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("certificate %d is still served", serial)
		}
	}
}

// What can't be kept is refused before the server starts.
func TestAccessUsage(t *testing.T) {
	f := func(text string, args ...string) {
		t.Helper()
		refused(t, 2, text, append([]string{"serve", "--store", "memory:"}, args...)...)
	}
	f("--anonymous", "--anonymous", "fly:n")
	f("prefix of keys must end in *", "--anonymous", "read:n/x")
	f("--cert-grant: want --tls-client-ca", "--cert-grant", "CN=a => read:n")
	f("not a field of a certificate", "--tls-client-ca", "x", "--cert-grant", "SERIAL=a => read:n")
	f("--tls-client-ca: want --cert-grant", "--tls-client-ca", "x")
	f("client certificates need TLS", "--tls-client-ca", "x", "--cert-grant", "CN=a => read:n")
	f("--jwks: want --jwt-issuer", "--jwks", "x", "--jwt-audience", "a", "--jwt-grant", "sub=a => read:n")
	f("--jwks: want --jwt-audience", "--jwks", "x", "--jwt-issuer", "a", "--jwt-grant", "sub=a => read:n")
	f("--jwks: want --jwt-grant", "--jwks", "x", "--jwt-issuer", "a", "--jwt-audience", "a")
	f("--jwt-grant: want --jwks", "--jwt-grant", "sub=a => read:n")
	f("want an https URL", "--jwks", "http://issuer.example/x", "--jwt-issuer", "a", "--jwt-audience", "a", "--jwt-grant", "sub=a => read:n")
	f("--jwt-leeway", "--jwt-leeway", "1h")
	f("--quota-writes", "--quota-writes", "-1")
	refused(t, 1, "no such file", "serve", "--store", "memory:", "--http", "127.0.0.1:0", "--jwks", "/nonexistent", "--jwt-issuer", "a", "--jwt-audience", "a", "--jwt-grant", "sub=a => read:n")
	// What is guarded may be reached by others.
	p := serve(t, "--http", "0.0.0.0:0", "--resp", "off", "--rpc", "off", "--require-auth")
	if r := command(t, "QUIPU_ADDR=http://127.0.0.1:"+p.ready[strings.LastIndex(p.ready, ":")+1:], "add", "a"); r.code != 1 || !strings.Contains(r.stderr, "needs an API key") {
		t.Errorf("--require-auth: %d %s", r.code, r.stderr)
	}
	const shut = "there is no key yet: start the server with --api-key"
	if code, _ := p.signal(syscall.SIGTERM); code != 0 || !strings.Contains(p.stderr.String(), shut) {
		t.Errorf("exit %d: %s", code, p.stderr)
	}
	p = serve(t, "--resp", "off", "--rpc", "off", "--require-auth", "--api-key", "secret")
	if code, _ := p.signal(syscall.SIGTERM); code != 0 || strings.Contains(p.stderr.String(), shut) {
		t.Errorf("exit %d: %s", code, p.stderr)
	}
}
