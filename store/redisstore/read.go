package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/store"
)

// Read fills values[i] with the value of cells[i]. Cells of one partition are
// read at one moment; partitions are read side by side, from their masters.
func (s *Store) Read(ctx context.Context, cells []store.Cell, values []store.Value) error {
	if err := store.CheckRead(cells, values); err != nil {
		return err
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.calls.Done()
	groups := make(map[int][]int)
	for i, c := range cells {
		home := store.PartitionOf(c, len(s.partitions))
		groups[home] = append(groups[home], i)
	}
	var wanted []int
	var asked []question
	for home, group := range groups {
		// Namespaces together, as the script takes them.
		slices.SortStableFunc(group, func(a, b int) int { return cmp.Compare(cells[a].Namespace, cells[b].Namespace) })
		wanted = append(wanted, group...)
		asked = append(asked, s.reading(&s.partitions[home], cells, group))
	}
	replies, err := s.askTimed(ctx, asked)
	if err != nil {
		return err
	}
	at := 0
	for q, texts := range replies {
		for ; len(texts) >= 2; texts = texts[2:] {
			i := wanted[at]
			if values[i], err = cellValue(texts[0], texts[1]); err != nil {
				return err
			}
			s.told[asked[q].home.number].raise(values[i].Version)
			at++
		}
	}
	if at != len(cells) {
		return store.Errorf(store.KindCorrupt, "%d values of %d cells", at, len(cells))
	}
	return nil
}

// reading returns the question for some cells of a partition.
func (s *Store) reading(p *partition, cells []store.Cell, group []int) question {
	keys := []string{p.head}
	args := []string{s.now(), flag(s.options.Replicas > 0), ""}
	spaces := 0
	for len(group) > 0 {
		name, n := cells[group[0]].Namespace, 1
		for n < len(group) && cells[group[n]].Namespace == name {
			n++
		}
		spaces++
		keys = append(keys, p.values(name), p.stamps(name))
		args = append(args, strconv.Itoa(n))
		for _, i := range group[:n] {
			args = append(args, cells[i].Key)
		}
		group = group[n:]
	}
	args[2] = strconv.Itoa(spaces)
	return question{p, call{readScript, keys, args}}
}

// A question is a call that reads a partition. Its reply is the partition's
// version, and what was asked.
type question struct {
	home *partition
	call call
}

// ask asks several partitions at once, and returns what was asked: questions to
// one server share a round trip, unless each has to wait for replicas.
func (s *Store) ask(ctx context.Context, qs []question) ([][]string, error) {
	told := make([]uint64, len(qs)) // before they are asked: what is told meanwhile may be newer
	for i := range qs {
		told[i] = s.told[qs[i].home.number].Load()
	}
	replies := make([][]string, len(qs))
	if s.options.Replicas == 0 && len(qs) > 1 {
		s.meters.calls.Add(uint64(len(qs)))
		all := make([]rueidis.Completed, len(qs))
		for i := range qs {
			all[i] = qs[i].call.build(s.client.B(), false)
		}
		for i, r := range s.client.DoMulti(ctx, all...) {
			replies[i], _ = r.AsStrSlice() // what was not answered is asked for again
		}
	}
	errs := make([]error, len(qs))
	var wg sync.WaitGroup
	for i := range qs {
		if replies[i] != nil {
			continue
		}
		wg.Go(func() {
			m, err := s.look(ctx, qs[i].call, s.shown())
			if err == nil {
				replies[i], err = texts(m)
			}
			errs[i] = err
		})
	}
	wg.Wait()
	if err := cmp.Or(errs...); err != nil {
		return nil, err
	}
	for i := range replies {
		if !store.IsUnheard(ctx) {
			errs[i] = s.missing(qs[i].home, replies[i][0], told[i])
		}
		replies[i] = replies[i][1:]
	}
	return replies, cmp.Or(errs...)
}

// askTimed is ask for questions whose answers begin with the time of the partition: it is
// told to the partition's clock.
func (s *Store) askTimed(ctx context.Context, qs []question) ([][]string, error) {
	asked := make([]time.Duration, len(qs))
	for i := range qs {
		asked[i] = s.clocks[qs[i].home.number].Ask()
	}
	replies, err := s.ask(ctx, qs)
	if err != nil {
		return nil, err
	}
	for i, texts := range replies {
		if len(texts) == 0 {
			return nil, store.Errorf(store.KindCorrupt, "an answer without a time")
		}
		nowMS, err := strconv.ParseInt(texts[0], 10, 64)
		if err != nil {
			return nil, store.Errorf(store.KindCorrupt, "time %q", texts[0])
		}
		s.clocks[qs[i].home.number].Tell(nowMS, asked[i])
		replies[i] = texts[1:]
	}
	return replies, nil
}

// missing returns an error if a partition is at a lower version than callers were
// told of before. It is said once: from then on they are told what there is.
func (s *Store) missing(p *partition, version string, told uint64) error {
	d := decoder{}
	is := d.uint(version)
	if d.err != nil || is >= told {
		return d.err
	}
	s.told[p.number].CompareAndSwap(told, is)
	s.lose(p.number, fmt.Sprintf("version %d", is), fmt.Sprintf("version %d, of which callers were told", told))
	return store.Errorf(store.KindLost, "partition %d: callers were told of version %d, and the server is at %d", p.number, told, is)
}

// Probe returns nil if a partition takes writes now: it writes the partition's time,
// which changes no cell.
func (s *Store) Probe(ctx context.Context, partition int) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.calls.Done()
	_, err := s.run(ctx, call{readScript, []string{s.partitions[partition].head}, []string{s.now(), flag(true), "0"}}, noWait)
	return looked(ctx, err)
}

