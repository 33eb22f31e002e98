package datagram

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/store"
)

// ship adds what waits, again and again, until nothing more can come.
func (d *Door) ship() {
	defer close(d.done)
	tick := time.NewTicker(shipEvery)
	defer tick.Stop()
	for last := false; !last; {
		d.learn()
		select {
		case <-tick.C:
		case <-d.ended:
			last = true
		}
		d.mu.Lock()
		p := d.open
		if !p.empty() {
			d.open = newPile()
		}
		d.mu.Unlock()
		d.add(p)
	}
}

// learn reads the definitions. Those of before hold while the store can't be reached.
func (d *Door) learn() {
	book, err := d.db.Definitions(d.ctx)
	if old := d.rules.Load(); err == nil && (old == nil || old.book != book.ID) {
		d.rules.Store(rulesOf(book.ID, book.Definitions))
	}
}

// add adds what is in a pile.
func (d *Door) add(p *pile) {
	batch := make([]*entry, 0, min(batchMax, len(p.entries)))
	for _, e := range p.entries {
		if batch = append(batch, e); len(batch) == batchMax {
			d.addBatch(batch)
			batch = batch[:0]
		}
	}
	d.addBatch(batch)
	var all sync.WaitGroup
	places := make(chan struct{}, crowdsMax)
	for _, c := range p.crowds {
		places <- struct{}{}
		all.Go(func() {
			d.addCrowd(c)
			<-places
		})
	}
	all.Wait()
}

// addBatch adds entries. What the store surely did not take is added again, until it is
// taken or the door is closed; what it may have taken is not.
func (d *Door) addBatch(batch []*entry) {
	d.again(func() bool {
		batch = d.try(batch)
		return len(batch) == 0
	})
	for _, e := range batch {
		d.settle(e.event.Key, e.lines, store.ErrClosed)
	}
}

// again calls do until it returns true, or the door is closed.
func (d *Door) again(do func() bool) {
	for pause := retryFirst; !do(); pause = min(2*pause, retryMax) {
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-d.ctx.Done():
			t.Stop()
			return
		}
	}
}

// try adds entries once, and returns those that nothing has become of.
func (d *Door) try(batch []*entry) (left []*entry) {
	if len(batch) == 0 {
		return nil
	}
	events := make([]quipu.Event, len(batch))
	for i, e := range batch {
		events[i] = e.event
	}
	receipts, err := d.db.AddBatch(d.ctx, events)
	for i, e := range batch {
		one := err
		if err == nil {
			one = receipts[i].Err
		}
		if store.KindOf(one) == store.KindUnavailable {
			left = append(left, e)
			continue
		}
		d.settle(e.event.Key, e.lines, one)
	}
	return left
}

// addCrowd takes users into those of a counter. It may be done twice: a user counts once.
func (d *Door) addCrowd(c *crowd) {
	users := slices.Collect(maps.Keys(c.users))
	err := error(store.ErrClosed)
	for some := range slices.Chunk(users, quipu.UniquesMax) {
		d.again(func() bool {
			_, err = d.db.AddUniques(d.ctx, c.key, some...)
			kind := store.KindOf(err)
			return err == nil || kind != store.KindUnavailable && kind != store.KindUnknown
		})
		if err != nil {
			break
		}
	}
	d.settle(c.key, c.lines, err)
}

// settle meters what has become of lines.
func (d *Door) settle(key string, lines int64, err error) {
	meter := &d.meters.refused
	switch {
	case err == nil:
		meter = &d.meters.added
	case store.KindOf(err) == store.KindUnknown:
		meter = &d.meters.unknown
	}
	meter.Add(lines)
	d.meters.waiting.Add(-lines)
	if err != nil {
		d.logger.Warn("StatsD lines were not counted", "key", key, "lines", lines, "error", err)
	}
}
