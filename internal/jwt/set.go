package jwt

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
)

// The limits of a key set.
const (
	SetBytesMax = 1 << 20
	KeysMax     = 100

	rsaBitsMin = 2048
	rsaBitsMax = 8192
	triesMax   = 4 // keys that are tried for a token that names none
)

// The algorithms, as tokens call them.
const (
	rs256 = "RS256"
	es256 = "ES256"
	eddsa = "EdDSA"
)

// A Key is a public key of a set.
type Key struct {
	id        string
	algorithm string
	public    crypto.PublicKey
}

// A Set is public keys. It does not change.
type Set struct{ keys []Key }

// Len returns how many keys there are.
func (s *Set) Len() int { return len(s.keys) }

// find returns the keys that may have signed a token: those of its algorithm, and of the id
// that it names, if it names one.
func (s *Set) find(id, algorithm string) (found []*Key) {
	for i := range s.keys {
		if k := &s.keys[i]; k.algorithm == algorithm && (id == "" || k.id == id) && len(found) < triesMax {
			found = append(found, k)
		}
	}
	return found
}

// ParseSet reads a JSON web key set (RFC 7517). Keys that are for something else than
// signatures of the supported algorithms are passed over, as sets have them too; one that is
// for them and is broken or too weak is an error, and so is a set without any.
func ParseSet(raw []byte) (*Set, error) {
	if len(raw) > SetBytesMax {
		return nil, fmt.Errorf("key set of %d bytes: at most %d", len(raw), SetBytesMax)
	}
	var doc struct {
		Keys []webKey `json:"keys"`
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, fmt.Errorf("key set: %w", err)
	}
	if len(doc.Keys) > KeysMax {
		return nil, fmt.Errorf("key set of %d keys: at most %d", len(doc.Keys), KeysMax)
	}
	s := &Set{}
	for i := range doc.Keys {
		k, err := doc.Keys[i].key()
		if err != nil {
			return nil, fmt.Errorf("key %d of the set (kid %.40q): %w", i+1, doc.Keys[i].ID, err)
		}
		if k.public != nil {
			s.keys = append(s.keys, k)
		}
	}
	if len(s.keys) == 0 {
		return nil, errors.New("key set: it has no key for RS256, ES256 or EdDSA")
	}
	return s, nil
}

// A webKey is a key as RFC 7517 and RFC 8037 write it.
type webKey struct {
	Type      string `json:"kty"`
	ID        string `json:"kid"`
	Use       string `json:"use"`
	Algorithm string `json:"alg"`
	Curve     string `json:"crv"`
	N         string `json:"n"`
	E         string `json:"e"`
	X         string `json:"x"`
	Y         string `json:"y"`
}

// key returns the key, without a public part if it is for something else.
func (w *webKey) key() (k Key, err error) {
	k = Key{id: w.ID}
	if w.Use != "" && w.Use != "sig" {
		return k, nil
	}
	switch {
	case w.Type == "RSA":
		k.algorithm = rs256
	case w.Type == "EC" && w.Curve == "P-256":
		k.algorithm = es256
	case w.Type == "OKP" && w.Curve == "Ed25519":
		k.algorithm = eddsa
	default:
		return k, nil
	}
	if w.Algorithm != "" && w.Algorithm != k.algorithm && (k.algorithm != eddsa || w.Algorithm != "Ed25519") {
		return k, nil
	}
	switch k.algorithm {
	case rs256:
		k.public, err = w.rsa()
	case es256:
		k.public, err = w.ecdsa()
	case eddsa:
		k.public, err = w.ed25519()
	}
	return k, err
}

func (w *webKey) rsa() (crypto.PublicKey, error) {
	n, err := decodeBytes(w.N)
	if err != nil {
		return nil, fmt.Errorf("n: %w", err)
	}
	e, err := decodeBytes(w.E)
	if err != nil {
		return nil, fmt.Errorf("e: %w", err)
	}
	modulus, exponent := new(big.Int).SetBytes(n), new(big.Int).SetBytes(e)
	if bits := modulus.BitLen(); bits < rsaBitsMin || bits > rsaBitsMax {
		return nil, fmt.Errorf("RSA key of %d bits: want %d to %d", bits, rsaBitsMin, rsaBitsMax)
	}
	if modulus.Bit(0) == 0 || exponent.BitLen() > 31 || exponent.Int64() < 3 || exponent.Bit(0) == 0 {
		return nil, errors.New("the numbers of the RSA key are no key")
	}
	return &rsa.PublicKey{N: modulus, E: int(exponent.Int64())}, nil
}

func (w *webKey) ecdsa() (crypto.PublicKey, error) {
	x, err := decodeBytes(w.X)
	if err != nil {
		return nil, fmt.Errorf("x: %w", err)
	}
	y, err := decodeBytes(w.Y)
	if err != nil {
		return nil, fmt.Errorf("y: %w", err)
	}
	const half = 32
	if len(x) != half || len(y) != half {
		return nil, errors.New("the numbers of a P-256 key have 32 bytes")
	}
	point := append(append([]byte{4}, x...), y...) // uncompressed, which is checked to be on the curve
	return ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
}

func (w *webKey) ed25519() (crypto.PublicKey, error) {
	x, err := decodeBytes(w.X)
	if err != nil {
		return nil, fmt.Errorf("x: %w", err)
	}
	if len(x) != ed25519.PublicKeySize {
		return nil, errors.New("an Ed25519 key has 32 bytes")
	}
	return ed25519.PublicKey(x), nil
}
