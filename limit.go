package quipu

import (
	"context"

	"github.com/quipudb/quipu/internal/port"
)

// Allow asks the limits of a name whether a client may use a cost, and uses it if all of them
// allow it. The limits are those of the definition of the name, unless the options bring
// some. A cost of 0 uses nothing: it tells what is left.
//
// No more is allowed than the limits say, by the clock of the store, however many DBs ask it.
// If the clock steps back, limits refuse until it has caught up. After ErrUnknown the cost may
// have been used: repeat the call with its token, if it has one.
//
// The durability is that of the policy for the name. What is used with Memory may be forgotten
// in a crash.
func (db *DB) Allow(ctx context.Context, name, who string, cost int64, o AllowOptions) (Decision, error) {
	ask, err := db.ask(name, who, cost, &o)
	if err != nil {
		return Decision{}, err
	}
	if o.DryRun || cost == 0 && o.Token == "" {
		a, err := db.port.PeekLimit(ctx, &ask)
		if err != nil {
			return Decision{}, err
		}
		return a.Decision(), nil
	}
	var answer [1]port.Answer
	if err := db.port.Allow(ctx, []port.Ask{ask}, answer[:]); err != nil {
		return Decision{}, err
	}
	if answer[0].Err != nil {
		return Decision{}, answer[0].Err
	}
	return answer[0].Decision(), nil
}

// ask checks a question to a limit.
func (db *DB) ask(name, who string, cost int64, o *AllowOptions) (port.Ask, error) {
	ask := port.Ask{Name: name, Who: who, Cost: cost, Burn: o.Burn, Token: o.Token}
	err := db.port.Err()
	if err == nil {
		err = port.CheckAsk(name, who, cost)
	}
	if err == nil {
		err = o.Check()
	}
	if err == nil && len(o.Limits) > 0 {
		ask.By, err = db.port.NewLimiter(o.Limits, o.Away)
	}
	return ask, err
}

// ResetLimit forgets what a client of a limit has used. That it has used nothing is no error.
func (db *DB) ResetLimit(ctx context.Context, name, who string) error {
	if err := db.port.Err(); err != nil {
		return err
	}
	if err := port.CheckAsk(name, who, 0); err != nil {
		return err
	}
	return db.port.ResetLimit(ctx, name, who)
}
