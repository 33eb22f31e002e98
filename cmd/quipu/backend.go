package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/engine"
	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/pgstore"
	"github.com/quipudb/quipu/store/redisstore"
)

// connectMax is how long it may take to reach a store at the start.
const connectMax = 30 * time.Second

// While a store is waited for: the pause between attempts, and how often it is
// logged.
const (
	connectAgain = 500 * time.Millisecond
	connectLog   = time.Minute
)

// recallMax is how many counters a server remembers for when its store can't be
// reached: some 20 MiB.
const recallMax = 100_000

// The schemes of store URLs.
const (
	schemeEmbedded = "embedded"
	schemeMemory   = "memory"
	schemePostgres = "postgres"
	schemeRedis    = "redis"
)

// A storeOptions is how a store is opened, whichever it is.
type storeOptions struct {
	quipu.Options

	Dir            string // of the embedded store, if its URL names none
	Name           string // the schema in PostgreSQL, what keys in Redis begin with
	Conns          int    // to PostgreSQL, at most
	Replicas       int    // of Redis that must have a write
	AcceptEviction bool   // by Redis
}

// storeScheme returns which store a URL means.
func storeScheme(url string) (string, error) {
	scheme, _, ok := strings.Cut(url, ":")
	if !ok {
		scheme = ""
	}
	switch scheme {
	case schemeEmbedded, schemeMemory, schemePostgres, schemeRedis:
		return scheme, nil
	case "postgresql":
		return schemePostgres, nil
	case "rediss":
		return schemeRedis, nil
	}
	// The rest of the URL may have a password.
	return "", fmt.Errorf("store of scheme %q: want embedded:, memory:, postgres://… or redis://…", scheme)
}

// shared reports whether several servers may use a store.
func shared(scheme string) bool { return scheme == schemePostgres || scheme == schemeRedis }

// checkStore returns the error of openStore if that would not even try to reach
// the store: because of its URL, or an option.
func checkStore(url string, o storeOptions) error {
	scheme, err := storeScheme(url)
	if err != nil || !shared(scheme) {
		return err
	}
	ended, end := context.WithCancel(context.Background())
	end() // it reads what it is given, and goes no further
	s, err := openPlain(ended, url, o)
	if err == nil {
		return s.Close()
	}
	if store.KindOf(err) == store.KindInvalid {
		return err
	}
	return nil
}

// openStore opens a DB over the store that a URL names.
func openStore(ctx context.Context, url string, o storeOptions) (*quipu.DB, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectMax)
	defer cancel()
	s, err := openPlain(ctx, url, o)
	if err != nil {
		return nil, err
	}
	if s.Traits().Shared {
		o.Recall = recallMax
	}
	return quipu.New(s, o.Options), nil
}

// awaitStore opens a store as openStore does. If it can't be reached it is tried
// again, until it was waited for so long.
func awaitStore(ctx context.Context, url string, o storeOptions, wait time.Duration) (*quipu.DB, error) {
	scheme, _ := storeScheme(url)
	begin, logged := time.Now(), time.Time{}
	for {
		db, err := openStore(ctx, url, o)
		if err == nil || !shared(scheme) || server.KindOf(err) != store.KindUnavailable || time.Since(begin) >= wait {
			return db, err
		}
		if time.Since(logged) >= connectLog {
			logged = time.Now()
			o.Logger.Warn("waiting for the store", "for", time.Since(begin).Round(time.Second), "up_to", wait, "error", err)
		}
		select {
		case <-time.After(min(connectAgain, wait-time.Since(begin))):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// openPlain opens the store that a URL names, and is the one place that names
// them all.
func openPlain(ctx context.Context, url string, o storeOptions) (store.Store, error) {
	scheme, err := storeScheme(url)
	if err != nil {
		return nil, err
	}
	switch scheme {
	case schemePostgres:
		return pgstore.Open(ctx, url, pgstore.Options{Limits: o.Limits, Schema: o.Name, MaxConns: o.Conns, Existing: o.ReadOnly, Logger: o.Logger})
	case schemeRedis:
		return redisstore.Open(ctx, url, redisstore.Options{
			Limits: o.Limits, Prefix: o.Name, Replicas: o.Replicas, AcceptEviction: o.AcceptEviction, Existing: o.ReadOnly, Logger: o.Logger,
		})
	case schemeMemory:
		return memstore.New(memstore.Options{Limits: o.Limits}), nil
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	dir := strings.TrimPrefix(url, schemeEmbedded+":")
	if dir == "" {
		dir = o.Dir
	}
	return engine.Open(dir, engine.Options{Limits: o.Limits, Memory: o.Memory, Logger: o.Logger})
}
