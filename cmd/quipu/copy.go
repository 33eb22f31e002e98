package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/hot"
	"github.com/quipudb/quipu/internal/spread"
	"github.com/quipudb/quipu/internal/transfer"
	"github.com/quipudb/quipu/store"
)

type copyCmd struct {
	From string `help:"The source: embedded:DIR, postgres://…, or redis://HOST:PORT[,HOST:PORT…]." required:"" placeholder:"URL"`
	To   string `help:"The target, in the same form. It is created if it does not exist." required:"" placeholder:"URL"`

	FromName string `help:"Schema of the source in PostgreSQL, or prefix of its keys in Redis." default:"quipu" placeholder:"NAME"`
	ToName   string `help:"The same for the target." default:"quipu" placeholder:"NAME"`

	Namespace []word `help:"Copy only this namespace. Repeatable; not read from the environment." env:"-" sep:"none" placeholder:"NAME"`
	Overwrite bool   `help:"Delete counters from the target that the source does not have."`
	Totals    bool   `help:"Copy the totals of counters that have definitions, without their windows, dimensions, ledgers and users, and without what clients of limits have used."`
	DryRun    bool   `help:"Compare and report what would be done, but copy nothing."`
	JSON      bool   `name:"json" help:"Print the summary as JSON."`

	RedisReplicas      int  `help:"Number of Redis replicas that must have a write before it is acknowledged." default:"0" placeholder:"N"`
	RedisAllowEviction bool `help:"Accept a Redis server that may drop counters when its memory is full."`
}

// Help is shown by --help.
func (*copyCmd) Help() string {
	return `The command copies every counter, with its value and its deadline, from one store into another. It opens the stores
itself, so stop any server that uses an embedded store, and stop all writes to both stores.

It writes only what differs, so you can run an interrupted copy again and it continues where it stopped. If the target
has counters that the source does not have, it writes nothing, unless you give --overwrite. At the end it compares
both stores. Exit code 0 means that the target has exactly what the source had at one moment. If counters changed
during the copy, it says so and exits with code 1: stop the writers and run it again.

It does not copy tokens: a write that was made before the copy counts again if it is sent again afterwards. It does
not copy windows, dimensions, ledgers, reactions and the usage of rate limits either. It refuses a namespace that has
these, unless you give --totals. It refuses a namespace with open reservations until they have ended.

Examples:

  quipu copy --from embedded:/var/lib/quipu --to postgres://quipu@db/app --dry-run
  quipu copy --from embedded:/var/lib/quipu --to postgres://quipu@db/app
  quipu copy --from redis://10.0.0.1:6379 --to embedded:/var/lib/quipu --namespace shop`
}

// Validate is called after the flags are parsed.
func (c *copyCmd) Validate() error {
	for _, end := range []struct{ flag, url string }{{"--from", c.From}, {"--to", c.To}} {
		scheme, err := storeScheme(end.url)
		if err != nil {
			return fmt.Errorf("%s: %w", end.flag, err)
		}
		if end.url == schemeEmbedded+":" {
			return fmt.Errorf("%s: want embedded:DIR", end.flag)
		}
		if scheme == schemeMemory {
			return fmt.Errorf("%s: a memory store starts empty and is lost when the command ends: want another store", end.flag)
		}
	}
	if c.From == c.To && c.FromName == c.ToName {
		return errors.New("--from and --to are the same")
	}
	if c.RedisReplicas < 0 {
		return errors.New("--redis-replicas: want at least 0")
	}
	if slices.Contains(c.Namespace, "") {
		return errors.New("--namespace is empty")
	}
	return nil
}

