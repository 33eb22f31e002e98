package redisstore

import (
	"context"

	"github.com/redis/rueidis"

	"github.com/quipudb/quipu/store"
)

var _ store.Carrier = (*Store)(nil)

// carriedMax is how many arguments a call has that carries several batches, unless one
// alone has more.
const carriedMax = 1 << 16

// Carry applies batches of different partitions, and sends the plain adds among them
// together.
func (s *Store) Carry(ctx context.Context, batches []*store.Batch, replies []*store.Reply, done func(i int, err error)) {
	if err := s.enter(ctx); err != nil {
		for i := range batches {
			done(i, err)
		}
		return
	}
	defer s.calls.Done()
	c := carrying{Store: s, ctx: ctx, replies: replies, done: done, writings: make([]*writing, len(batches))}
	var plain [forLogs + 1][]int // by what they wait for
	for i, b := range batches {
		w := s.writing(b, replies[i])
		c.writings[i] = w
		switch {
		case w == nil:
			done(i, nil)
		case w.adds == nil:
			c.apart(i, errUntried)
		default:
			kind := s.waits(b.Durability)
			plain[kind] = append(plain[kind], i)
		}
	}
	for kind, some := range plain {
		if s.client.Mode() == rueidis.ClientModeCluster {
			c.sendEach(some, wait(kind))
			continue
		}
		for len(some) > 0 {
			n := c.fitting(some)
			c.sendAll(some[:n], wait(kind))
			some = some[n:]
		}
	}
}

// A carrying is a call of Carry.
type carrying struct {
	*Store
	ctx      context.Context
	writings []*writing
	replies  []*store.Reply
	done     func(i int, err error)
}

// fitting returns how many batches fit into one call, at least one.
func (c *carrying) fitting(some []int) int {
	args := 0
	for n, i := range some {
		if args += c.writings[i].adds.size(); args > carriedMax && n > 0 {
			return n
		}
	}
	return len(some)
}

// sendAll sends some batches in one call, which a server does that has all partitions.
func (c *carrying) sendAll(some []int, w wait) {
	ws := make([]*writing, len(some))
	for k, i := range some {
		ws[k] = c.writings[i]
	}
	all, err := c.runAll(c.ctx, c.adding(ws...), w, len(ws))
	for k, i := range some {
		if err != nil {
			c.apart(i, err)
			continue
		}
		c.answered(i, all[k])
	}
}

// sendEach sends each of some batches in a call of its own, all of them in one trip to
// each server.
func (c *carrying) sendEach(some []int, w wait) {
	if w != noWait { // each on a connection of its own
		for _, i := range some {
			c.apart(i, errUntried)
		}
		return
	}
	commands := make([]rueidis.Completed, len(some))
	for k, i := range some {
		commands[k] = c.adding(c.writings[i]).build(c.client.B(), false)
	}
	c.meters.calls.Add(uint64(len(some)))
	for k, result := range c.client.DoMulti(c.ctx, commands...) {
		i := some[k]
		m, err := result.ToMessage()
		rerr, refused := rueidis.IsRedisErr(err)
		switch {
		case refused && rerr.IsNoScript():
			c.apart(i, errUntried)
		case err != nil:
			c.apart(i, failed(c.ctx, err))
		default:
			all, err := partsOf(m, 1)
			if err != nil {
				c.apart(i, err)
				continue
			}
			c.answered(i, all[0])
		}
	}
}

// answered takes the answer of add.lua to a batch.
func (c *carrying) answered(i int, m rueidis.RedisMessage) {
	w, r := c.writings[i], c.replies[i]
	done, err := c.added(w, m, r)
	switch {
	case err != nil:
		c.apart(i, err)
	case done:
		c.finish(c.ctx, w, r)
		c.done(i, nil)
	default:
		c.apart(i, errUntried)
	}
}

// apart applies a batch by itself, while others go on. Err is what became of it before.
func (c *carrying) apart(i int, err error) {
	c.calls.Go(func() { c.done(i, c.insist(c.ctx, c.writings[i], c.replies[i], err)) })
}

// Route returns the number of the first partition that is on the same server as a
// partition, as far as is known.
func (s *Store) Route(partition int) int { return int(s.routes[partition].Load()) }

// findRoutes finds out which partitions are on one server. Those of a cluster whose
// slots nobody tells are taken to be apart.
func (s *Store) findRoutes(ctx context.Context) {
	if s.client.Mode() != rueidis.ClientModeCluster {
		return
	}
	masters := s.masters(ctx)
	first := make(map[string]int32)
	for i := range s.partitions {
		route := int32(i)
		if master := masters(s.partitions[i].slot); master != "" {
			if at, ok := first[master]; ok {
				route = at
			} else {
				first[master] = route
			}
		}
		s.routes[i].Store(route)
	}
}

// masters returns what tells the id of the master that has a slot, "" if that is not
// known.
func (s *Store) masters(ctx context.Context) func(slot uint16) string {
	ctx, cancel := context.WithTimeout(ctx, settingsPatience)
	defer cancel()
	all, _ := s.client.Do(ctx, s.client.B().ClusterSlots().Build()).ToArray()
	return func(slot uint16) string {
		for i := range all { // from, to, its master, its replicas
			of, err := all[i].ToArray()
			if err != nil || len(of) < 3 {
				return ""
			}
			p := parser{all: of}
			if from, to := p.number(), p.number(); int64(slot) < from || int64(slot) > to {
				continue
			}
			if node := p.list(); p.err == nil && len(node) > 2 { // address, port, id
				return node[2]
			}
		}
		return ""
	}
}
