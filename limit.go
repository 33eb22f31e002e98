package quipu

import (
	"context"

	"github.com/quipudb/quipu/internal/port"
)

// Allow checks the rate limits of a name for a client. If all of them allow the
// cost, it uses the cost. The limits are those in the definition of the name,
// unless the options have others. A cost of 0 uses nothing and tells how much
// is left.
//
// All DBs over the store together allow no more than the limits say, by the
// clock of the store. If that clock steps back, limits refuse until it has
// caught up. After ErrUnknown the cost may have been used: repeat the call with
// the same token.
//
// The durability is that of the policy for the name. With Memory, a crash may
// lose what was used.
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

// ResetLimit makes a limit forget what a client has used. It is no error if the
// client has used nothing.
func (db *DB) ResetLimit(ctx context.Context, name, who string) error {
	if err := db.port.Err(); err != nil {
		return err
	}
	if err := port.CheckAsk(name, who, 0); err != nil {
		return err
	}
	return db.port.ResetLimit(ctx, name, who)
}
