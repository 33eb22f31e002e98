package redisstore

import (
	"context"
	"fmt"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/store"
)

// Audit reads every partition, each as a whole at one moment, adds up its cells
// and compares the sums with the record that batches keep apart from them. The
// server answers nothing else while it hands out a partition. Besides, it compares
// what the server has with what this store, since it was opened, knows that it had.
func (s *Store) Audit(ctx context.Context) (store.Audit, error) {
	var a store.Audit
	if err := s.enter(ctx); err != nil {
		return a, err
	}
	defer s.calls.Done()
	var err error
	if a.Drift, err = s.vouch(ctx); err != nil {
		return a, err
	}
	for i := range s.partitions {
		if err := s.auditPartition(ctx, &s.partitions[i], &a); err != nil {
			return a, err
		}
	}
	a.Unproved = []string{"what Redis lost before this server was started can't be vouched for: Redis keeps no record of it"}
	return a, nil
}

func (s *Store) auditPartition(ctx context.Context, p *partition, a *store.Audit) error {
	for pause := (patient{most: conflictMax, all: conflictPatience}); ; {
		names, err := s.namespaces(ctx, p)
		if err != nil {
			return err
		}
		names = append(names, "")
		keys := []string{p.head, p.names}
		for _, name := range names {
			keys = p.appendSpace(keys, name)
		}
		m, err := s.look(ctx, call{auditScript, keys, names}, s.shown())
		if err != nil {
			return err
		}
		all, err := m.ToArray()
		if err == nil && len(all) == 5+5*len(names) {
			return auditReply(p, names, parser{all: all}, a)
		}
		if err != nil || len(all) != 0 {
			return store.Errorf(store.KindCorrupt, "audit of %d parts: %w", len(all), err)
		}
		if !pause.again(ctx) { // there is a namespace more
			return looked(ctx, store.Errorf(store.KindUnavailable, "namespaces come all the time"))
		}
	}
}

// auditReply takes the reply of audit.lua.
func auditReply(p *partition, names []string, r parser, a *store.Audit) error {
	half := func() uint64 { return uint64(r.number()) }
	want := decide.Record{Deltas: half(), Sum: half()<<32 + half(), Check: half()<<32 + half()}
	compare := func(have, want uint64, format string, args ...any) {
		if have != want {
			a.Drift = append(a.Drift, store.Drift{
				What: fmt.Sprintf(format, args...), Have: fmt.Sprint(have), Want: fmt.Sprint(want),
			})
		}
	}
	var have decide.Record
	d := decoder{}
	for _, name := range names {
		cells := r.list()
		stamps, index, tokens, queue := r.number(), r.number(), r.number(), r.number()
		for i := 0; i+1 < len(cells); i += 2 {
			have.Merge(decide.Change(store.Cell{Namespace: name, Key: cells[i]}, uint64(d.int(cells[i+1]))))
		}
		n := uint64(len(cells) / 2)
		compare(n, uint64(stamps), "stamps of namespace %q in partition %d", name, p.number)
		compare(n, uint64(index), "keys of namespace %q in partition %d", name, p.number)
		compare(uint64(tokens), uint64(queue), "tokens of namespace %q in partition %d", name, p.number)
		a.Cells += int64(n)
		a.Tokens += tokens
	}
	a.Deltas += want.Deltas
	compare(have.Sum, want.Sum, "sum of cells in partition %d", p.number)
	compare(have.Check, want.Check, "check sum of cells in partition %d", p.number)
	if r.err != nil {
		return r.err
	}
	return d.err
}
