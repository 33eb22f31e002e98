package jwks_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/quipudb/quipu/internal/jwks"
	"github.com/quipudb/quipu/internal/jwt"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.DiscardHandler)

// A key is one of an issuer.
type key struct {
	id      string
	private ed25519.PrivateKey
}

func newKey(t *testing.T, id string) key {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key{id, private}
}

func setOf(keys ...key) string {
	var all []string
	for _, k := range keys {
		public, _ := k.private.Public().(ed25519.PublicKey)
		all = append(all, fmt.Sprintf(`{"kty":"OKP","crv":"Ed25519","kid":%q,"x":%q}`, k.id, base64.RawURLEncoding.EncodeToString(public)))
	}
	return `{"keys":[` + strings.Join(all, ",") + `]}`
}

func (k key) token(t *testing.T) string {
	t.Helper()
	encode := func(v any) string {
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(raw)
	}
	text := encode(map[string]any{"alg": "EdDSA", "kid": k.id}) + "." + encode(map[string]any{"iss": "i", "aud": "a", "sub": "s", "exp": time.Now().Unix() + 60})
	return text + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(k.private, []byte(text)))
}

func check() jwt.Check { return jwt.Check{Issuer: "i", Audience: "a", Now: time.Now()} }

// An issuer that rotates its keys is asked once for a key that nobody knows, and not for every
// made-up token.
func TestRotation(t *testing.T) {
	first, second := newKey(t, "1"), newKey(t, "2")
	var set atomic.Value
	set.Store(setOf(first))
	var asked atomic.Int64
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = w.Write([]byte(set.Load().(string)))
	}))
	defer web.Close()
	defer http.DefaultClient.CloseIdleConnections()
	s, err := jwks.New(t.Context(), web.URL, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Verify(t.Context(), first.token(t), check()); err != nil {
		t.Error(err)
	}
	set.Store(setOf(second))
	for range 100 { // It was read just now.
		if _, err := s.Verify(t.Context(), second.token(t), check()); !errors.Is(err, jwt.ErrUnknownKey) {
			t.Fatalf("a key that is not known yet: %v", err)
		}
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
	s.Refresh()
	for deadline := time.Now().Add(20 * time.Second); ; {
		_, err := s.Verify(t.Context(), second.token(t), check())
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	if _, err := s.Verify(t.Context(), first.token(t), check()); err == nil {
		t.Error("a key that was taken out of the set is still taken")
	}
}

// An issuer that can't be reached, or answers nonsense, does not end the server, and what was
// known stays.
func TestIssuerAway(t *testing.T) {
	k := newKey(t, "1")
	answer := atomic.Value{}
	answer.Store("nonsense")
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(answer.Load().(string))) }))
	defer web.Close()
	s, err := jwks.New(t.Context(), web.URL, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Verify(t.Context(), k.token(t), check()); err == nil {
		t.Error("a token was taken without keys")
	}
	answer.Store(setOf(k))
	s.Refresh()
	for deadline := time.Now().Add(20 * time.Second); ; {
		_, err := s.Verify(t.Context(), k.token(t), check())
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	answer.Store(strings.Repeat(" ", jwt.SetBytesMax+1) + setOf())
	before := s.Generation()
	s.Refresh()
	if _, err := s.Verify(t.Context(), k.token(t), check()); err != nil || s.Generation() != before {
		t.Errorf("after a bad answer: %v", err)
	}
}

func TestFiles(t *testing.T) {
	k := newKey(t, "1")
	file := filepath.Join(t.TempDir(), "jwks.json")
	if _, err := jwks.New(t.Context(), file, quiet); err == nil {
		t.Error("a file that is not there")
	}
	if err := os.WriteFile(file, []byte(setOf(k)), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := jwks.New(t.Context(), file, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Verify(t.Context(), k.token(t), check()); err != nil {
		t.Error(err)
	}
}

func TestNames(t *testing.T) {
	for _, good := range []string{"jwks.json", "/etc/jwks.json", "https://issuer/keys", "http://127.0.0.1:1/keys", "http://[::1]/k", "http://localhost/k"} {
		if err := jwks.Check(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"http://issuer/keys", "ftp://issuer/keys", "https://", "file:///etc/passwd", "http://127.0.0.1.evil.example/k"} {
		if err := jwks.Check(bad); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}
