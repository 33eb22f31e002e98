package quipu

import (
	"context"
	"fmt"
	"time"

	"github.com/quipudb/quipu/internal/duration"
	"github.com/quipudb/quipu/store"
)

// Lookup reports what is known of a token now. It changes nothing: a write with
// the token may still arrive.
func (db *DB) Lookup(ctx context.Context, key, token string) (Fate, error) {
	cell, err := db.checkToken(key, token)
	if err != nil {
		return Fate{}, err
	}
	f, err := db.port.Store().Lookup(ctx, cell, token)
	if err != nil {
		return Fate{}, err
	}
	fate := Fate{State: f.State}
	if f.AtMS != 0 {
		fate.At = time.UnixMilli(f.AtMS)
	}
	if f.State == store.TokenApplied {
		fate.Receipt = pastReceipt(cell, &f, min(db.durabilityOf(key), db.port.Traits().Durability))
		choices, err := db.port.Choices(ctx, key)
		if err != nil { // What is known of the token is worth telling without the latest names.
			choices = db.port.KnownChoices(key)
		}
		pastReaction(&fate, &f, choices)
	}
	return fate, nil
}

// pastReaction names what was chosen, if a token is of a reaction. The numbers of choices
// stand where other writes have values. A counter that has choices can't be set, but to 0 by
// a reset; and a delete leaves it without a version, which a reaction never does.
func pastReaction(fate *Fate, f *store.Fate, choices []string) {
	name := func(n int64) string {
		if n < 1 || n > int64(len(choices)) {
			return ""
		}
		return choices[n-1]
	}
	chose := f.Op == store.OpSet && name(f.N) != ""
	left := f.Op == store.OpDelete && f.Result.Version != 0 && len(choices) > 0
	if !chose && !left {
		return
	}
	fate.Reacted, fate.Before = true, name(f.Result.Before)
	if chose {
		fate.Choice = name(f.N)
	}
	r := &fate.Receipt
	r.Applied, r.Value, r.Before, r.HasValue = 0, 0, 0, false
}

// Settle makes the fate of a token final. If its write was applied, Settle says
// so; it also says so if the write was refused and the counter remembers that.
// Otherwise the write never counts: if it arrives later, it is refused with
// ErrSettled. The decision is synced, whatever the policy of the key.
func (db *DB) Settle(ctx context.Context, key, token string) (Fate, error) {
	cell, err := db.checkToken(key, token)
	if err != nil {
		return Fate{}, err
	}
	c := db.port.NewCall(1)
	defer db.port.Free(c)
	c.Deltas[0] = store.Delta{Cell: cell, Op: store.OpSettle, Guard: store.Guard{Token: token}}
	if err := db.port.Send(ctx, c, store.Synced); err != nil {
		return Fate{}, err
	}
	if err := c.Replies[0].Err; err != nil {
		return Fate{}, err
	}
	switch r := &c.Replies[0].Results[0]; r.Outcome {
	case store.Applied, store.Unmet, store.Bounded: // or refused, which its token remembers
		return db.Lookup(ctx, key, token)
	case store.Settled:
		return Fate{State: store.TokenSettled}, nil
	case store.Expired:
		return Fate{State: store.TokenExpired}, nil
	default:
		return Fate{}, r.Outcome.Err()
	}
}

// checkToken returns the cell of key, or an error if it or token can't be one.
func (db *DB) checkToken(key, token string) (store.Cell, error) {
	if err := db.port.Err(); err != nil {
		return store.Cell{}, err
	}
	if err := store.CheckKey(key); err != nil {
		return store.Cell{}, err
	}
	return db.port.Cell(key), store.CheckToken(token)
}

// refusal returns the error that names the outcome of a delta. That a token is
// older than the window would mislead a caller if it is a clock that is wrong: the
// store's, or the one that the token's time is from.
func (db *DB) refusal(d *store.Delta, o store.Outcome) error {
	if o == store.Unmet && d.Event != nil && d.Guard.Exists == store.ExistsAny {
		return store.Errorf(store.KindUnmet, "the counter has a deadline from before its definition, but a counter with windows, dimensions or a ledger can't have one: remove the deadline first")
	}
	ms, ok := store.TokenTime(d.Guard.Token)
	if o != store.Expired || !ok {
		return o.Err()
	}
	window, nowMS := db.port.Traits().Limits.TokenWindow, db.port.NowMS(d.Cell)
	made, now := time.UnixMilli(ms), time.UnixMilli(nowMS).UTC().Format(time.RFC3339)
	switch {
	case ms >= nowMS+window.Milliseconds():
		return store.Errorf(store.KindExpired,
			"the token was made at %s, which is in the future: it may be ahead by less than the window, %s; it is %s by the store's clock, so see to the clock that is wrong",
			made.UTC().Format(time.RFC3339), duration.Short(window), now)
	case time.Since(made) < window:
		return store.Errorf(store.KindExpired,
			"the token was made at %s, which is older than the window, %s, by the store's clock: that says %s, so see to the clock that is wrong",
			made.UTC().Format(time.RFC3339), duration.Short(window), now)
	}
	return o.Err()
}

// reused returns the error of a delta whose token was used for another payload. It
// says what differs, as far as the store remembers that.
func (db *DB) reused(ctx context.Context, d *store.Delta) error {
	f, err := db.port.Store().Lookup(ctx, d.Cell, d.Guard.Token)
	if err != nil || f.State != store.TokenApplied {
		return store.ErrToken
	}
	did := func(op store.Op, n int64) string {
		switch op {
		case store.OpSet:
			return fmt.Sprintf("set to %d", n)
		case store.OpDelete:
			return "delete"
		default:
			return fmt.Sprintf("add %d", n)
		}
	}
	first, again := did(f.Op, f.N), did(d.Op, d.N)
	if first == again {
		return store.Errorf(store.KindToken, "%s: both writes are to %s, but they differ in who, time, dimensions, floor, ceiling, lifetime or version", store.ErrToken.Detail, first)
	}
	return store.Errorf(store.KindToken, "%s: first it was to %s, now it is to %s", store.ErrToken.Detail, first, again)
}

// pastReceipt is the receipt of a write that was decided earlier.
func pastReceipt(c store.Cell, f *store.Fate, durability Durability) Receipt {
	r := Receipt{Namespace: c.Namespace, Key: c.Key, Version: f.Result.Version, Durability: durability}
	if f.Op == store.OpAdd {
		r.Applied = f.N
	}
	if f.Want {
		withValue(&r, &f.Result)
	}
	return r
}
