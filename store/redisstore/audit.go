package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/store"
)

// Audit reads every partition, each as a whole at one moment, adds up its cells
// and parts, and compares the sums with the records that batches keep apart from them.
// The server answers nothing else while it hands out a partition. Besides, it compares
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
		drawers, err := s.drawers(ctx, p)
		if err != nil {
			return err
		}
		c := call{auditScript, []string{p.head, p.names, p.drawers, p.tally}, append([]string{strconv.Itoa(len(names))}, names...)}
		for _, name := range names {
			c.keys = p.appendSpace(c.keys, name)
		}
		for _, d := range drawers {
			c.keys = append(c.keys, p.contents(d), p.order(d))
			c.args = append(c.args, d.name())
		}
		m, err := s.look(ctx, c, s.shown())
		if err != nil {
			return err
		}
		all, err := m.ToArray()
		if err == nil && len(all) == 2+5*len(names)+2*len(drawers) {
			return (&auditor{a, p, parser{all: all}, decoder{}}).audit(names, drawers)
		}
		if err != nil || len(all) != 0 {
			return store.Errorf(store.KindCorrupt, "audit of %d parts: %w", len(all), err)
		}
		if !pause.again(ctx) { // there is a namespace more, or a drawer
			return looked(ctx, store.Errorf(store.KindUnavailable, "namespaces come all the time"))
		}
	}
}

// An auditor takes the reply of audit.lua.
type auditor struct {
	*store.Audit
	home  *partition
	reply parser
	texts decoder
}

func (a *auditor) compare(have, want uint64, format string, args ...any) {
	if have != want {
		a.Drift = append(a.Drift, store.Drift{
			What: fmt.Sprintf(format, args...) + fmt.Sprintf(" in partition %d", a.home.number), Have: fmt.Sprint(have), Want: fmt.Sprint(want),
		})
	}
}

func (a *auditor) audit(names []string, drawers []drawer) error {
	head, tallies := a.pairs(), a.pairs()
	number := func(field string) uint64 { return a.texts.uint(cmp.Or(head[field], "0")) }
	want := decide.Record{
		Deltas: number("deltas"),
		Sum:    number("sum_high")<<32 + number("sum_low"),
		Check:  number("check_high")<<32 + number("check_low"),
	}
	var have decide.Record
	for _, name := range names {
		have.Merge(a.cells(name))
	}
	epochs := make(map[string]decide.Record)
	for _, d := range drawers {
		sum, err := a.parts(d)
		if err != nil {
			return err
		}
		if _, _, retained := d.shelf(); retained {
			epochs[d.name()] = sum
		} else {
			have.Merge(sum)
		}
	}
	a.Deltas += want.Deltas
	a.compare(have.Sum, want.Sum, "sum of cells")
	a.compare(have.Check, want.Check, "check sum of cells")
	for name := range tallies {
		if _, ok := epochs[name]; !ok {
			epochs[name] = decide.Record{} // it has no parts left
		}
	}
	for _, name := range slices.Sorted(maps.Keys(epochs)) {
		if err := a.epoch(name, head, epochs[name], tallies[name]); err != nil {
			return err
		}
	}
	return cmp.Or(a.reply.err, a.texts.err)
}

// pairs takes a hash.
func (a *auditor) pairs() map[string]string {
	all := a.reply.list()
	pairs := make(map[string]string, len(all)/2)
	for i := 0; i+1 < len(all); i += 2 {
		pairs[all[i]] = all[i+1]
	}
	return pairs
}

// cells takes a namespace, and adds up its cells.
func (a *auditor) cells(namespace string) (sum decide.Record) {
	cells, r := a.reply.list(), &a.reply
	stamps, index, tokens, queue := r.number(), r.number(), r.number(), r.number()
	for i := 0; i+1 < len(cells); i += 2 {
		if cells[i+1] != objectText { // what it holds is a part
			sum.Merge(decide.Change(store.Cell{Namespace: namespace, Key: cells[i]}, uint64(a.texts.int(cells[i+1]))))
		}
	}
	n := uint64(len(cells) / 2)
	a.compare(n, uint64(stamps), "stamps of namespace %q", namespace)
	a.compare(n, uint64(index), "keys of namespace %q", namespace)
	a.compare(uint64(tokens), uint64(queue), "tokens of namespace %q", namespace)
	a.Cells += int64(n)
	a.Tokens += tokens
	return sum
}

// parts takes a drawer, and adds up its parts.
func (a *auditor) parts(d drawer) (sum decide.Record, err error) {
	contents, order := a.reply.list(), a.reply.number()
	for i := 0; i+1 < len(contents); i += 2 {
		id, err := d.part(contents[i])
		if err != nil {
			return sum, err
		}
		v, err := parseContent(d.kind(), contents[i+1])
		if err != nil {
			return sum, err
		}
		sum.Merge(decide.PartChange(id.Cell, id.Part, uint64(v.N)))
	}
	a.compare(uint64(len(contents)/2), uint64(order), "names of parts of %s", d)
	return sum, nil
}

// epoch compares the parts of an epoch with their tally, unless it is below its floor:
// then they are gone, or go.
func (a *auditor) epoch(name string, head map[string]string, have decide.Record, tally string) error {
	d, err := drawerNamed(name)
	if err != nil {
		return err
	}
	shelf, epoch, _ := d.shelf()
	if uint64(epoch) < a.texts.uint(cmp.Or(head[floorField(shelf)], "0")) {
		return nil
	}
	want, err := parseTally(tally)
	a.compare(have.Sum, want.Sum, "sum of parts of %s", d)
	a.compare(have.Check, want.Check, "check sum of parts of %s", d)
	return err
}
