package access

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/quipudb/quipu/store"
)

// The limits of a roll.
const (
	KeysMax      = 1000 // that are in use, and as many that were revoked
	NameBytesMax = 100
	RollBytes    = 60 * store.PartBytesMax // of a roll in the store
)

// SecretBytes is how many random bytes a secret has, and IDBytes an id.
const (
	SecretBytes = 32
	IDBytes     = 6
)

// keyPrefix is what every key in a store begins with, so that people and scanners for leaked
// secrets know one when they see it.
const keyPrefix = "qk_"

// letters are those of secrets: base32 in small letters, which survives every shell, URL and
// double click.
var letters = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// KeyText returns a key as its holder has it: the id, by which it is found, and the secret.
func KeyText(id string, secret [SecretBytes]byte) string {
	return keyPrefix + id + "_" + letters.EncodeToString(secret[:])
}

// ParseKey returns the id and the digest of a key, and whether it looks like one.
//
// The digest is plain SHA-256. A slow hash is for what people think up: it makes guessing
// dear. A secret of 256 random bits can't be guessed however fast guesses are, and every
// request pays for the hash.
func ParseKey(key string) (id string, digest [sha256.Size]byte, ok bool) {
	rest, ok := strings.CutPrefix(key, keyPrefix)
	if !ok || len(rest) != 2*IDBytes+1+letters.EncodedLen(SecretBytes) || rest[2*IDBytes] != '_' {
		return "", digest, false
	}
	for i := range 2 * IDBytes {
		if c := rest[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return "", digest, false
		}
	}
	return rest[:2*IDBytes], sha256.Sum256([]byte(key)), true
}

// A Secret is one that a key has: the digest of the whole key, and until when it is taken.
type Secret struct {
	SHA256  string `json:"sha256"`
	UntilMS int64  `json:"until,omitempty"` // 0 is as long as the key
}

// Is reports whether a digest is that of the secret. How long it takes does not tell how
// much of it was right.
func (s *Secret) Is(digest [sha256.Size]byte) bool {
	want, err := hex.DecodeString(s.SHA256)
	return err == nil && subtle.ConstantTimeCompare(want, digest[:]) == 1
}

// A Record is an API key as the store keeps it.
type Record struct {
	ID        string   `json:"id"`
	Name      string   `json:"name"`
	Grants    []string `json:"grants"`
	Quota     Quota    `json:"quota,omitzero"`
	Secrets   []Secret `json:"secrets,omitempty"` // the newest first; none if it was revoked
	CreatedMS int64    `json:"created"`
	By        string   `json:"by"`                // who created it
	UntilMS   int64    `json:"until,omitempty"`   // 0 is for ever
	RevokedMS int64    `json:"revoked,omitempty"` // 0 if it was not
}

// Live reports whether a key may be used.
func (k *Record) Live(nowMS int64) bool {
	return k.RevokedMS == 0 && (k.UntilMS == 0 || nowMS < k.UntilMS)
}

// Rules returns the rules of a record that was checked.
func (k *Record) Rules() []Rule {
	rules, _ := ParseRules(k.Grants)
	return rules
}

// A Roll is all API keys of a store.
type Roll struct {
	Format int      `json:"format"`
	Number int64    `json:"number"` // of the change that made it
	Keys   []Record `json:"keys"`
}

// rollFormat is that of the bytes.
const rollFormat = 1

// Bytes returns a roll as it is stored: JSON.
func (r *Roll) Bytes() []byte {
	r.Format = rollFormat
	raw, err := json.Marshal(r)
	if err != nil {
		panic(err) // nothing in a roll can fail
	}
	return raw
}

