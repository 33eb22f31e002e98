package crash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/quipudb/quipu/store"
)

const (
	workers  = 16
	readers  = 2
	coldKeys = 2000
)

// A target is a counter that the load writes to, and how.
type target struct {
	*counter
	weight int
	blind  bool // its writes have no tokens
	assign bool // it is also set and reset
}

// targets returns the counters of the load. The prefixes w: and m: are those of
// the policies, if there are any.
func targets(policies bool) []target {
	of := func(key string) *counter {
		c := &counter{key: key, durability: store.Synced}
		switch {
		case !policies:
		case key[:2] == "w:":
			c.durability = store.Written
		case key[:2] == "m:":
			c.durability = store.Memory
		}
		return c
	}
	ts := []target{
		{counter: of("m:hot"), weight: 10},
		{counter: of("hot"), weight: 30},
		{counter: of("blind"), weight: 12, blind: true},
		{counter: of("signed"), weight: 10},
		{counter: of("stock"), weight: 10, assign: true},
		{counter: of("gone"), weight: 6, assign: true},
		{counter: of("w:hot"), weight: 10},
		{counter: of("w:blind"), weight: 6, blind: true},
		{counter: of("m:stock"), weight: 6, assign: true},
	}
	for i := range ts {
		t := &ts[i]
		t.deleted = t.key == "gone"
		t.rising = !t.assign && t.key != "signed"
	}
	return ts
}

// cold returns counters of which each is written rarely.
func cold() []*counter {
	cs := make([]*counter, coldKeys)
	for i := range cs {
		cs[i] = &counter{key: fmt.Sprintf("cold/%04d", i), durability: store.Synced, rising: true}
	}
	return cs
}

// A worker sends one request after the other to one server.
type worker struct {
	world  *world
	client *client
	rng    *rand.Rand
	name   string // begins its tokens
	tokens int
	mine   []*request // answered lately
}

// run works until the server is down, or until it is told to stop.
func (k *worker) run(ctx context.Context, stop <-chan struct{}) {
	k.world.repeatedly(stop, func() error { return k.step(ctx) })
}

// repeatedly calls f until the server is down, the answer is wrong, or stop is
// closed.
func (w *world) repeatedly(stop <-chan struct{}, f func() error) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		switch err := f(); {
		case errors.Is(err, errDown):
			return
		case err != nil && !errors.Is(err, errBusy):
			w.problem(err)
			return
		}
	}
}

// step sends something.
func (k *worker) step(ctx context.Context) error {
	switch d := k.rng.IntN(1000); {
	case d < 100:
		return k.read(ctx)
	case d < 130:
		return k.repeat(ctx)
	case d < 160:
		return k.lookup(ctx)
	case d < 175:
		return k.settleFirst(ctx)
	case d < 190:
		return k.settleLate(ctx)
	case d < 220:
		return k.pair(ctx)
	case d < 300:
		return k.deliver(ctx, k.batch(2+k.rng.IntN(20), k.pick))
	case d < 315:
		return k.deliver(ctx, k.batch(100+k.rng.IntN(200), k.pickCold))
	case d < 345:
		return k.undo(ctx)
	default:
		return k.deliver(ctx, k.one())
	}
}

// deliver sends a request, notes the answers, and keeps it for a repeat.
func (k *worker) deliver(ctx context.Context, r *request) error {
	err := deliver(ctx, k.client, r)
	if err == nil && r.repeatable() {
		if len(k.mine) == 8 {
			k.mine = k.mine[1:]
		}
		k.mine = append(k.mine, r)
	}
	return err
}

// deliver sends a request and notes the answers.
func deliver(ctx context.Context, c *client, r *request) error {
	before := make([]state, len(r.writes))
	for i, w := range r.writes {
		before[i] = w.open()
	}
	answers, err := c.send(ctx, r)
	var wrong error
	for i, a := range answers {
		wrong = errors.Join(wrong, r.writes[i].note(before[i], a))
	}
	if wrong != nil { // goes before a server that is down
		return wrong
	}
	return err
}

func (k *worker) pick() target {
	ts := k.world.targets
	sum := 0
	for _, t := range ts {
		sum += t.weight
	}
	d := k.rng.IntN(sum)
	for _, t := range ts {
		if d -= t.weight; d < 0 {
			return t
		}
	}
	panic("unreachable")
}

func (k *worker) pickCold() target {
	return target{counter: k.world.cold[k.rng.IntN(coldKeys)]}
}

// token returns one that was never used.
func (k *worker) token() string {
	k.tokens++
	return fmt.Sprintf("%s.%d", k.name, k.tokens)
}

// amount returns what to add to a target.
func (k *worker) amount(t target) int64 {
	switch {
	case !t.rising:
		return k.rng.Int64N(101) - 50
	case k.rng.IntN(8) == 0:
		return 1 + k.rng.Int64N(1_000_000)
	default:
		return 1
	}
}

// one returns a request with one write.
func (k *worker) one() *request {
	t := k.pick()
	w := &write{counter: t.counter, n: k.amount(t), minimal: k.rng.IntN(3) == 0}
	if !t.blind {
		w.token = k.token()
	}
	switch {
	case t.assign && k.rng.IntN(2) == 0:
		k.assign(w)
	case t.views != none:
		w.event = k.event(t.views)
		w.adjust = k.rng.IntN(8) == 0
	}
	w.request = &request{writes: []*write{w}}
	return w.request
}

