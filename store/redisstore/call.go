package redisstore

import (
	"context"
	"crypto/sha1" // the name that Redis has for a script
	_ "embed"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/quipudb/quipu/store"
)

// How long is waited for what. A call also ends with its context.
const (
	servePatience    = time.Second      // with a server that can't serve, or does not answer: callers know better what to do
	conflictPatience = 15 * time.Second // with others who are faster
	waitPatience     = 5 * time.Second  // for replicas
	dialPatience     = 3 * time.Second
	connPatience     = 5 * time.Second        // for any answer on a connection
	closePatience    = time.Second            // for the calls under way, when the store is closed
	delayMax         = 200 * time.Millisecond // between two tries, if the server can't serve
	conflictMax      = 10 * time.Millisecond  // if somebody else was faster
)

var (
	//go:embed lua/common.lua
	commonLua string
	//go:embed lua/add.lua
	addLua string
	//go:embed lua/load.lua
	loadLua string
	//go:embed lua/commit.lua
	commitLua string
	//go:embed lua/read.lua
	readLua string
	//go:embed lua/scan.lua
	scanLua string
	//go:embed lua/lookup.lua
	lookupLua string
	//go:embed lua/due.lua
	dueLua string
	//go:embed lua/size.lua
	sizeLua string
	//go:embed lua/names.lua
	namesLua string
	//go:embed lua/audit.lua
	auditLua string
	//go:embed lua/found.lua
	foundLua string
	//go:embed lua/parts.lua
	partsLua string
	//go:embed lua/rows.lua
	rowsLua string
	//go:embed lua/drawers.lua
	drawersLua string
	//go:embed lua/drop.lua
	dropLua string

	addScript     = newScript(addLua)
	loadScript    = newScript(loadLua)
	commitScript  = newScript(commitLua)
	readScript    = newScript(readLua)
	scanScript    = newScript(scanLua)
	lookupScript  = newScript(lookupLua)
	dueScript     = newScript(dueLua)
	sizeScript    = newScript(sizeLua)
	namesScript   = newScript(namesLua)
	auditScript   = newScript(auditLua)
	foundScript   = newScript(foundLua)
	partsScript   = newScript(partsLua)
	rowsScript    = newScript(rowsLua)
	drawersScript = newScript(drawersLua)
	dropScript    = newScript(dropLua)
)

// A script is called by the hash of its source.
type script struct{ source, sha string }

func newScript(lua string) script {
	source := commonLua + lua
	sum := sha1.Sum([]byte(source))
	return script{source, hex.EncodeToString(sum[:])}
}

// A call is a script with its keys, all of one partition, and its arguments.
type call struct {
	script     script
	keys, args []string
}

// A wait is what a call waits for after it was made.
type wait uint8

const (
	noWait      wait = iota
	forReplicas      // they have what was written before
	forLogs          // likewise, and it is in their logs and the server's own, synced, if the servers tell that
)

// run makes a call once, and waits. An error is of a kind of package store:
// KindUnavailable if surely nothing was done.
func (s *Store) run(ctx context.Context, c call, w wait) (rueidis.RedisMessage, error) {
	m, err := s.send(ctx, c, w, false)
	if rerr, ok := rueidis.IsRedisErr(err); ok && rerr.IsNoScript() {
		m, err = s.send(ctx, c, w, true)
	}
	if err != nil {
		return m, failed(ctx, err)
	}
	return m, nil
}

// runAll makes a call that replies so many parts.
func (s *Store) runAll(ctx context.Context, c call, w wait, parts int) ([]rueidis.RedisMessage, error) {
	m, err := s.run(ctx, c, w)
	if err != nil {
		return nil, err
	}
	return partsOf(m, parts)
}

// partsOf returns the parts of a reply.
func partsOf(m rueidis.RedisMessage, parts int) ([]rueidis.RedisMessage, error) {
	all, err := m.ToArray()
	if err != nil || len(all) != parts {
		return nil, store.Errorf(store.KindCorrupt, "reply of %d parts: %w", len(all), err)
	}
	return all, nil
}

// send sends a call as it is: the script by its hash, or whole.
func (s *Store) send(ctx context.Context, c call, w wait, whole bool) (rueidis.RedisMessage, error) {
	s.meters.calls.Add(1)
	if w == noWait {
		return s.client.Do(ctx, c.build(s.client.B(), whole)).ToMessage()
	}
	// A connection of our own: WAIT is about what was written on it, and nobody
	// else's commands wait behind ours.
	s.meters.waits.Add(1)
	logs := w == forLogs && s.verdict.Load().logs
	var m rueidis.RedisMessage
	err := s.client.Dedicated(func(d rueidis.DedicatedClient) error {
		rs := d.DoMulti(ctx, c.build(d.B(), whole), s.waitFor(ctx, d.B(), logs))
		var err error
		if m, err = rs[0].ToMessage(); err != nil {
			return err
		}
		if err := s.waited(rs[1], logs); err != nil {
			s.meters.unmet.Add(1)
			if _, refused := rueidis.IsRedisErr(err); refused && logs { // it keeps no log any more
				select {
				case s.recheck <- struct{}{}:
				default:
				}
			}
			return store.Errorf(store.KindUnknown, "written, but wait for %d replicas: %w", s.options.Replicas, err)
		}
		return nil
	})
	return m, err
}