// ParseRoll returns the roll that Bytes made.
func ParseRoll(raw []byte) (*Roll, error) {
	corrupt := func(err error) error {
		return store.Errorf(store.KindCorrupt, "API keys in the store: %w", err)
	}
	r := &Roll{}
	if len(raw) == 0 {
		return r, nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if err := d.Decode(r); err != nil {
		return nil, corrupt(err)
	}
	if r.Format > rollFormat {
		return nil, store.Newer("the list of API keys", r.Format, rollFormat)
	}
	for i := range r.Keys {
		k := &r.Keys[i]
		if _, err := ParseRules(k.Grants); err != nil {
			return nil, corrupt(err)
		}
		if err := k.Quota.Check(); err != nil {
			return nil, corrupt(err)
		}
	}
	return r, nil
}

// Find returns the record of an id, or nil.
func (r *Roll) Find(id string) *Record {
	for i := range r.Keys {
		if r.Keys[i].ID == id {
			return &r.Keys[i]
		}
	}
	return nil
}

// CheckName returns why something can't be the name of a key.
func CheckName(name string) error {
	switch {
	case name == "":
		return store.Errorf(store.KindInvalid, "name: it is empty")
	case len(name) > NameBytesMax:
		return store.Errorf(store.KindTooLarge, "name of %d bytes: at most %d", len(name), NameBytesMax)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return store.Errorf(store.KindInvalid, "name %q: want UTF-8 without control characters", name)
	}
	return nil
}

// Add adds a key. Those that were revoked the longest ago make room for it.
func (r *Roll) Add(k Record, nowMS int64) error {
	if err := CheckName(k.Name); err != nil {
		return err
	}
	if len(k.Grants) == 0 {
		return store.Errorf(store.KindInvalid, "grants: there are none, so the key could do nothing; want grants such as read+write:shop")
	}
	if _, err := ParseRules(k.Grants); err != nil {
		return store.Errorf(store.KindInvalid, "grants: %w", err)
	}
	if err := k.Quota.Check(); err != nil {
		return store.Errorf(store.KindInvalid, "quota: %w", err)
	}
	live := 0
	for i := range r.Keys {
		if other := &r.Keys[i]; other.Live(nowMS) {
			live++
			if other.Name == k.Name {
				return store.Errorf(store.KindInvalid, "name: key %s is called %q already: rotate or revoke that, or choose another name", other.ID, k.Name)
			}
		}
	}
	if live >= KeysMax {
		return store.Errorf(store.KindFull, "there are %d API keys, which is the limit: revoke some", live)
	}
	if over := len(r.Keys) - live - KeysMax + 1; over > 0 {
		r.Keys = slices.DeleteFunc(r.Keys, func(k Record) bool {
			if over > 0 && !k.Live(nowMS) {
				over--
				return true
			}
			return false
		})
	}
	r.Keys = append(r.Keys, k)
	return r.fits()
}

// fits returns an error if a roll is larger than a store keeps.
func (r *Roll) fits() error {
	if n := len(r.Bytes()); n > RollBytes {
		return store.Errorf(store.KindFull, "the API keys take %d bytes, and at most %d are kept: revoke some", n, RollBytes)
	}
	return nil
}

// Rotate gives a key another secret. The one before is taken for some time longer.
func (r *Roll) Rotate(id string, digest [sha256.Size]byte, nowMS, graceMS int64) (*Record, error) {
	k := r.Find(id)
	if k == nil || !k.Live(nowMS) {
		return nil, noKey(id)
	}
	secrets := []Secret{{SHA256: hex.EncodeToString(digest[:])}}
	if graceMS > 0 && len(k.Secrets) > 0 {
		last := k.Secrets[0]
		last.UntilMS = nowMS + graceMS
		secrets = append(secrets, last)
	}
	k.Secrets = secrets
	return k, r.fits()
}

// Revoke ends a key. That of one that has ended changes nothing.
func (r *Roll) Revoke(id string, nowMS int64) (*Record, error) {
	k := r.Find(id)
	if k == nil {
		return nil, noKey(id)
	}
	if k.RevokedMS == 0 {
		k.RevokedMS, k.Secrets = nowMS, nil
	}
	return k, nil
}

// Administered reports whether a key in use may administer the whole server.
func (r *Roll) Administered(nowMS int64) bool {
	return slices.ContainsFunc(r.Keys, func(k Record) bool {
		p := Principal{Rules: k.Rules()}
		return k.Live(nowMS) && p.Server()&Admin != 0
	})
}

// noKey is returned for an id that no key has.
func noKey(id string) error {
	return store.Errorf(store.KindInvalid, "id: no key in use has the id %.40q: see the list of keys", id)
}

// Principals returns those of the secrets of a key, in their order, with the quota of everybody
// if the key has none of its own. What they have spent is of all together. Whether they have
// ended is for their users to ask.
func (k *Record) Principals(everybody Quota, spent *Spending) (all []*Principal, secrets []Secret) {
	if k.RevokedMS != 0 {
		return nil, nil
	}
	for _, s := range k.Secrets {
		until := k.UntilMS
		if s.UntilMS != 0 && (until == 0 || s.UntilMS < until) {
			until = s.UntilMS
		}
		p := &Principal{Kind: StoredKey, Name: k.Name, ID: k.ID, Rules: k.Rules(), UntilMS: until, Quota: k.Quota}
		if p.Quota == (Quota{}) {
			p.Quota = everybody
		}
		if p.Quota != (Quota{}) {
			p.Spent = spent
		}
		all, secrets = append(all, p), append(secrets, s)
	}
	return all, secrets
}

// Describe returns a key for a line of a log: never its secret.
func (k *Record) Describe() string {
	return fmt.Sprintf("%s (%s): %s", k.ID, k.Name, strings.Join(k.Grants, ", "))
}
