// Package keyring keeps the API keys of a store in that store, so that all
// servers that use it know the same keys.
//
// The keys are one list, stored as pages of a cell in the store's own
// namespace. A server changes the list that it has read, and writes it in one
// step on condition of its version. So two servers never undo each other's
// changes. The store has digests, and never a key.
//
// If several servers share a store, each asks once a second whether the list
// has changed. So a key that is revoked on one server is refused by all within
// about a second. While the store can't be reached, a server uses the list that
// it has.
package keyring

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quipudb/quipu/internal/access"
	"github.com/quipudb/quipu/store"
)

const (
	lookEvery   = time.Second     // how often the store is asked whether the list has changed
	lookTimeout = 5 * time.Second // how long it may take to say so
	changesMax  = 20              // attempts to change a list that others change too
)

// cell is where the list is.
var cell = store.Cell{Key: "access/keys"}

// pagesMax is how many pages the list may have.
const pagesMax = access.RollBytes / store.PartBytesMax

// Options are what a ring is told.
type Options struct {
	Logger   *slog.Logger // takes reports of what failed; the default is slog.Default()
	ReadOnly bool         // refuses changes
	Quota    access.Quota // of keys that have none of their own
}

// A Ring is the API keys of a store. It is safe for concurrent use.
type Ring struct {
	store    store.Store
	logger   *slog.Logger
	readOnly bool
	quota    access.Quota
	changed  func()
	stop     context.CancelFunc
	done     sync.WaitGroup

	known    atomic.Pointer[known]
	failures atomic.Uint64

	mu sync.Mutex // held by who reads or changes the list
}

// A known is a list that was read, made ready. It does not change.
type known struct {
	roll    *access.Roll
	version uint64
	at      time.Time // when it was read, or was found to be still the list
	keys    map[string][]secret
	spent   map[string]*access.Spending // by the id of the key
}

// A secret is one of a key, and who shows it.
type secret struct {
	access.Secret
	who *access.Principal
}

// New returns a ring that knows nothing yet: see Load.
func New(s store.Store, o Options) *Ring {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	r := &Ring{store: s, logger: o.Logger, readOnly: o.ReadOnly, quota: o.Quota, changed: func() {}, stop: func() {}}
	r.known.Store(&known{roll: &access.Roll{}})
	return r
}

// OnChange has f be called whenever the list was changed, by whomever. It is called before
// the first use.
func (r *Ring) OnChange(f func()) { r.changed = f }

// Start makes it look for changes until Close, if others share the store.
func (r *Ring) Start() {
	if !r.store.Traits().Shared {
		return // Nobody else changes it.
	}
	ctx, stop := context.WithCancel(store.Unheard(context.Background()))
	r.stop = stop
	r.done.Go(func() { r.run(ctx) })
}

// Close ends the looking.
func (r *Ring) Close() {
	r.stop()
	r.done.Wait()
}

func (r *Ring) run(ctx context.Context) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		err := r.look(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			r.failures.Add(1)
			if !failing { // It is said once, however long it lasts.
				r.logger.Warn("can't read the API keys: those read last stay in effect", "error", err)
			}
		}
		failing = err != nil
	}
}

func (r *Ring) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	return r.Load(ctx)
}

// Any reports whether the store has or had a key: from the first one on, whoever shows none
// is nobody.
func (r *Ring) Any() bool { return len(r.known.Load().roll.Keys) > 0 }

// Find returns who a key is of, or nil. Whether that one has ended is for the caller to ask.
func (r *Ring) Find(key string) *access.Principal {
	id, digest, ok := access.ParseKey(key)
	if !ok {
		return nil
	}
	for _, s := range r.known.Load().keys[id] {
		if s.Is(digest) {
			return s.who
		}
	}
	return nil
}

// List returns the records of all keys, which must not be changed.
func (r *Ring) List() []access.Record { return r.known.Load().roll.Keys }

// Load reads the list if it is not the one that is known.
func (r *Ring) Load(ctx context.Context) error {
	r.mu.Lock()
	changed, err := r.load(ctx)
	r.mu.Unlock()
	if changed {
		r.changed()
	}
	return err
}

