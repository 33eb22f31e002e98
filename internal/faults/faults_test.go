package faults

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"
)

var (
	rounds = flag.Int("rounds", 0, "how often each fault is made; 0 makes a few of them once")
	seed   = flag.Uint64("seed", 0, "the seed; 0 takes a new one")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	code := m.Run()
	if binary, err := build(); err == nil {
		_ = os.RemoveAll(filepath.Dir(binary))
	}
	os.Exit(code)
}

// replay says how to run a test again, and returns its randomness. The seed
// decides what is sent and when a fault begins and ends. How the nodes interleave
// it differs from run to run.
func replay(t *testing.T) *rand.Rand {
	t.Helper()
	t.Logf("replay: go -C internal/faults test -run '^%s$' -count=1 -v -args -seed=%d -rounds=%d", t.Name(), *seed, *rounds)
	h := fnv.New64a()
	_, _ = h.Write([]byte(t.Name()))
	return rand.New(rand.NewPCG(*seed, h.Sum64()))
}

// suffers has a world live through faults: those of the short form once, or all
// of them as often as the flag says, in an order that the seed decides.
func (w *world) suffers(t *testing.T, faults []fault, short ...string) {
	t.Helper()
	w.live(t, w.round, faults, short)
}

// live does the same with a round for each fault, and reports whether all of
// them went well.
func (w *world) live(t *testing.T, round func(*testing.T, fault), faults []fault, short []string) bool {
	t.Helper()
	var plan []fault
	for _, f := range faults {
		if *rounds == 0 && slices.Contains(short, f.name) {
			plan = append(plan, f)
		}
		for range *rounds {
			plan = append(plan, f)
		}
	}
	w.rng.Shuffle(len(plan), func(i, j int) { plan[i], plan[j] = plan[j], plan[i] })
	for _, f := range plan {
		if !t.Run(f.name, func(t *testing.T) { round(t, f) }) {
			break // what is known of the counters is not known any more
		}
	}
	t.Logf("%s:\n%s", w.store, w.report())
	return !t.Failed()
}

// report is a table of what the faults did.
func (w *world) report() string {
	slices.SortStableFunc(w.table, func(a, b row) int { return strings.Compare(a.fault, b.fault) })
	var out strings.Builder
	tab := tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(tab, "fault\tno write at a node\tnone to a counter\tuntil all is well\tcounted\trefused\tin doubt\tmissing\tgiven twice\ttold of it\t")
	for _, r := range w.table {
		_, _ = fmt.Fprintf(tab, "%s\t%.2f s\t%.2f s\t%.2f s\t%d\t%d\t%d\t%d\t%d\t%d\t\n", r.fault, r.dark.Seconds(), r.stuck.Seconds(),
			r.recovery.Seconds(), r.counted, r.refused, r.doubtful, r.missing, r.twice, r.told)
	}
	_ = tab.Flush()
	return out.String()
}

// wayFaults are those of the ways between nodes and their store. If it has ways
// for all nodes together, none of them can be cut off alone.
func wayFaults(together bool) []fault {
	// spoil makes the ways of some nodes bad.
	spoil := func(stream, toxic, attributes string, nodes ...int) func(w *world) error {
		return func(w *world) (err error) {
			for _, p := range w.ways(nodes...) {
				err = errors.Join(err, p.spoil(stream, toxic, attributes))
			}
			return err
		}
	}
	cut := func(nodes ...int) func(w *world) error {
		return func(w *world) error {
			for _, p := range w.ways(nodes...) {
				p.Stop()
			}
			return nil
		}
	}
	// while makes a fault, waits until the nodes that can't reach their store say
	// so, and heals it.
	while := func(begin func(w *world) error, out ...int) func(context.Context, *world) error {
		return func(ctx context.Context, w *world) error {
			err := begin(w)
			if err == nil && len(out) > 0 {
				err = w.outage(ctx, out...)
			}
			if err == nil {
				w.hold(ctx)
			}
			return errors.Join(err, w.heal(ctx))
		}
	}
	faults := []fault{
		{name: "latency", run: while(spoil(back, "latency", `"latency":80,"jitter":60`, 0, 1))},
		{name: "bandwidth", run: while(spoil(there, "bandwidth", `"rate":20`, 0, 1))},
		{name: "both cut off", run: while(cut(0, 1), 0, 1)},
		{name: "both half-open", run: while(spoil(there, "timeout", `"timeout":0`, 0, 1), 0, 1)},
		{name: "resets", run: func(ctx context.Context, w *world) error {
			for range 20 {
				if err := w.reset(ctx); err != nil {
					return err
				}
			}
			return nil
		}},
	}
	if together {
		return faults
	}
	return append(faults,
		fault{name: "one cut off", run: while(cut(0), 0)},
		fault{name: "one half-open", run: while(spoil(back, "timeout", `"timeout":0`, 1), 1)})
}

// ways returns those of some nodes to their store.
func (w *world) ways(nodes ...int) (all []*proxy) {
	for _, i := range nodes {
		for _, p := range w.nodes[i].ways {
			if !slices.Contains(all, p) {
				all = append(all, p)
			}
		}
	}
	return all
}

// heal makes all ways good again.
func (w *world) heal(ctx context.Context) (err error) {
	for _, p := range w.ways(0, 1) {
		err = errors.Join(err, p.heal(ctx))
	}
	return err
}

// reset breaks the connections on a way when something comes back on them: the
// store has done it, and the node is not told.
func (w *world) reset(ctx context.Context) error {
	all := w.ways(0, 1)
	p := all[w.rng.IntN(len(all))]
	if err := p.spoil(back, "reset_peer", `"timeout":0`); err != nil {
		return err
	}
	pause(time.Duration(w.rng.IntN(40))*time.Millisecond, ctx.Done())
	err := p.heal(ctx)
	pause(time.Duration(w.rng.IntN(100))*time.Millisecond, ctx.Done())
	return err
}

// nodeKilled kills a node, and starts it again.
func nodeKilled() fault {
	return fault{name: "node killed", run: func(ctx context.Context, w *world) error {
		n := w.nodes[w.rng.IntN(2)]
		n.kill()
		w.hold(ctx)
		return n.start(ctx)
	}}
}
