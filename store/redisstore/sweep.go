package redisstore

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// An expired cell is removed when a batch comes across it, when a namespace has
// no room, and by every store in the background, in small steps. Several that do
// it disturb nobody: what one has removed the others do not find.
const (
	sweepEvery    = time.Second // how often partitions are looked at, and one of them is tidied
	sweepPatience = 10 * time.Second
	sweepCells    = 200 // removed in one step
	sweepSpaces   = 50  // tidied in one step
	roomSteps     = 10  // made for a batch that finds no room
)

// sweepAlways removes what has expired until the store is closed. Partitions are
// swept side by side, so that one that does not answer keeps no other from it.
func (s *Store) sweepAlways(ctx context.Context) {
	t := time.NewTicker(sweepEvery)
	defer t.Stop()
	var busy sync.WaitGroup
	defer busy.Wait()
	swept := make([]atomic.Bool, len(s.partitions)) // is being
	for turn := 0; ; turn++ {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		for i := range s.partitions {
			if swept[i].Swap(true) {
				continue // it takes long
			}
			tidy := turn%len(s.partitions) == i
			busy.Go(func() {
				defer swept[i].Store(false)
				s.sweepPartition(ctx, &s.partitions[i], tidy)
			})
		}
	}
}

// sweepPartition removes what has expired in a partition, and may tidy it. An error is as
// good as nothing found: there is a next time.
func (s *Store) sweepPartition(ctx context.Context, p *partition, tidy bool) {
	ctx, cancel := context.WithTimeout(ctx, sweepPatience)
	defer cancel()
	for more := true; more; {
		n, err := s.sweep(ctx, p)
		s.mend(ctx, err)
		more = err == nil && n == sweepCells
	}
	if tidy {
		_ = s.tidy(ctx, p)
		_ = s.empty(ctx, p)
	}
}

// makeRoom removes what has expired in a partition, for a batch that was told
// that there is no room.
func (s *Store) makeRoom(ctx context.Context, p *partition, crowded bool) error {
	for range roomSteps {
		if n, err := s.sweep(ctx, p); err != nil {
			return err
		} else if n < sweepCells {
			break
		}
	}
	if crowded {
		return s.tidy(ctx, p)
	}
	return nil
}

// sweep removes some cells of a partition that have expired, and returns how
// many.
func (s *Store) sweep(ctx context.Context, p *partition) (int, error) {
	m, err := s.run(ctx, call{dueScript, []string{p.head, p.dues}, []string{s.now(), strconv.Itoa(sweepCells)}}, noWait)
	if err != nil {
		return 0, looked(ctx, err)
	}
	found, err := texts(m)
	if len(found) == 0 || err != nil {
		return 0, err
	}
	st := newState(p, s.share)
	for _, member := range found {
		c, err := dueCell(member)
		if err != nil {
			return 0, err
		}
		st.cell(c)
	}
	return s.clean(ctx, st)
}

// tidy forgets old tokens of a partition, and namespaces that have nothing left.
func (s *Store) tidy(ctx context.Context, p *partition) error {
	names, err := s.namespaces(ctx, p)
	if err != nil {
		return err
	}
	for some := range slices.Chunk(names, sweepSpaces) {
		st := newState(p, s.share)
		for _, name := range some {
			st.space(name)
		}
		if _, err := s.clean(ctx, st); err != nil {
			return err
		}
	}
	return nil
}

// namespaces returns those of a partition that may have keys or tokens, except
// for the store's own.
func (s *Store) namespaces(ctx context.Context, p *partition) ([]string, error) {
	names, err := s.client.Do(ctx, s.client.B().Smembers().Key(p.names).Build()).AsStrSlice()
	if err != nil {
		return nil, looked(ctx, failed(ctx, err))
	}
	return names, nil
}

// drawers returns those of a partition.
func (s *Store) drawers(ctx context.Context, p *partition) ([]drawer, error) {
	names, err := s.client.Do(ctx, s.client.B().Zrange().Key(p.drawers).Min("0").Max("-1").Build()).AsStrSlice()
	if err != nil {
		return nil, looked(ctx, failed(ctx, err))
	}
	all := make([]drawer, len(names))
	for i, name := range names {
		if all[i], err = drawerNamed(name); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// empty removes the drawers of a partition that are below their floors, which the
// script looks at.
func (s *Store) empty(ctx context.Context, p *partition) error {
	drawers, err := s.drawers(ctx, p)
	if err != nil {
		return err
	}
	for _, d := range drawers {
		if _, _, retained := d.shelf(); !retained {
			continue
		}
		keys := []string{p.head, p.drawers, p.contents(d), p.order(d)}
		if _, err := s.run(ctx, call{dropScript, keys, d.appendFloor([]string{d.name()})}, noWait); err != nil {
			return err
		}
	}
	return nil
}

// clean removes what has expired of what a state names, and returns how many
// cells that were. If something changed meanwhile, it leaves it for the next time.
func (s *Store) clean(ctx context.Context, st *state) (int, error) {
	for {
		if err := s.load(ctx, st, 0, 0, s.shown()); err != nil {
			return 0, err
		}
		if len(st.missed) == 0 {
			break
		}
		st = st.again() // objects have expired
	}
	done, err := s.commit(ctx, st, 0, noWait)
	if !done || err != nil {
		return 0, looked(ctx, err)
	}
	n := 0
	for _, sp := range st.spaces {
		for _, c := range sp.cells {
			if c.gone {
				n++
			}
		}
	}
	s.meters.expired.Add(uint64(n))
	return n, nil
}