// assign makes w more than an add. It must tell what it replaced.
func (k *worker) assign(w *write) {
	w.minimal = false
	switch k.rng.IntN(4) {
	case 0:
		w.verb = reset
	case 1:
		w.verb, w.n = set, k.rng.Int64N(1000)
	case 2:
		w.verb, w.n, w.match = set, k.rng.Int64N(1000), w.counter.version()
	case 3:
		w.verb = reset
		if w.counter.deleted {
			w.verb = remove
		}
	}
}

// batch returns a request with n adds.
func (k *worker) batch(n int, pick func() target) *request {
	r := &request{token: k.token(), writes: make([]*write, n)}
	minimal := k.rng.IntN(2) == 0
	for i := range r.writes {
		t := pick()
		r.writes[i] = &write{
			request: r, counter: t.counter, n: k.amount(t), minimal: minimal,
			token: fmt.Sprintf("%s/%d", r.token, i),
		}
		if t.views != none {
			r.writes[i].event = k.event(t.views)
		}
	}
	return r
}

// read reads a counter while others write to it.
func (k *worker) read(ctx context.Context) error {
	c := k.pick().counter
	if k.rng.IntN(4) == 0 {
		c = k.pickCold().counter
	}
	floor := c.floor()
	v, err := k.client.read(ctx, c.key)
	if err != nil {
		return err
	}
	return c.saw(v, floor)
}

// recalled returns a request that was answered, or nil.
func (k *worker) recalled() *request {
	if len(k.mine) == 0 {
		return nil
	}
	return k.mine[k.rng.IntN(len(k.mine))]
}

// repeat sends a request again that was answered.
func (k *worker) repeat(ctx context.Context) error {
	if r := k.recalled(); r != nil {
		k.world.repeats.Add(1)
		return deliver(ctx, k.client, r)
	}
	return nil
}

// lookup asks for the fate of a write that was answered.
func (k *worker) lookup(ctx context.Context) error {
	r := k.recalled()
	if r == nil {
		return nil
	}
	w := r.writes[k.rng.IntN(len(r.writes))]
	f, err := k.client.lookup(ctx, w)
	if err != nil {
		return err
	}
	return w.noteFate(f)
}

// settleFirst settles a token, and then sends its write.
func (k *worker) settleFirst(ctx context.Context) error {
	r := k.one()
	if !r.repeatable() {
		return nil
	}
	if err := settle(ctx, k.client, r.writes[0]); err != nil {
		return err
	}
	return deliver(ctx, k.client, r)
}

// settleLate settles the token of a write that was answered.
func (k *worker) settleLate(ctx context.Context) error {
	if r := k.recalled(); r != nil {
		return settle(ctx, k.client, r.writes[k.rng.IntN(len(r.writes))])
	}
	return nil
}

func settle(ctx context.Context, c *client, w *write) error {
	w.beginSettle()
	f, err := c.settle(ctx, w)
	if err != nil {
		return err
	}
	return w.noteSettle(f)
}

// pair sends one request twice at the same time: one of the two is a repeat.
func (k *worker) pair(ctx context.Context) error {
	r := k.one()
	if !r.repeatable() {
		return nil
	}
	w := r.writes[0]
	w.open()
	var second answer
	var err2 error
	var done sync.WaitGroup
	done.Go(func() { second, err2 = k.send(ctx, r) })
	first, err1 := k.send(ctx, r)
	done.Wait()
	if first.replayed {
		first, second = second, first
	}
	before := unknown // one that was not answered may have been the first
	if first.outcome == success && second.outcome == success {
		if first.replayed || !second.replayed {
			return fmt.Errorf("%v: sent twice, and answered with %+v and %+v", w, first, second)
		}
		before = fresh
	}
	if err := errors.Join(w.note(before, first), w.note(unknown, second)); err != nil {
		return err
	}
	return errors.Join(err1, err2)
}

// send sends a request with one write.
func (k *worker) send(ctx context.Context, r *request) (answer, error) {
	answers, err := k.client.send(ctx, r)
	if len(answers) == 0 {
		return answer{}, err
	}
	return answers[0], err
}

// whisper writes a little to a counter that may be of the weakest durability,
// while nobody else writes anything that would take it along to the disk. Some
// of it is then asked for with a settle, which promises more.
func (k *worker) whisper(ctx context.Context) error {
	for range 1 + k.rng.IntN(6) {
		w := &write{counter: k.world.targets[0].counter, n: 1, token: k.token()}
		w.request = &request{writes: []*write{w}}
		if err := deliver(ctx, k.client, w.request); err != nil {
			return err
		}
		if k.rng.IntN(3) == 0 {
			if err := settle(ctx, k.client, w); err != nil {
				return err
			}
		}
	}
	return nil
}

// operate does what operators do while others count: it has the server verify
// itself and make backups, and so checkpoints.
func (w *world) operate(ctx context.Context, stop <-chan struct{}, rng *rand.Rand) {
	w.repeatedly(stop, func() error {
		pause(time.Duration(10+rng.IntN(100))*time.Millisecond, w.process.Exited)
		if w.store == "" && rng.IntN(2) == 0 {
			return w.client.backup(ctx)
		}
		return w.client.verify(ctx)
	})
}