// waitFor returns the command that waits for replicas, or for logs.
func (s *Store) waitFor(ctx context.Context, b rueidis.Builder, logs bool) rueidis.Completed {
	n, ms := int64(s.options.Replicas), waiting(ctx).Milliseconds()
	if logs {
		return b.Waitaof().Numlocal(1).Numreplicas(n).Timeout(ms).Build()
	}
	return b.Wait().Numreplicas(n).Timeout(ms).Build()
}

// waited returns an error if what was waited for did not come in time.
func (s *Store) waited(r rueidis.RedisResult, logs bool) error {
	local, have := int64(1), int64(0)
	var err error
	if logs {
		var both []int64
		if both, err = r.AsIntSlice(); len(both) == 2 {
			local, have = both[0], both[1]
		}
	} else {
		have, err = r.AsInt64()
	}
	if err == nil && (local < 1 || have < int64(s.options.Replicas)) {
		err = errors.New("too few have it")
	}
	return err
}

// waiting is how long replicas are waited for: half of the time there is, so that
// the answer comes before the context ends. The connection is busy until then.
func waiting(ctx context.Context) time.Duration {
	wait := waitPatience
	if end, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(end)/2)
	}
	return max(wait, time.Millisecond)
}

func (c call) build(b rueidis.Builder, whole bool) rueidis.Completed {
	n := int64(len(c.keys))
	if whole {
		return b.Eval().Script(c.script.source).Numkeys(n).Key(c.keys...).Arg(c.args...).Build()
	}
	return b.Evalsha().Sha1(c.script.sha).Numkeys(n).Key(c.keys...).Arg(c.args...).Build()
}

// failed returns what an error of the client means: it is unknown whether a
// call was made, unless the error tells that it was not.
func failed(ctx context.Context, err error) error {
	if store.KindOf(err) != store.KindOther {
		return err
	}
	if rerr, ok := rueidis.IsRedisErr(err); ok {
		return refused(err, strings.Contains(rerr.Error(), "user_script"))
	}
	if ctx.Err() != nil {
		return store.Errorf(store.KindUnknown, "redis: %w", ctx.Err())
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" || errors.Is(err, rueidis.ErrNoSlot) {
		return store.Errorf(store.KindUnavailable, "redis: %w", err)
	}
	return store.Errorf(store.KindUnknown, "redis: %w", err)
}

// refused returns what it means that a server refused a call, or that a script failed.
func refused(err error, script bool) error {
	switch word, _, _ := strings.Cut(err.Error(), " "); word {
	case "NOHEAD":
		return store.Errorf(store.KindUnavailable, "redis: %w", headless{err})
	case "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "LOADING", "READONLY", "MASTERDOWN", "BUSY", "NOREPLICAS":
		return store.Errorf(store.KindUnavailable, "redis: %w", err)
	case "OOM", "MISCONF": // a script is refused at its first write
		return store.Errorf(store.KindUnavailable, "redis: %w", permanent{err})
	}
	if script {
		return store.Errorf(store.KindCorrupt, "redis: %w", err)
	}
	return store.Errorf(store.KindUnavailable, "redis: %w", permanent{err})
}

// permanent is the error of a server that won't serve soon: to send the same again
// is no use.
type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// A patient one tries again for a while, with pauses that grow and are not the
// same for all.
type patient struct {
	most  time.Duration // one pause
	all   time.Duration // from the first try on
	since time.Time
	tries int
}

// newPatient returns one whose patience begins now, with the first try: a try that
// took long enough is the last.
func newPatient(most, all time.Duration) patient {
	return patient{most: most, all: all, since: time.Now()}
}

// again waits before another try. It reports false if there is none.
func (p *patient) again(ctx context.Context) bool {
	if time.Since(p.since) > p.all {
		return false
	}
	most := min(time.Millisecond<<min(p.tries, 20), p.most)
	p.tries++
	t := time.NewTimer(most/4 + rand.N(most))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// look makes a call that changes nothing that matters, until it is answered.
func (s *Store) look(ctx context.Context, c call, w wait) (rueidis.RedisMessage, error) {
	p := newPatient(delayMax, servePatience)
	for {
		m, err := s.run(ctx, c, w)
		if err == nil || !passes(err) || !p.again(ctx) {
			return m, looked(ctx, err)
		}
		s.mend(ctx, err)
	}
}

// looked turns the error of a call that changes nothing into one that says so.
func looked(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case store.KindOf(err) == store.KindUnavailable: // it says what is wrong, and a context that ended meanwhile does not
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	case store.KindOf(err) == store.KindUnknown:
		return store.Errorf(store.KindUnavailable, "%w", err)
	}
	return err
}

// passes reports whether an error may be gone when the same is sent again.
func passes(err error) bool {
	kind := store.KindOf(err)
	_, ok := errors.AsType[permanent](err)
	return (kind == store.KindUnavailable || kind == store.KindUnknown) && !ok
}

// texts returns the strings of a reply that has nothing else.
func texts(m rueidis.RedisMessage) ([]string, error) {
	ss, err := m.AsStrSlice()
	if err != nil {
		return nil, store.Errorf(store.KindCorrupt, "reply of a script: %w", err)
	}
	return ss, nil
}
