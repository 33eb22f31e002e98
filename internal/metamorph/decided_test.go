package metamorph

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/engine"
	"github.com/quipudb/quipu/internal/hold"
)

// TestDecidedCrashes draws histories of reservations and reactions over the engine, on a disk
// that loses power and by a clock that also steps back, and compares every answer with plain
// maps. All is synced, so a crash takes nothing of what was told.
func TestDecidedCrashes(t *testing.T) {
	rng := chance(t)
	for range max(2, *runs) {
		d := newDocket(t, rng)
		for range 120 {
			d.step()
		}
		d.settled()
		d.close()
	}
}

// A docket is a DB that is asked, and what it has to answer.
type docket struct {
	*testing.T
	rng  *rand.Rand
	disk *disk
	wall atomic.Int64 // the clock, Unix milliseconds
	kept *engine.Engine
	db   *quipu.DB

	now   int64 // the store's time, as far as anyone was told: it never falls
	own   int64 // what is available
	holds []*claim
	users map[string]string // what they have chosen
	named map[string]string // what reactions under tokens have found, and chosen
	at    int
}

// A claim is a reservation.
type claim struct {
	id, token string
	amount    int64
	ttl       time.Duration
	deadline  time.Time
	state     quipu.HoldState
	taken     int64
}

var fancied = []string{"like", "dislike"}

func newDocket(t *testing.T, rng *rand.Rand) *docket {
	d := &docket{T: t, rng: rng, disk: &disk{MemFS: vfs.NewCrashableMem()}, users: map[string]string{}, named: map[string]string{}}
	d.wall.Store(time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC).UnixMilli())
	d.open()
	must[quipu.Change](t)(d.db.Define(t.Context(), []definition.Definition{{Pattern: "post", Choices: fancied}}, quipu.DefineOptions{}))
	d.own = 40
	must[quipu.Receipt](t)(d.db.Set(t.Context(), "stock", d.own))
	return d
}

// open opens the DB. Segments are small, and checkpoints frequent, so that crashes meet all
// that there is to meet.
func (d *docket) open() {
	d.Helper()
	e, err := engine.Open("/data", engine.Options{
		FS: d.disk, Now: func() time.Time { return time.UnixMilli(d.wall.Load()) }, SegmentBytes: 4096, CheckpointEvery: time.Millisecond,
	})
	if err != nil {
		d.Fatal(err)
	}
	d.kept, d.db = e, quipu.New(borrow(e), quipu.Options{Logger: slog.New(slog.DiscardHandler)})
}

// close closes the DB, and what it is over.
func (d *docket) close() {
	d.Helper()
	if err := errors.Join(d.db.Close(), d.kept.Close()); err != nil {
		d.Fatal(err)
	}
}

func (d *docket) step() {
	d.Helper()
	switch n := d.rng.IntN(40); {
	case n < 16:
		d.react()
	case n < 22:
		d.reserve(&claim{token: strconv.Itoa(d.name()), amount: 1 + d.rng.Int64N(12), ttl: time.Duration(1+d.rng.IntN(20)) * time.Second})
	case n < 33:
		if len(d.holds) > 0 {
			d.hold(d.holds[max(0, len(d.holds)-1-d.rng.IntN(6))])
		}
	case n < 36:
		d.pass(time.Duration(d.rng.IntN(5000)) * time.Millisecond)
	case n < 37: // The clock is set back, which nobody may notice but that time stands still.
		d.pass(-time.Duration(d.rng.IntN(8000)) * time.Millisecond)
	case n < 39: // Power is lost, also in the middle of a checkpoint.
		left, kept := d.db, d.kept
		d.disk = d.disk.cut(d.rng)
		_ = errors.Join(left.Close(), kept.Close()) // on the disk as it was, which nobody looks at again
		d.open()
	default:
		d.close()
		d.open()
	}
}

func (d *docket) name() int {
	d.at++
	return d.at
}

// pass moves the clock, and waits until what has expired is given back.
func (d *docket) pass(by time.Duration) {
	d.Helper()
	d.now = max(d.now, d.wall.Load())
	must[quipu.Receipt](d.T)(d.db.Add(d.Context(), "stock", 0)) // The store has seen the time there was.
	d.wall.Add(by.Milliseconds())
	for d.lapsed() {
		d.late()
		d.wall.Store(d.now + hold.Grain.Milliseconds()) // Only then somebody has to look for it.
	}
	d.settled()
}

// lapsed takes the time from the clock, and reports whether a reservation has expired by it.
func (d *docket) lapsed() (some bool) {
	d.now = max(d.now, d.wall.Load())
	for slices.ContainsFunc(d.holds, func(c *claim) bool { return c.deadline.UnixMilli() == d.now }) {
		d.now = max(d.now, d.wall.Add(1)) // At its deadline a reservation may be ended by anybody.
	}
	for _, c := range d.holds {
		if c.state == quipu.HoldOpen && c.deadline.UnixMilli() < d.now {
			c.state, some = quipu.HoldExpired, true
			d.own += c.amount
		}
	}
	return some
}

// late ends what has expired and is not given back, after the clock is set back: it is too
// late all the same.
func (d *docket) late() {
	d.Helper()
	must[quipu.Receipt](d.T)(d.db.Add(d.Context(), "stock", 0)) // The store has seen the time there is.
	d.wall.Store(d.now - 30_000)
	for _, c := range d.holds {
		if c.state == quipu.HoldExpired {
			if r, err := d.db.Commit(d.Context(), c.id, c.amount); !errors.Is(err, quipu.ErrEnded) {
				d.Fatalf("%+v is committed: %+v, %v", c, r, err)
			}
		}
	}
}

