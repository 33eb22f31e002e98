package redisstore

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/url"
	"os"
	"slices"
)

// The parameters of a rediss:// URL, called as in those of PostgreSQL.
const (
	rootParameter = "sslrootcert" // issuers that are trusted in place of those of the system
	certParameter = "sslcert"     // what this side shows
	keyParameter  = "sslkey"
)

// secure adds the certificates that a URL names to what connections use. An error has
// the name of a parameter, and the one of a file.
func secure(c *tls.Config, query string) error {
	given, err := url.ParseQuery(query)
	if err != nil {
		return errors.New("its parameters can't be read")
	}
	for name, values := range given {
		if !slices.Contains([]string{rootParameter, certParameter, keyParameter}, name) {
			return errors.New("it has no parameters but " + rootParameter + ", " + certParameter + " and " + keyParameter)
		}
		if len(values) > 1 || values[0] == "" {
			return errors.New("want one file for " + name)
		}
	}
	root, cert, key := given.Get(rootParameter), given.Get(certParameter), given.Get(keyParameter)
	if (cert == "") != (key == "") {
		return errors.New("want " + certParameter + " and " + keyParameter + " together")
	}
	if root != "" {
		raw, err := os.ReadFile(root)
		if err != nil {
			return errors.New(rootParameter + ": " + err.Error())
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(raw) {
			return errors.New(rootParameter + ": " + root + " has no certificate (PEM)")
		}
	}
	if cert == "" {
		return nil
	}
	if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
		return errors.New(certParameter + " and " + keyParameter + ": " + err.Error())
	}
	// Certificates of clients are replaced too: each connection shows what is there then.
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(cert, key)
		return &pair, err
	}
	return nil
}

// secureTo returns what a connection to an address uses. A host that the URL names must
// prove that name. One that a cluster has told of, perhaps by an address that no
// certificate has, must prove the first name.
func (s *Store) secureTo(addr string, c *tls.Config) *tls.Config {
	host, _, err := net.SplitHostPort(addr)
	if err != nil || host == c.ServerName || !slices.Contains(s.hosts, addr) {
		return c
	}
	own := c.Clone()
	own.ServerName = host
	return own
}
