package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redis/rueidis"

	"github.com/quipudb/quipu/internal/decide"
	"github.com/quipudb/quipu/store"
)

// Apply applies the batches of different partitions side by side, and those of
// one partition in their order.
func (s *Store) Apply(ctx context.Context, batches []store.Batch, replies []store.Reply) error {
	if len(batches) != len(replies) {
		return store.Errorf(store.KindInvalid, "apply %d batches into %d replies", len(batches), len(replies))
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.calls.Done()
	if len(batches) == 1 {
		return s.apply(ctx, &batches[0], &replies[0])
	}
	return store.Apart(batches, replies, func(some []store.Batch, told []store.Reply) error {
		errs := make([]error, len(some))
		var err error
		for i := range some {
			if err == nil {
				err = s.apply(ctx, &some[i], &told[i])
			}
			errs[i] = err // after it nothing of the partition was sent
		}
		return store.Answer(errs, told)
	})
}

// apply applies one batch, if it is one for this store.
func (s *Store) apply(ctx context.Context, b *store.Batch, r *store.Reply) error {
	w := s.writing(b, r)
	if w == nil {
		return nil
	}
	return s.insist(ctx, w, r, errUntried)
}

// writing returns a batch as it is to be sent, or nil if it is none for this store:
// then the reply says why.
func (s *Store) writing(b *store.Batch, r *store.Reply) *writing {
	*r = store.Reply{Results: r.Results[:0]}
	if r.Err = cmp.Or(store.CheckBatch(b, len(s.partitions)), decide.Homes(b, len(s.partitions))); r.Err != nil {
		return nil
	}
	w := &writing{batch: b, home: &s.partitions[b.Partition]}
	if b.Writer != 0 {
		w.digest, w.acked = b.Digest(), s.acked[b.Partition].get(b.Writer)
	}
	w.adds, _ = planOf(b)
	return w
}

// errUntried is that a batch was not sent yet.
var errUntried = errors.New("not sent")

// insist applies a batch, however often it has to be sent for that. Err is what became
// of it before.
func (s *Store) insist(ctx context.Context, w *writing, r *store.Reply, err error) error {
	p := newPatient(delayMax, servePatience)
	var doubt error // the first after which it is unknown whether the batch was applied
	for first := true; ; first = false {
		if !first || errors.Is(err, errUntried) {
			err = s.try(ctx, w, r)
		}
		if err == nil {
			s.finish(ctx, w, r)
			return nil
		}
		if doubt == nil && store.KindOf(err) == store.KindUnknown {
			doubt = err
		}
		switch {
		case !passes(err):
		case doubt != nil && !resendable(w.batch):
		case !p.again(ctx):
		default:
			s.meters.resends.Add(1)
			s.mend(ctx, err)
			continue
		}
		if doubt != nil {
			return doubt
		}
		return err
	}
}

// resendable reports whether a batch counts once, and gets its answer, however
// often it is sent. Without a writer its conditions come before its tokens: after
// it was applied they may not hold any more.
func resendable(b *store.Batch) bool {
	if b.Writer != 0 || len(b.If) > 0 {
		return b.Writer != 0
	}
	for i := range b.Deltas {
		if d := &b.Deltas[i]; d.Guard.Token == "" && d.Op != store.OpGet {
			return false
		}
	}
	return true
}

// A writing is a batch on its way.
type writing struct {
	batch  *store.Batch
	home   *partition
	digest uint64
	acked  uint64   // the mark that this store knows of
	adds   *planned // for add.lua, nil if that can't apply it

	retries int // how often it was decided again
}

// try sends a batch once.
func (s *Store) try(ctx context.Context, w *writing, r *store.Reply) error {
	if w.adds != nil {
		replies, err := s.runAll(ctx, s.adding(w), s.waits(w.batch.Durability), 1)
		if err != nil {
			return err
		}
		if done, err := s.added(w, replies[0], r); done || err != nil {
			return err
		}
	}
	return s.decide(ctx, w, r)
}

// finish completes the reply to a batch that was answered, and takes note of
// marks.
func (s *Store) finish(ctx context.Context, w *writing, r *store.Reply) {
	r.Retries = w.retries
	b, acked, told := w.batch, &s.acked[w.batch.Partition], &s.told[w.batch.Partition]
	switch {
	case b.Writer == 0:
	case store.KindOf(r.Err) == store.KindRetired:
		acked.drop(b.Writer)
	case r.Mark < w.acked:
		s.lose(b.Partition, fmt.Sprintf("mark %d of writer %d", r.Mark, b.Writer), fmt.Sprintf("mark %d, which was acknowledged", w.acked))
		told.Store(0) // this tells it
		r.Err = store.Errorf(store.KindLost, "writer %d in partition %d: %d was acknowledged, and the server is at %d",
			b.Writer, b.Partition, w.acked, r.Mark)
		r.Results, r.Replayed = r.Results[:0], false
	default:
		acked.raise(b.Writer, r.Mark)
	}
	if r.Err != nil {
		return
	}
	r.Durability = s.durability(ctx, b.Durability)
	s.raised[b.Partition].raise(b)
	for i := range b.Deltas {
		if d := &b.Deltas[i]; d.Op == store.OpRetire {
			acked.drop(store.Writer(d.N))
		}
	}
	for i := range r.Results {
		told.raise(r.Results[i].Version)
	}
}

// adding returns the call that lets the server apply batches of plain adds.
func (s *Store) adding(ws ...*writing) call {
	c := call{script: addScript}
	c.args = append(c.args, s.now(), strconv.FormatInt(s.limits.TokenWindow.Milliseconds(), 10))
	c.args = append(s.appendLimits(c.args), strconv.Itoa(len(ws)))
	for _, w := range ws {
		w.appendTo(&c)
	}
	return c
}

// appendTo appends the keys and the arguments of a batch of plain adds, after the number
// of both.
func (w *writing) appendTo(c *call) {
	b, p := w.batch, w.adds
	key, arg := len(c.keys), len(c.args)
	c.keys = append(c.keys, w.home.head, w.home.marks, w.home.names)
	for i := range p.spaces {
		c.keys = w.home.appendSpace(c.keys, p.spaces[i].name)
	}
	c.keys = p.appendDrawers(c.keys, w.home)
	c.args = append(c.args, strconv.Itoa(len(c.keys)-key), "")
	if b.Writer != 0 {
		c.args = append(c.args, strconv.FormatUint(uint64(b.Writer), 10), strconv.FormatUint(b.Prev, 10), strconv.FormatUint(b.Seq, 10),
			strconv.FormatUint(w.digest, 10), strconv.FormatUint(w.acked, 10))
	} else {
		c.args = append(c.args, "", "", "", "", "")
	}
	c.args = appendRecord(c.args, p.Record)
	if p.Timed {
		c.args = append(c.args, strconv.FormatInt(p.Oldest, 10), strconv.FormatInt(p.Newest, 10))
	} else {
		c.args = append(c.args, "", "")
	}
	c.args = p.appendArgs(c.args)
	c.args[arg+1] = strconv.Itoa(len(c.args) - arg)
}

// added takes what the server said to a batch of plain adds. It reports false if the
// batch has to be decided.
func (s *Store) added(w *writing, m rueidis.RedisMessage, r *store.Reply) (done bool, err error) {
	reply, err := texts(m)
	if err != nil {
		return false, err
	}
	switch reply[0] {
	case "applied":
		if r.Results, err = w.adds.results(strings.Split(reply[1], " "), r.Results[:0]); err != nil {
			return false, err
		}
		if w.batch.Writer != 0 {
			r.Mark = w.batch.Seq
		}
		return true, nil
	case "mark":
		apply, err := s.judge(w, reply[1], reply[2], reply[3], r)
		if done = !apply; done || err != nil {
			return done, err
		}
	case "failed":
		return false, refused(errors.New(reply[1]), true)
	}
	w.adds = nil
	return false, nil
}

// judge reports whether a batch follows the mark that the server has of its
// writer. If not, it has filled the reply.
func (s *Store) judge(w *writing, text, floor, marks string, r *store.Reply) (apply bool, err error) {
	b := w.batch
	d := decoder{}
	retired, count := store.Writer(d.uint(floor)), int(d.int(marks))
	m, err := parseMark(text, b, w.digest)
	if err = errors.Join(d.err, err); err != nil {
		return false, err
	}
	if text == "" {
		r.Err = decide.Admit(b.Writer, retired, count, s.limits.WritersMax)
	}
	// A mark behind what was acknowledged is not to be built on: finish says so.
	return r.Err == nil && m.Judge(b, w.digest, r) && m.Seq >= w.acked, nil
}

// appendRecord appends what a batch changes, as the scripts take it.
func appendRecord(args []string, rec decide.Record) []string {
	return appendHalves(append(args, strconv.FormatUint(rec.Deltas, 10)), rec)
}

// appendHalves appends the sums of a record, each in two halves.
func appendHalves(args []string, rec decide.Record) []string {
	sumHigh, sumLow := halves(rec.Sum)
	checkHigh, checkLow := halves(rec.Check)
	return append(args, sumHigh, sumLow, checkHigh, checkLow)
}

// appendLimits appends the limits of a partition, as the scripts take them.
func (s *Store) appendLimits(args []string) []string {
	return append(args, strconv.FormatInt(s.share.KeysMax, 10), strconv.FormatInt(s.share.TokensMax, 10),
		strconv.Itoa(s.share.NamespacesMax), strconv.Itoa(s.share.WritersMax))
}

// marks are the highest that this store has seen of the writers of a partition.
type marks struct {
	mu   sync.Mutex // guards seen
	seen map[store.Writer]uint64
}

func (m *marks) get(w store.Writer) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen[w]
}

func (m *marks) raise(w store.Writer, seq uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.seen == nil {
		m.seen = make(map[store.Writer]uint64)
	}
	m.seen[w] = max(m.seen[w], seq)
}

// all returns the marks of all writers.
func (m *marks) all() map[store.Writer]uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.seen)
}

// drop forgets the writers up to last, which are retired.
func (m *marks) drop(last store.Writer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.seen, func(w store.Writer, _ uint64) bool { return w <= last })
}

// A version is the highest of a cell in a partition that callers were told of.
type version struct{ atomic.Uint64 }

func (v *version) raise(to uint64) {
	for is := v.Load(); is < to; is = v.Load() {
		if v.CompareAndSwap(is, to) {
			return
		}
	}
}