// Run copies.
func (c *copyCmd) Run(ctx context.Context, out *output) (err error) {
	if dir, embedded := strings.CutPrefix(c.From, schemeEmbedded+":"); embedded {
		if err := holdsStore(dir); err != nil {
			return fmt.Errorf("open the source: %w", err)
		}
	}
	from, err := c.open(ctx, out, c.From, c.FromName)
	if err != nil {
		return fmt.Errorf("open the source: %w", err)
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	to, err := c.open(ctx, out, c.To, c.ToName)
	if err != nil {
		return fmt.Errorf("open the target: %w", err)
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	o := transfer.Options{Overwrite: c.Overwrite, Totals: c.Totals, DryRun: c.DryRun, Progress: out.copied()}
	for _, ns := range c.Namespace {
		o.Namespaces = append(o.Namespaces, string(ns))
	}
	r, err := transfer.Run(ctx, from, to, o)
	if out.live {
		_, _ = io.WriteString(out.stderr, eraseLine)
	}
	return errors.Join(c.print(out, r, err), explain(r, err))
}

// holdsStore returns an error if a directory has no store in it: opening would
// make one.
func holdsStore(dir string) error {
	entries, err := os.ReadDir(dir)
	if err == nil && len(entries) == 0 {
		err = fmt.Errorf("%s is empty", dir)
	}
	return err
}

// open opens a store. What the source was allowed to hold the target must take,
// so there are no quotas to speak of.
func (c *copyCmd) open(ctx context.Context, out *output, url, name string) (store.Store, error) {
	ctx, cancel := context.WithTimeout(ctx, connectMax)
	defer cancel()
	const plenty = 1e9
	source := url == c.From && name == c.FromName // One that is not there is not made.
	s, err := openPlain(ctx, url, storeOptions{
		Options: quipu.Options{
			Limits:   quipu.Limits{KeysMax: plenty * 1e6, NamespacesMax: plenty},
			ReadOnly: source,
			Logger:   slog.New(slog.NewTextHandler(out.stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		},
		Name: name, Replicas: c.RedisReplicas, AcceptEviction: c.RedisAllowEviction,
	})
	if scheme, _ := storeScheme(url); scheme == schemeEmbedded && store.KindOf(err) == store.KindUnavailable {
		err = fmt.Errorf("%w: if a server uses it, stop the server first", err)
	}
	if err != nil {
		return nil, err
	}
	// Counters that are split are copied as the ones they are, and stay as they are.
	return spread.New(s, spread.Options{ReadOnly: source, Every: time.Hour, Policy: func(store.Cell) spread.Policy {
		return spread.Policy{Limits: hot.Limits{Max: hot.ShardsMax, CoolDown: 24 * time.Hour}}
	}}), nil
}

// copied shows how far a copy has come, while someone watches.
func (o *output) copied() func(transfer.Report) {
	if !o.live {
		return nil
	}
	const every = 200 * time.Millisecond
	start, last := time.Now(), time.Time{}
	return func(r transfer.Report) {
		if time.Since(last) < every {
			return
		}
		last = time.Now()
		_, _ = fmt.Fprintf(o.stderr, eraseLine+"%s: %s counters, %s copied, %s",
			r.Walk, thousands(r.Walked), thousands(r.Copied), time.Since(start).Round(time.Second))
	}
}

// print writes the summary. One that failed is for scripts only: people read
// the error.
func (c *copyCmd) print(out *output, r transfer.Report, err error) error {
	if c.JSON {
		raw, err := json.Marshal(struct {
			OK           bool  `json:"ok"`
			DryRun       bool  `json:"dry_run"`
			Namespaces   int   `json:"namespaces"`
			Counters     int64 `json:"counters"`
			Differ       int64 `json:"differ"`
			Extra        int64 `json:"extra"`
			Copied       int64 `json:"copied"`
			Deleted      int64 `json:"deleted"`
			TokensCopied bool  `json:"tokens_copied"`
		}{err == nil, c.DryRun, r.Namespaces, r.Counters, r.Differ, r.Extra, r.Copied, r.Deleted, false})
		if err != nil {
			return fmt.Errorf("encode the summary: %w", err)
		}
		return out.print("%s", raw)
	}
	if err != nil {
		return nil //nolint:nilerr // the caller says it
	}
	if c.DryRun {
		return out.print("would copy %s of %s counters in %s namespaces, and delete %s",
			thousands(r.Differ), thousands(r.Counters), thousands(int64(r.Namespaces)), thousands(r.Extra))
	}
	return out.print("copied %s, deleted %s: both stores have the same %s counters in %s namespaces\n"+
		"tokens and marks were not copied: a write made before counts again if it is sent again",
		thousands(r.Copied), thousands(r.Deleted), thousands(r.Counters), thousands(int64(r.Namespaces)))
}

// explain adds to an error what to do about it.
func explain(r transfer.Report, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*transfer.ExtraError](err); ok {
		return fmt.Errorf("%w: nothing was copied; --overwrite would delete them", err)
	}
	if of, ok := errors.AsType[*transfer.DefinedError](err); ok {
		return fmt.Errorf("%w: nothing was copied; --totals copies the totals alone into a namespace without definitions, and backup and restore copy all of an embedded store", of)
	}
	if of, ok := errors.AsType[*transfer.UsedError](err); ok {
		return fmt.Errorf("%w: nothing was copied; --totals leaves the usage behind, so that clients start anew, and backup and restore copy all of an embedded store", of)
	}
	if of, ok := errors.AsType[*transfer.HeldError](err); ok {
		return fmt.Errorf("%w: nothing was copied; commit or release them, or wait until they expire, and run it again", of)
	}
	if _, ok := errors.AsType[*transfer.ChangedError](err); ok {
		return fmt.Errorf("%w (%s copied, %s deleted): stop what writes to these stores, and run it again",
			err, thousands(r.Copied), thousands(r.Deleted))
	}
	if errors.Is(err, context.Canceled) {
		err = errors.New("interrupted")
	}
	if r.Walk == transfer.Compare {
		return fmt.Errorf("%w: nothing was copied", err)
	}
	return &exitError{exitFailed, fmt.Errorf("%w: %s copied, %s deleted; run it again to go on", err, thousands(r.Copied), thousands(r.Deleted))}
}