// reserve reserves, or does so again.
func (d *docket) reserve(c *claim) {
	d.Helper()
	r, err := d.db.Reserve(d.Context(), "stock", c.amount, c.ttl, quipu.Token(c.token))
	switch {
	case c.state != 0: // A repeat is told what has become of it.
		if err != nil || r.ID != c.id || !r.Replayed || r.State != c.state || r.Committed != c.taken {
			d.Fatalf("a repeat of %+v: %+v, %v", c, r, err)
		}
	case d.own < c.amount:
		if e, ok := errors.AsType[*quipu.BoundError](err); !ok || e.Value != d.own {
			d.Fatalf("%d of %d are reserved: %+v, %v", c.amount, d.own, r, err)
		}
	case err != nil || r.Replayed || r.State != quipu.HoldOpen:
		d.Fatalf("%+v of %d: %+v, %v", c, d.own, r, err)
	default:
		c.id, c.state, c.deadline = r.ID, quipu.HoldOpen, r.ExpiresAt
		d.own -= c.amount
		d.holds = append(d.holds, c)
	}
}

// hold does something to a reservation.
func (d *docket) hold(c *claim) {
	d.Helper()
	ctx := d.Context()
	var r quipu.Reservation
	var err error
	to, taken := quipu.HoldOpen, int64(0)
	switch d.rng.IntN(5) {
	case 0:
		d.reserve(c)
		return
	case 1:
		to = quipu.HoldReleased
		r, err = d.db.Release(ctx, c.id)
	case 2:
		r, err = d.db.Extend(ctx, c.id, time.Duration(1+d.rng.IntN(20))*time.Second)
		if c.state == quipu.HoldOpen && err == nil {
			if r.ExpiresAt.Before(c.deadline) {
				d.Fatalf("%+v is shortened: %+v", c, r)
			}
			c.deadline = r.ExpiresAt
		}
	default:
		to, taken = quipu.HoldCommitted, d.rng.Int64N(c.amount+1)
		r, err = d.db.Commit(ctx, c.id, taken)
	}
	before := c.state
	if before == quipu.HoldOpen && to != quipu.HoldOpen {
		c.state, c.taken = to, taken
		d.own += c.amount - taken
	}
	if same := c.state == to && c.taken == taken; same != (err == nil) || !same && !errors.Is(err, quipu.ErrEnded) {
		d.Fatalf("%s with %d of %+v: %+v, %v", to, taken, c, r, err)
	}
	if err == nil && (r.State != c.state || r.Committed != c.taken || r.Replayed != (before != quipu.HoldOpen)) {
		d.Fatalf("%+v, and was %s: told %+v", c, before, r)
	}
}

// react has a user react, with a token or without, or do it again.
func (d *docket) react() {
	d.Helper()
	ctx := d.Context()
	if d.rng.IntN(25) == 0 {
		must[quipu.Receipt](d.T)(d.db.Reset(ctx, "post"))
		clear(d.users)
		return
	}
	user, choice := fmt.Sprint("user-", d.rng.IntN(4)), append([]string{""}, fancied...)[d.rng.IntN(3)]
	before, again := d.users[user], false
	var opts []quipu.WriteOption
	if d.rng.IntN(2) == 0 {
		token := fmt.Sprint(user, choice, d.rng.IntN(3))
		opts = append(opts, quipu.Token(token))
		var first string
		if first, again = d.named[token]; again {
			before = first
		}
		d.named[token] = before
	}
	var r quipu.Reaction
	var err error
	if choice == "" {
		r, err = d.db.Unreact(ctx, "post", user, opts...)
	} else {
		r, err = d.db.React(ctx, "post", user, choice, opts...)
	}
	if err != nil || r.Before != before || r.Changed != (before != choice) || r.Replayed != again {
		d.Fatalf("%s chooses %q, and had %q, again %t: %+v, %v", user, choice, before, again, r, err)
	}
	if !again {
		d.users[user] = choice
	}
}

// look compares what users have chosen, and how many are counted.
func (d *docket) look() {
	d.Helper()
	counts, users := map[string]int64{}, int64(0)
	for user, choice := range d.users {
		if got := must[[]string](d.T)(d.db.Choice(d.Context(), user, "post")); got[0] != choice {
			d.Fatalf("%s has %q, want %q", user, got[0], choice)
		}
		if choice != "" {
			counts[choice]++
			users++
		}
	}
	got := must[quipu.Reactions](d.T)(d.db.Reactions(d.Context(), "post"))
	if got.Users != users || slices.ContainsFunc(got.Counts, func(c quipu.ChoiceCount) bool { return c.Users != counts[c.Choice] }) {
		d.Fatalf("%+v, want %v", got, counts)
	}
}

// settled waits until what has expired is given back, and compares all that there is.
func (d *docket) settled() {
	d.Helper()
	want := quipu.Stock{Value: d.own, Available: d.own, Exact: true}
	for _, c := range d.holds {
		if c.state == quipu.HoldOpen {
			want.Open++
			want.Reserved += c.amount
			want.Value += c.amount
		}
	}
	var got quipu.Stock
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); got != want; <-tick.C {
		got = must[quipu.ReservationPage](d.T)(d.db.Reservations(d.Context(), "stock", quipu.ReservationOptions{})).Stock
		if got != want && time.Now().After(end) {
			d.Fatalf("%+v, want %+v", got, want)
		}
	}
	for _, c := range d.holds {
		if r := must[quipu.Reservation](d.T)(d.db.Reservation(d.Context(), c.id)); r.State != c.state || r.Committed != c.taken {
			d.Fatalf("%+v, told %+v", c, r)
		}
	}
	d.look()
	if a := must[quipu.Audit](d.T)(d.db.Verify(d.Context())); len(a.Drift) > 0 {
		d.Fatalf("verify: %+v", a)
	}
}
