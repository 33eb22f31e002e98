package jwt_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/jwt"
)

var b64 = base64.RawURLEncoding

// An issuer signs tokens by all algorithms, and by some that nobody should take.
type issuer struct {
	rsa *rsa.PrivateKey
	ec  *ecdsa.PrivateKey
	ed  ed25519.PrivateKey
}

func newIssuer(t testing.TB) *issuer {
	t.Helper()
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	e, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, d, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &issuer{r, e, d}
}

// jwks returns the public keys.
func (i *issuer) jwks() string {
	point, _ := i.ec.PublicKey.Bytes()
	public, _ := i.ed.Public().(ed25519.PublicKey)
	return fmt.Sprintf(`{"keys":[
		{"kty":"RSA","kid":"r","use":"sig","alg":"RS256","n":%q,"e":%q},
		{"kty":"EC","kid":"e","crv":"P-256","x":%q,"y":%q},
		{"kty":"OKP","kid":"d","crv":"Ed25519","x":%q},
		{"kty":"RSA","kid":"enc","use":"enc","n":"AQAB","e":"AQAB"},
		{"kty":"oct","kid":"h","k":"c2VjcmV0"},
		{"kty":"EC","kid":"p384","crv":"P-384","x":"AA","y":"AA"}]}`,
		b64.EncodeToString(i.rsa.N.Bytes()), b64.EncodeToString(big.NewInt(int64(i.rsa.E)).Bytes()),
		b64.EncodeToString(point[1:33]), b64.EncodeToString(point[33:]), b64.EncodeToString(public))
}

func (i *issuer) sign(t testing.TB, head, claims map[string]any) string {
	t.Helper()
	encode := func(v any) string {
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b64.EncodeToString(raw)
	}
	text := encode(head) + "." + encode(claims)
	digest := sha256.Sum256([]byte(text))
	var signature []byte
	var err error
	switch head["alg"] {
	case "RS256":
		signature, err = rsa.SignPKCS1v15(rand.Reader, i.rsa, crypto.SHA256, digest[:])
	case "PS256":
		signature, err = rsa.SignPSS(rand.Reader, i.rsa, crypto.SHA256, digest[:], nil)
	case "ES256":
		r, s, e := ecdsa.Sign(rand.Reader, i.ec, digest[:])
		signature, err = append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...), e
	case "EdDSA":
		signature = ed25519.Sign(i.ed, []byte(text))
	case "HS256": // with the public key as the secret
		h := hmac.New(sha256.New, i.rsa.N.Bytes())
		h.Write([]byte(text))
		signature = h.Sum(nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + b64.EncodeToString(signature)
}

var now = time.Unix(1_800_000_000, 0)

// claims returns good ones, changed.
func claims(change ...any) map[string]any {
	c := map[string]any{"iss": "https://issuer", "aud": "quipu", "sub": "ana", "exp": now.Unix() + 60, "groups": []string{"a", "b"}, "scope": "x y", "realm": map[string]any{"roles": []string{"r"}}}
	for i := 0; i < len(change); i += 2 {
		if change[i+1] == nil {
			delete(c, change[i].(string))
		} else {
			c[change[i].(string)] = change[i+1]
		}
	}
	return c
}

func head(alg, kid string, more ...any) map[string]any {
	h := map[string]any{"alg": alg, "typ": "JWT"}
	if kid != "" {
		h["kid"] = kid
	}
	for i := 0; i < len(more); i += 2 {
		h[more[i].(string)] = more[i+1]
	}
	return h
}

func TestVerify(t *testing.T) {
	is := newIssuer(t)
	set, err := jwt.ParseSet([]byte(is.jwks()))
	if err != nil || set.Len() != 3 {
		t.Fatalf("%d keys, %v", set.Len(), err)
	}
	check := jwt.Check{Issuer: "https://issuer", Audience: "quipu", Leeway: 10 * time.Second, Now: now}
	good := func(token string) {
		t.Helper()
		c, err := set.Verify(token, check)
		if err != nil || c.Subject != "ana" || fmt.Sprint(c.Values("groups"), c.Values("scope"), c.Values("realm.roles"), c.Values("none"), c.Values("exp")) != "[a b] [x y] [r] [] []" {
			t.Errorf("a good token: %+v, %v", c, err)
		}
	}
	bad := func(token, why string) {
		t.Helper()
		if c, err := set.Verify(token, check); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("taken: %+v, %v; want %q", c, err, why)
		}
	}
	for alg, kid := range map[string]string{"RS256": "r", "ES256": "e", "EdDSA": "d"} {
		good(is.sign(t, head(alg, kid), claims()))
		good(is.sign(t, head(alg, ""), claims()))
		good(is.sign(t, head(alg, kid), claims("aud", []string{"other", "quipu"})))
		good(is.sign(t, head(alg, kid), claims("exp", now.Unix()-9, "nbf", now.Unix()+9)))
		bad(is.sign(t, head(alg, kid), claims("exp", now.Unix()-10)), "expired")
		bad(is.sign(t, head(alg, kid), claims("exp", nil)), "must expire")
		bad(is.sign(t, head(alg, kid), claims("exp", "never")), "must expire")
		bad(is.sign(t, head(alg, kid), claims("exp", -1)), "must expire")
		bad(is.sign(t, head(alg, kid), claims("nbf", now.Unix()+11)), "not valid yet")
		bad(is.sign(t, head(alg, kid), claims("nbf", "x")), "nbf")
		bad(is.sign(t, head(alg, kid), claims("iss", "https://other")), "issuer")
		bad(is.sign(t, head(alg, kid), claims("iss", nil)), "issuer")
		bad(is.sign(t, head(alg, kid), claims("aud", "other")), "audience")
		bad(is.sign(t, head(alg, kid), claims("aud", nil)), "audience")
		bad(is.sign(t, head(alg, kid, "crit", []string{"b64"}), claims()), "critical")
		bad(is.sign(t, head(alg, "other"), claims()), "no key")
		token := is.sign(t, head(alg, kid), claims())
		bad(token[:len(token)-4], "")
		parts := strings.Split(token, ".")
		forged, _ := json.Marshal(claims("sub", "root"))
		bad(parts[0]+"."+b64.EncodeToString(forged)+"."+parts[2], "signature")
		bad(parts[0]+"."+parts[1]+".", "signature")
		bad(parts[0]+"."+parts[1]+"."+parts[2]+"\n", "line end")
		bad(parts[0]+"."+parts[1], "three parts")
	}
	// The algorithm has to be the key's.
	for _, alg := range []string{"none", "None", "", "HS256", "PS256", "RS512", "rs256"} {
		for _, kid := range []string{"r", "e", "d", ""} {
			bad(is.sign(t, head(alg, kid), claims()), "no key")
		}
	}
	bad(is.sign(t, head("RS256", "e"), claims()), "no key")
	bad(is.sign(t, head("ES256", "r"), claims()), "no key")
	bad(newIssuer(t).sign(t, head("RS256", "r"), claims()), "signature is wrong")
	bad(strings.Repeat("a", jwt.TokenBytesMax+1), "at most")
	if _, err := set.Verify(is.sign(t, head("RS256", "new"), claims()), check); !errors.Is(err, jwt.ErrUnknownKey) {
		t.Errorf("a key that is not there: %v", err)
	}
}