// Scan returns up to n cells of a namespace in key order: a page of every
// partition, merged.
func (s *Store) Scan(ctx context.Context, r store.Range, n int) ([]store.Entry, error) {
	if n < 1 || n > store.ScanMax {
		return nil, store.Errorf(store.KindInvalid, "scan of %d cells: want 1 to %d", n, store.ScanMax)
	}
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.calls.Done()
	from, to := "["+r.Prefix, "("+r.Prefix+"\xff" // no key has this byte
	if r.After >= r.Prefix && r.After != "" {
		from = "(" + r.After
	}
	if r.Prefix == "" {
		to = "+"
	}
	if from == "[" {
		from = "-"
	}
	all := make([]*partition, len(s.partitions))
	for i := range all {
		all[i] = &s.partitions[i]
	}
	page := strconv.Itoa(pageOf(n, len(all)))
	found, err := merge(all, from, false, n, func(short []*row[store.Value]) error {
		asked := make([]question, len(short))
		for i, of := range short {
			asked[i] = question{of.home, call{
				scanScript,
				[]string{of.home.head, of.home.values(r.Namespace), of.home.stamps(r.Namespace), of.home.index(r.Namespace)},
				[]string{s.now(), flag(s.options.Replicas > 0), of.from, to, page},
			}}
		}
		replies, err := s.ask(ctx, asked)
		if err != nil {
			return err
		}
		for i, texts := range replies {
			if err := short[i].take(texts, 3, func(texts []string) (store.Value, error) { return cellValue(texts[0], texts[1]) }); err != nil {
				return err
			}
			for _, e := range short[i].found {
				s.told[short[i].home.number].raise(e.value.Version)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var entries []store.Entry
	for _, f := range found {
		entries = append(entries, store.Entry{Key: f.key, Value: f.value})
	}
	return entries, nil
}

// Lookup reports what is known of a token now.
func (s *Store) Lookup(ctx context.Context, c store.Cell, name string) (store.Fate, error) {
	if err := store.CheckCell(c); err != nil {
		return store.Fate{}, err
	}
	if err := store.CheckToken(name); err != nil {
		return store.Fate{}, err
	}
	if err := s.enter(ctx); err != nil {
		return store.Fate{}, err
	}
	defer s.calls.Done()
	p := &s.partitions[store.PartitionOf(c, len(s.partitions))]
	st := newState(p, s.share)
	t := st.token(c, name)
	replies, err := s.ask(ctx, []question{{p, call{lookupScript, []string{p.head, p.tokens(c.Namespace)}, []string{s.now(), t.field}}}})
	if err != nil {
		return store.Fate{}, err
	}
	if len(replies[0]) != 2 {
		return store.Fate{}, store.Errorf(store.KindCorrupt, "token of %d parts", len(replies[0]))
	}
	d := decoder{}
	at := decide.Clock{NowMS: d.int(replies[0][0]), Window: s.limits.TokenWindow}
	if t.had = replies[0][1] != ""; t.had {
		if t.is, err = parseToken(replies[0][1]); err != nil {
			return store.Fate{}, err
		}
	}
	return decide.Fate(st, at, c, name), d.err
}

// Size returns the number of cells of a namespace, those included that have
// expired and were not removed yet.
func (s *Store) Size(ctx context.Context, namespace string) (int64, error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.calls.Done()
	asked := make([]question, len(s.partitions))
	for i := range asked {
		p := &s.partitions[i]
		asked[i] = question{p, call{script: sizeScript, keys: []string{p.head, p.index(namespace)}}}
	}
	replies, err := s.ask(ctx, asked)
	if err != nil {
		return 0, err
	}
	d, n := decoder{}, int64(0)
	for _, texts := range replies {
		for _, t := range texts {
			n += d.int(t)
		}
	}
	return n, d.err
}

// Namespaces returns up to n namespaces that have a cell, in order. Partitions
// name those that may have one, and are then asked how many.
func (s *Store) Namespaces(ctx context.Context, after string, n int) ([]string, error) {
	if n < 1 || n > store.ScanMax {
		return nil, store.Errorf(store.KindInvalid, "list of %d namespaces: want 1 to %d", n, store.ScanMax)
	}
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.calls.Done()
	asked := make([]question, len(s.partitions))
	for i := range asked {
		p := &s.partitions[i]
		asked[i] = question{p, call{script: namesScript, keys: []string{p.head, p.names}}}
	}
	replies, err := s.ask(ctx, asked)
	if err != nil {
		return nil, err
	}
	homes := make(map[string][]int) // partitions, by namespace
	for i, names := range replies {
		for _, name := range names {
			if name > after {
				homes[name] = append(homes[name], i)
			}
		}
	}
	var found []string
	for some := range slices.Chunk(slices.Sorted(maps.Keys(homes)), namesMax) {
		held, err := s.holding(ctx, some, homes)
		if err != nil {
			return nil, err
		}
		if found = append(found, held...); len(found) >= n {
			return slices.Clip(found[:n]), nil
		}
	}
	return found, nil
}

// namesMax is how many namespaces a partition is asked for at once.
const namesMax = 1000

// holding returns those of some namespaces that have a cell in one of their
// partitions.
func (s *Store) holding(ctx context.Context, names []string, homes map[string][]int) ([]string, error) {
	byHome := make([][]string, len(s.partitions))
	for _, name := range names {
		for _, home := range homes[name] {
			byHome[home] = append(byHome[home], name)
		}
	}
	var asked []question
	var order []string
	for home, names := range byHome {
		if len(names) == 0 {
			continue
		}
		p := &s.partitions[home]
		keys := []string{p.head}
		for _, name := range names {
			keys = append(keys, p.index(name))
		}
		asked = append(asked, question{p, call{script: sizeScript, keys: keys}})
		order = append(order, names...)
	}
	replies, err := s.ask(ctx, asked)
	if err != nil {
		return nil, err
	}
	sizes := slices.Concat(replies...)
	if len(sizes) != len(order) {
		return nil, store.Errorf(store.KindCorrupt, "%d sizes of %d namespaces", len(sizes), len(order))
	}
	held := make(map[string]bool)
	for i, size := range sizes {
		if size != "0" {
			held[order[i]] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !held[name] }), nil
}
