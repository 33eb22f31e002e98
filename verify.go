package quipu

import (
	"context"
	"fmt"

	"github.com/quipudb/quipu/store"
)

// An Audit is the result of Verify.
type Audit = store.Audit

// Verify checks what the DB serves, in all namespaces, against a separate
// record of all applied writes that the store keeps. It also checks that
// windows, dimensions and ledgers add up to the totals of their counters and
// agree with each other, that the windows of top lists agree, and that what is
// reserved equals the open reservations. If the store keeps no such record, it
// returns ErrUnsupported. A nil error means that the check was made, not that
// it found no drift.
func (db *DB) Verify(ctx context.Context) (Audit, error) {
	if err := db.port.Err(); err != nil {
		return Audit{}, err
	}
	a, ok := db.port.Store().(store.Auditor)
	if !ok {
		return Audit{}, store.Errorf(store.KindUnsupported, "verify: the %s store keeps no record to check against", db.port.Traits().Name)
	}
	// The two look at different things, and at the same time where there are processors.
	views, told := Audit{}, make(chan error, 1)
	go func() { told <- db.verifyViews(ctx, &views) }()
	audit, err := a.Audit(ctx)
	viewErr := <-told
	if err == nil && viewErr == nil {
		viewErr = db.port.Due().Verify(ctx, &views)
	}
	if err != nil {
		return Audit{}, err
	}
	if len(audit.Drift) > 0 && store.KindOf(viewErr) == store.KindLost { // What is missing may be what they are read by.
		audit.Unproved = append(audit.Unproved, "windows, dimensions and ledgers: "+viewErr.Error())
		viewErr = nil
	}
	audit.Cells += views.Cells
	audit.Drift = append(audit.Drift, views.Drift...)
	audit.Unproved = append(audit.Unproved, views.Unproved...)
	if viewErr == nil {
		db.port.Verified(&audit)
	}
	return audit, viewErr
}

// verifyViews verifies the views of all namespaces that have definitions.
func (db *DB) verifyViews(ctx context.Context, a *Audit) error {
	namespaces, err := db.port.Books().Namespaces(ctx)
	if err != nil {
		return err
	}
	for _, namespace := range namespaces {
		if err := db.In(namespace).verifyNamespace(ctx, namespace, a); err != nil {
			return err
		}
	}
	return nil
}

// verifyTries is how often the views of a namespace are verified whose definitions change
// meanwhile.
const verifyTries = 3

// verifyNamespace verifies the views of one namespace. Those of definitions that have ended
// miss what came later, which is no drift.
func (db *DB) verifyNamespace(ctx context.Context, namespace string, a *Audit) error {
	for range verifyTries {
		r, err := db.history(ctx)
		if err != nil {
			return err
		}
		var found Audit
		if err := r.Verify(ctx, &found); err != nil {
			return err
		}
		ended := false
		if len(found.Drift) > 0 {
			if ended, err = db.port.Books().Ended(ctx, r.Known); err != nil {
				return err
			}
		}
		if !ended {
			a.Cells += found.Cells
			a.Drift, a.Unproved = append(a.Drift, found.Drift...), append(a.Unproved, found.Unproved...)
			return nil
		}
	}
	a.Unproved = append(a.Unproved, fmt.Sprintf("namespace %q: its definitions changed each time that its windows were compared", namespace))
	return nil
}

// Recount repairs a counter whose views do not add up to its total, as Verify
// reports. The total counts as right, unless all views that can tell agree on
// another one. The repair is one step, and the ledger of the counter records
// it.
func (db *DB) Recount(ctx context.Context, key string, c Correction) (Recounted, error) {
	if err := c.Check(); err != nil {
		return Recounted{}, err
	}
	if db.port.ReadOnly() {
		return Recounted{}, store.ErrReadOnly
	}
	r, err := db.history(ctx)
	if err != nil {
		return Recounted{}, err
	}
	return r.Recount(ctx, key, c)
}
