package pgstore

import (
	"context"
	"fmt"

	"github.com/quipudb/quipu/store"
)

// Newest is the function that came last: without it a schema is of an older release.
const Newest = newest

// Rotate begins and drops generations of tokens as the upkeep does.
func (s *Store) Rotate(ctx context.Context) error { return s.rotate(ctx) }

// Step folds and expires as the upkeep does.
func (s *Store) Step(ctx context.Context) error {
	_, err := s.step(ctx)
	return err
}

// Still ends the upkeep: nothing is done any more but what a test does.
func (s *Store) Still() {
	s.stop()
	s.upkeep.Wait()
}

// Margin is how near a namespace must be to its limit to be counted alone.
func (s *Store) Margin() int64 { return s.margin }

// CountLocks are the locks that whoever counts a namespace alone may hold.
func (s *Store) CountLocks(namespace string) []int64 {
	return []int64{s.locks.spaces, s.locks.namespace(namespace)}
}

// Finders are the statements that find cells and tokens by their names.
func Finders(schema string) map[string]string {
	s := newStatements(schema)
	return map[string]string{"loadCells": s.loadCells, "loadTokens": s.loadTokens, "read": s.read}
}

// ShortFor is how long a cell near its bound is not tried the short way.
const ShortFor = shortFor

// PendingMax is how many pending adds one transaction folds.
const PendingMax = pendingMax

// One is the statement that applies a batch of one cell.
func One(schema string) string { return newStatements(schema).one[1] }

// Usual forgets which namespaces had an unusual batch.
func (s *Store) Usual() {
	s.unusual.mu.Lock()
	defer s.unusual.mu.Unlock()
	s.unusual.at = nil
}

// Turn makes and drops tables of epochs as the upkeep does.
func (s *Store) Turn(ctx context.Context) error { return s.turn(ctx) }

// PartFinders are the statements that find parts, with what they are asked for in an
// epoch.
func PartFinders(schema string, e store.Epoch) map[string]string {
	s := newStatements(schema)
	one := fmt.Sprintf("'{%d}', '{n}', '{p}', '{%d}'", e, e)
	scan := fmt.Sprintf("'n', 'p', null, 10, %d", e)
	return map[string]string{s.loadParts: one, s.readParts: one, s.dropParts: one, s.scanEpoch[0]: scan, s.scanEpoch[1]: scan}
}
