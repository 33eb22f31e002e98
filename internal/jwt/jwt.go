// Package jwt verifies JSON web tokens (RFC 7519) that are signed by RS256, ES256 or EdDSA,
// with keys from a JSON web key set.
//
// It is small because it does one thing. The key decides the algorithm, and the head of a
// token has to agree with it: so there is no token that is "signed" by none, and none that
// uses a public key as the secret of an HMAC. A token has to expire, has to come from the
// issuer and be meant for the audience that are asked for, and may have no critical
// extension. Package jwks fetches key sets; this one is pure.
package jwt

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"time"
)

// TokenBytesMax is how long a token may be.
const TokenBytesMax = 8 << 10

// ErrUnknownKey is returned for a token whose key is not in the set. Another version of the
// set may have it.
var ErrUnknownKey = errors.New("no key of the set has the token's kid and algorithm")

// Claims are what a token says.
type Claims struct {
	Subject string
	Expires time.Time
	all     map[string]any
}

// A Check is what must be true of a token besides its signature.
type Check struct {
	Issuer   string
	Audience string
	Leeway   time.Duration // by which clocks may differ
	Now      time.Time
}

// Looks reports whether something may be a token: three parts between dots.
func Looks(text string) bool {
	return strings.Count(text, ".") == 2 && !strings.HasPrefix(text, ".") && len(text) <= TokenBytesMax
}

// Verify returns the claims of a token that one of the keys has signed.
func (s *Set) Verify(token string, c Check) (*Claims, error) {
	if len(token) > TokenBytesMax {
		return nil, fmt.Errorf("token of %d bytes: at most %d", len(token), TokenBytesMax)
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return nil, errors.New("a token has three parts")
	}
	var head struct {
		Algorithm string          `json:"alg"`
		KeyID     string          `json:"kid"`
		Critical  json.RawMessage `json:"crit"`
	}
	if err := decodePart(parts[0], &head); err != nil {
		return nil, fmt.Errorf("head: %w", err)
	}
	if head.Critical != nil {
		return nil, errors.New("head: critical extensions are not supported")
	}
	signature, err := decodeBytes(parts[2])
	if err != nil {
		return nil, fmt.Errorf("signature: %w", err)
	}
	keys := s.find(head.KeyID, head.Algorithm)
	if len(keys) == 0 {
		return nil, ErrUnknownKey
	}
	digest := sha256.Sum256([]byte(token[:len(parts[0])+1+len(parts[1])]))
	signed := token[:len(parts[0])+1+len(parts[1])]
	if !slices.ContainsFunc(keys, func(k *Key) bool { return k.signed(signed, digest, signature) }) {
		return nil, errors.New("the signature is wrong")
	}
	return readClaims(parts[1], c)
}

// signed reports whether the key has made a signature.
func (k *Key) signed(text string, digest [sha256.Size]byte, signature []byte) bool {
	switch public := k.public.(type) {
	case *rsa.PublicKey:
		return rsa.VerifyPKCS1v15(public, crypto.SHA256, digest[:], signature) == nil
	case *ecdsa.PublicKey:
		const half = 32 // bytes of a number of P-256
		if len(signature) != 2*half {
			return false
		}
		r, s := new(big.Int).SetBytes(signature[:half]), new(big.Int).SetBytes(signature[half:])
		return ecdsa.Verify(public, digest[:], r, s)
	case ed25519.PublicKey:
		return ed25519.Verify(public, []byte(text), signature)
	}
	return false
}

// readClaims reads and checks what a token says.
func readClaims(part string, c Check) (*Claims, error) {
	var all map[string]any
	if err := decodePart(part, &all); err != nil {
		return nil, fmt.Errorf("claims: %w", err)
	}
	if issuer, _ := all["iss"].(string); issuer != c.Issuer {
		return nil, errors.New("the token is of another issuer")
	}
	if !slices.Contains(texts(all["aud"]), c.Audience) {
		return nil, errors.New("the token is for another audience")
	}
	expires, ok := moment(all["exp"])
	if !ok {
		return nil, errors.New("exp: a token must expire")
	}
	if !c.Now.Before(expires.Add(c.Leeway)) {
		return nil, errors.New("the token has expired")
	}
	if raw, some := all["nbf"]; some {
		from, ok := moment(raw)
		if !ok {
			return nil, errors.New("nbf: want a number of seconds")
		}
		if c.Now.Before(from.Add(-c.Leeway)) {
			return nil, errors.New("the token is not valid yet")
		}
	}
	subject, _ := all["sub"].(string)
	return &Claims{Subject: subject, Expires: expires.Add(c.Leeway), all: all}, nil
}

// moment returns the time that a claim is, within the years that people will see.
func moment(claim any) (time.Time, bool) {
	seconds, ok := claim.(float64)
	if !ok || math.IsNaN(seconds) || seconds < 0 || seconds > 1<<40 {
		return time.Time{}, false
	}
	return time.Unix(int64(seconds), 0), true
}

// Values returns the values of a claim: a string, the strings of an array, or the words of a
// scope. A name that no claim has may be a path, with dots between.
func (c *Claims) Values(name string) []string {
	value, ok := c.all[name]
	if !ok {
		if value, ok = walk(c.all, name); !ok {
			return nil
		}
	}
	if text, is := value.(string); is && (name == "scope" || name == "scp") {
		return strings.Fields(text)
	}
	return texts(value)
}

func walk(in map[string]any, path string) (any, bool) {
	first, rest, more := strings.Cut(path, ".")
	value, ok := in[first]
	if !ok || !more {
		return value, ok
	}
	inner, ok := value.(map[string]any)
	if !ok {
		return nil, false
	}
	return walk(inner, rest)
}

// texts returns a string, or the strings of an array.
func texts(value any) (all []string) {
	switch v := value.(type) {
	case string:
		return []string{v}
	case []any:
		for _, one := range v {
			if text, ok := one.(string); ok {
				all = append(all, text)
			}
		}
	}
	return all
}

func decodePart(part string, into any) error {
	raw, err := decodeBytes(part)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}

// decodeBytes decodes base64 as RFC 7515 has it. Package base64 would skip line ends.
func decodeBytes(text string) ([]byte, error) {
	if strings.ContainsAny(text, "\r\n") {
		return nil, errors.New("a line end in base64")
	}
	return base64.RawURLEncoding.Strict().DecodeString(text)
}
