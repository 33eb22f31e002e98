package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/quipudb/quipu/internal/load/redisproc"
	"github.com/quipudb/quipu/internal/pgtest"
)

// A Redis is reached by TLS if its URL says so, and only if each side trusts the other.
func TestRedisByTLS(t *testing.T) {
	ca, stranger := newCA(t), newCA(t)
	root, strange := filepath.Join(ca.dir, "ca.pem"), filepath.Join(stranger.dir, "ca.pem")
	certFile, keyFile := ca.issue("redis", 300)
	ownCert, ownKey := ca.issue("quipu", 301)
	strangeCert, strangeKey := stranger.issue("quipu", 302)
	serve := func(clients string) (url string) {
		t.Helper()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(l.Addr().String())
		_ = l.Close()
		redis, err := redisproc.Start(t.Context(), t.TempDir(), "--tls-port", port, "--tls-cert-file", certFile, "--tls-key-file", keyFile,
			"--tls-ca-cert-file", root, "--tls-auth-clients", clients)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := redis.Stop(); err != nil {
				t.Error(err)
			}
		})
		return "rediss://127.0.0.1:" + port
	}
	open, mutual := serve("no"), serve("yes")
	own := "&sslcert=" + ownCert + "&sslkey=" + ownKey

	reaches(t, open, "SSL_CERT_FILE="+root)
	reaches(t, open+"?sslrootcert="+root)
	reaches(t, strings.Replace(open, "127.0.0.1", "localhost", 1)+"?sslrootcert="+root)
	refused(t, 3, "certificate", "serve", "--http", "127.0.0.1:0", "--store", open)
	refused(t, 3, "certificate", "serve", "--http", "127.0.0.1:0", "--store", open+"?sslrootcert="+strange)
	refused(t, 3, "127.0.0.2", "serve", "--http", "127.0.0.1:0", "--store", strings.Replace(open, "127.0.0.1", "127.0.0.2", 1)+"?sslrootcert="+root)

	reaches(t, mutual+"?sslrootcert="+root+own)
	refused(t, 3, "", "serve", "--http", "127.0.0.1:0", "--store", mutual+"?sslrootcert="+root)
	refused(t, 3, "", "serve", "--http", "127.0.0.1:0", "--store", mutual+"?sslrootcert="+root+"&sslcert="+strangeCert+"&sslkey="+strangeKey)

	for query, text := range map[string]string{
		"sslmode=require":                           "it has no parameters but sslrootcert, sslcert and sslkey",
		"sslrootcert=/nonexistent":                  "sslrootcert: open /nonexistent",
		"sslrootcert=" + keyFile:                    "has no certificate",
		"sslcert=" + ownCert:                        "want sslcert and sslkey together",
		"sslcert=" + ownCert + "&sslkey=" + keyFile: "sslcert and sslkey: tls: private key does not match",
		"sslrootcert=":                              "want one file for sslrootcert",
	} {
		refused(t, 2, text, "serve", "--store", open+"?"+query)
	}
	refused(t, 2, "no options are taken", "serve", "--store", strings.Replace(open, "rediss", "redis", 1)+"?sslrootcert="+root)
}

// A PostgreSQL is reached by TLS with each of the modes of libpq, and is who it says it is
// as far as the mode asks for it.
func TestPostgresByTLS(t *testing.T) {
	// Each server has the port 5432 of an address of its own, of which there are many here.
	ip := net.IPv4(127, 83, byte(rand.N(256)), byte(1+rand.N(250)))
	ca, stranger := newCA(t), newCA(t)
	root, strange := filepath.Join(ca.dir, "ca.pem"), filepath.Join(stranger.dir, "ca.pem")
	ownCert, ownKey := ca.issue(pgtest.User, 400) // the name of the role, which the server compares
	otherCert, otherKey := ca.issue("somebody", 401)
	strangeCert, strangeKey := stranger.issue(pgtest.User, 402)
	named, namedKey := ca.issue("named", 403, ip)
	unnamed, unnamedKey := ca.issue("unnamed", 404)

	server := pgtest.For(t, "fsync=off", "listen_addresses="+ip.String())
	// sets makes the server serve a certificate to whom the method lets in.
	sets := func(certFile, keyFile, method string) {
		t.Helper()
		give(t, server, "root.pem", readText(t, root))
		give(t, server, "cert.pem", readText(t, certFile))
		give(t, server, "key.pem", readText(t, keyFile))
		give(t, server, "data/pg_hba.conf", "local all all trust\nhostssl all all 127.0.0.0/8 "+method+"\n")
		give(t, server, "data/postgresql.auto.conf", fmt.Sprintf("ssl = on\nssl_cert_file = '%s'\nssl_key_file = '%s'\nssl_ca_file = '%s'\n",
			server.Path("cert.pem"), server.Path("key.pem"), server.Path("root.pem")))
		if err := server.Stop(); err != nil {
			t.Fatal(err)
		}
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	url := fmt.Sprintf("postgres://%s@%s/postgres?sslmode=", pgtest.User, ip)
	fails := func(text, query string) {
		t.Helper()
		refused(t, 3, text, "serve", "--http", "127.0.0.1:0", "--store", url+query)
	}

	sets(unnamed, unnamedKey, "trust")
	fails("no encryption", "disable")
	reaches(t, url+"require")
	reaches(t, url+"verify-ca&sslrootcert="+root)
	fails("certificate", "verify-ca&sslrootcert="+strange)
	fails(ip.String(), "verify-full&sslrootcert="+root)
	fails("certificate", "verify-full") // not of an issuer that the system trusts

	sets(named, namedKey, "cert")
	own := "&sslcert=" + ownCert + "&sslkey=" + ownKey
	reaches(t, url+"verify-full&sslrootcert="+root+own)
	fails("certificate", "verify-full&sslrootcert="+root)
	fails("certificate", "verify-full&sslrootcert="+root+"&sslcert="+otherCert+"&sslkey="+otherKey)
	fails("", "verify-full&sslrootcert="+root+"&sslcert="+strangeCert+"&sslkey="+strangeKey)
	fails("certificate", "verify-full&sslrootcert="+strange+own)
	refused(t, 2, "", "serve", "--store", url+"verify-full&sslrootcert=/nonexistent")
}

// reaches starts a server that counts in a store, with more in its environment.
func reaches(t *testing.T, store string, env ...string) {
	t.Helper()
	p := start(t, env, "--http", "127.0.0.1:0", "--resp", "off", "--rpc", "off", "--store", store)
	if got := p.client()("add", "a"); got == "" {
		t.Errorf("%s: nothing was added", store)
	}
	if code, _ := p.signal(syscall.SIGTERM); code != 0 {
		t.Errorf("%s: exit %d: %s", store, code, p.stderr)
	}
}

// give writes a file beside a PostgreSQL, which that alone can read.
func give(t *testing.T, s *pgtest.Server, name, text string) {
	t.Helper()
	info, err := os.Stat(s.Dir())
	if err != nil {
		t.Fatal(err)
	}
	file := s.Path(filepath.FromSlash(name))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		if err := os.Chown(file, int(owner.Uid), int(owner.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
}