func (r *Ring) load(ctx context.Context) (changed bool, err error) {
	for {
		var value [1]store.Value
		if err := r.store.Read(ctx, []store.Cell{cell}, value[:]); err != nil {
			return false, err
		}
		was := r.known.Load()
		if value[0].Version == was.version && value[0].N == was.roll.Number {
			again := *was
			again.at = time.Now()
			r.known.Store(&again)
			return false, nil
		}
		roll, err := r.read(ctx)
		if err != nil {
			return false, err
		}
		if roll.Number != value[0].N { // It was changed in between.
			continue
		}
		r.keep(roll, value[0].Version)
		return true, nil
	}
}

// read reads the pages of the list.
func (r *Ring) read(ctx context.Context) (*access.Roll, error) {
	var pages [pagesMax]store.PartCell
	var contents [pagesMax]store.Content
	for i := range pages {
		pages[i] = store.PartCell{Cell: cell, Part: page(i)}
	}
	if err := r.store.ReadParts(ctx, pages[:], contents[:]); err != nil {
		return nil, err
	}
	var raw []byte
	for i := range contents {
		raw = append(raw, contents[i].Bytes...)
	}
	return access.ParseRoll(raw)
}

func page(i int) store.Part {
	return store.PartFields{Kind: store.PartPage, Position: int64(i)}.Part()
}

// keep makes a list what is known. Whoever holds a secret of both this list and the one before
// stays the same principal; all others of the one before end.
func (r *Ring) keep(roll *access.Roll, version uint64) {
	was := r.known.Load()
	now := &known{roll: roll, version: version, at: time.Now(), keys: map[string][]secret{}, spent: map[string]*access.Spending{}}
	kept := map[*access.Principal]bool{}
	for i := range roll.Keys {
		k := &roll.Keys[i]
		spent := was.spent[k.ID]
		if spent == nil {
			spent = &access.Spending{}
		}
		now.spent[k.ID] = spent
		principals, secrets := k.Principals(r.quota, spent)
		for j, p := range principals {
			for _, old := range was.keys[k.ID] {
				if old.SHA256 == secrets[j].SHA256 && old.who.UntilMS == p.UntilMS {
					p = old.who
					kept[p] = true
				}
			}
			now.keys[k.ID] = append(now.keys[k.ID], secret{secrets[j], p})
		}
	}
	r.known.Store(now)
	for _, old := range was.keys {
		for _, s := range old {
			if !kept[s.who] {
				s.who.End()
			}
		}
	}
}

// change changes the list: f is given it as it is, perhaps several times.
func (r *Ring) change(ctx context.Context, f func(*access.Roll, int64) error) error {
	if r.readOnly {
		return store.ErrReadOnly
	}
	r.mu.Lock()
	err := r.tryChange(ctx, f)
	r.mu.Unlock()
	r.changed()
	return err
}

func (r *Ring) tryChange(ctx context.Context, f func(*access.Roll, int64) error) error {
	for range changesMax {
		if _, err := r.load(ctx); err != nil {
			return err
		}
		was := r.known.Load()
		next, err := access.ParseRoll(was.roll.Bytes()) // a copy, since what is known is shared
		if err != nil {
			return err
		}
		if err := f(next, time.Now().UnixMilli()); err != nil {
			return err
		}
		next.Number++
		err = r.write(ctx, next, was.version)
		if store.KindOf(err) == store.KindChanged {
			continue
		}
		if err != nil {
			return err
		}
		_, err = r.load(ctx)
		return err
	}
	return store.Errorf(store.KindUnavailable, "others changed the API keys during each attempt: try again")
}