func TestSets(t *testing.T) {
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err == nil {
		raw := fmt.Sprintf(`{"keys":[{"kty":"RSA","n":%q,"e":"AQAB"}]}`, b64.EncodeToString(small.N.Bytes()))
		if _, err := jwt.ParseSet([]byte(raw)); err == nil || !strings.Contains(err.Error(), "1024 bits") {
			t.Errorf("a weak key: %v", err)
		}
	}
	for _, bad := range []string{
		``, `[]`, `{}`, `{"keys":[]}`, `{"keys":[{"kty":"oct"}]}`, `{"keys":[{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}]}`,
		`{"keys":[{"kty":"EC","crv":"P-256","x":"` + strings.Repeat("A", 43) + `","y":"` + strings.Repeat("A", 43) + `"}]}`, // not on the curve
		`{"keys":[{"kty":"OKP","crv":"Ed25519","x":"AA"}]}`, `{"keys":[{"kty":"RSA","n":"!","e":"AQAB"}]}`, `{"keys":[` + strings.Repeat(`{},`, jwt.KeysMax) + `{}]}`,
		strings.Repeat(" ", jwt.SetBytesMax+1),
	} {
		if _, err := jwt.ParseSet([]byte(bad)); err == nil {
			t.Errorf("%.80q was taken", bad)
		}
	}
}

// FuzzVerify takes any token. None that nobody has signed is good.
func FuzzVerify(f *testing.F) {
	is := newIssuer(f)
	set, err := jwt.ParseSet([]byte(is.jwks()))
	if err != nil {
		f.Fatal(err)
	}
	known := map[string]bool{}
	for alg, kid := range map[string]string{"RS256": "r", "ES256": "e", "EdDSA": "d"} {
		token := is.sign(f, head(alg, kid), claims())
		known[token] = true
		f.Add(token)
		f.Add(token[1:])
	}
	f.Add("..")
	f.Add("e30.e30.")
	check := jwt.Check{Issuer: "https://issuer", Audience: "quipu", Now: now}
	f.Fuzz(func(t *testing.T, token string) {
		c, err := set.Verify(token, check)
		if err == nil && !known[token] && !strings.HasPrefix(token, "eyJ") {
			t.Fatalf("%q was taken: %+v", token, c)
		}
	})
}

// FuzzParseSet takes any set.
func FuzzParseSet(f *testing.F) {
	f.Add([]byte(newIssuer(f).jwks()))
	f.Add([]byte(`{"keys":[{"kty":"RSA","n":"AQAB","e":""}]}`))
	f.Fuzz(func(_ *testing.T, raw []byte) {
		if set, err := jwt.ParseSet(raw); err == nil {
			_, _ = set.Verify("e30.e30.AA", jwt.Check{})
		}
	})
}
