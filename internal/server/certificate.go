package server

import (
	"crypto/x509"
	"unicode/utf8"
)

// The fields of a certificate that can be mapped to grants.
const (
	fieldCN    = "CN"
	fieldO     = "O"
	fieldOU    = "OU"
	fieldDNS   = "DNS"
	fieldURI   = "URI"
	fieldEmail = "EMAIL"
)

// CertificateField reports whether a certificate has a field of a name.
func CertificateField(name string) bool {
	switch name {
	case fieldCN, fieldO, fieldOU, fieldDNS, fieldURI, fieldEmail:
		return true
	}
	return false
}

// certificateFields returns who a certificate is of.
func certificateFields(cert *x509.Certificate) map[string][]string {
	fields := map[string][]string{}
	add := func(field string, values ...string) {
		for _, v := range values {
			if v != "" && utf8.ValidString(v) {
				fields[field] = append(fields[field], v)
			}
		}
	}
	add(fieldCN, cert.Subject.CommonName)
	add(fieldO, cert.Subject.Organization...)
	add(fieldOU, cert.Subject.OrganizationalUnit...)
	add(fieldDNS, cert.DNSNames...)
	add(fieldEmail, cert.EmailAddresses...)
	for _, u := range cert.URIs {
		add(fieldURI, u.String())
	}
	return fields
}

// holderOf returns the name of a certificate's holder: where it is a program, its URI.
func holderOf(fields map[string][]string) string {
	for _, field := range []string{fieldURI, fieldCN, fieldDNS, fieldEmail, fieldO} {
		if values := fields[field]; len(values) > 0 {
			return values[0]
		}
	}
	return ""
}