// write puts a list into the store, if its cell is still at a version.
func (r *Ring) write(ctx context.Context, roll *access.Roll, version uint64) error {
	raw := roll.Bytes()
	e := &store.Event{}
	for i := range pagesMax {
		piece := raw[:min(len(raw), store.PartBytesMax)]
		if raw = raw[len(piece):]; len(piece) > 0 {
			e.Riders = append(e.Riders, store.Rider{Part: page(i), Op: store.OpPut, Bytes: piece})
		} else {
			e.Riders = append(e.Riders, store.Rider{Part: page(i), Op: store.OpDelete})
		}
	}
	d := store.Delta{Cell: cell, Op: store.OpSet, N: roll.Number, Guard: store.Guard{Match: true, Version: version}, Event: e}
	batch := store.Batch{Partition: store.PartitionOf(cell, r.store.Traits().Partitions), Deltas: []store.Delta{d}}
	var replies [1]store.Reply
	if err := r.store.Apply(ctx, []store.Batch{batch}, replies[:]); err != nil {
		return err
	}
	if err := replies[0].Err; err != nil {
		return err
	}
	return replies[0].Results[0].Outcome.Err()
}

// A Wish is what a key is to be.
type Wish struct {
	Name   string
	Grants []string
	Quota  access.Quota
	Life   time.Duration // 0 is for ever
	By     string        // who creates it
}

// Create makes a key, and returns it with its text, which nobody can find out again.
func (r *Ring) Create(ctx context.Context, w Wish, allowed func(*access.Roll, *access.Record) error) (k access.Record, text string, err error) {
	var id [access.IDBytes]byte
	_, _ = rand.Read(id[:]) // never fails
	k = access.Record{ID: hex.EncodeToString(id[:]), Name: w.Name, Grants: w.Grants, Quota: w.Quota, By: w.By}
	text, digest := newSecret(k.ID)
	k.Secrets = []access.Secret{{SHA256: hex.EncodeToString(digest[:])}}
	err = r.change(ctx, func(roll *access.Roll, nowMS int64) error {
		if k.CreatedMS = nowMS; w.Life > 0 {
			k.UntilMS = nowMS + w.Life.Milliseconds()
		}
		if err := roll.Add(k, nowMS); err != nil {
			return err
		}
		return allowed(roll, &k)
	})
	return k, text, err
}

func newSecret(id string) (text string, digest [sha256.Size]byte) {
	var secret [access.SecretBytes]byte
	_, _ = rand.Read(secret[:]) // never fails
	text = access.KeyText(id, secret)
	return text, sha256.Sum256([]byte(text))
}

// Rotate gives a key another secret, and returns its text. The one before is taken for a while
// longer.
func (r *Ring) Rotate(ctx context.Context, id string, grace time.Duration, allowed func(*access.Roll, *access.Record) error) (k access.Record, text string, err error) {
	text, digest := newSecret(id)
	err = r.change(ctx, func(roll *access.Roll, nowMS int64) error {
		changed, err := roll.Rotate(id, digest, nowMS, grace.Milliseconds())
		if err != nil {
			return err
		}
		k = *changed
		return allowed(roll, changed)
	})
	return k, text, err
}

// Revoke ends a key.
func (r *Ring) Revoke(ctx context.Context, id string, allowed func(*access.Roll, *access.Record) error) (k access.Record, err error) {
	err = r.change(ctx, func(roll *access.Roll, nowMS int64) error {
		changed, err := roll.Revoke(id, nowMS)
		if err != nil {
			return err
		}
		k = *changed
		return allowed(roll, changed)
	})
	return k, err
}

// Meters calls f for each meter.
func (r *Ring) Meters(f func(name, help string, value float64)) {
	k := r.known.Load()
	live, now := 0, time.Now()
	for i := range k.roll.Keys {
		if k.roll.Keys[i].Live(now.UnixMilli()) {
			live++
		}
	}
	age := 0.0
	if r.store.Traits().Shared && !k.at.IsZero() {
		age = now.Sub(k.at).Seconds()
	}
	f("quipu_keys", "API keys of the store that are in use.", float64(live))
	f("quipu_keys_age_seconds", "Time since the list of API keys was last compared with that of a shared store.", age)
	f("quipu_keys_failures_total", "Attempts to compare them that failed.", float64(r.failures.Load()))
}
