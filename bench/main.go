// Bench measures what Quipu promises of speed and size, side by side with a
// peer that does the same work.
//
// A figure is measured in rounds. In each round the sides take turns on the
// same machine and file system, and the order changes with every round. What a
// run says is the ratio of the sides: absolute figures are the machine's.
//
// Usage:
//
//	go -C bench run . [-run add-hot,rest] [-rounds 5] [-quick]
//
// It is run in its own directory, which is a module of its own. It needs Linux,
// some figures also PostgreSQL and Redis. README.md says what the figures are and
// how to read them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// A figure is one thing that is measured.
type figure struct {
	name  string
	about string
	run   func(*session) error
}

func figures() []figure {
	return []figure{
		{"add-hot", addHotAbout, addHot},
		{"add-batch", addBatchAbout, addBatch},
		{"add-memory", addMemoryAbout, addMemory},
		{"memory-per-counter", footprintAbout, footprint},
		{"cold", coldAbout, cold},
		{"recover", recoverAbout, recovery},
		{"start", startAbout, starts},
		{"rest", restAbout, rest},
		{"peers", peersAbout, measurePeers},
		{"stall", stallAbout, stall},
		{"client", clientAbout, clientFigure},
		{"postgres-hot", postgresHotAbout, postgresHot},
		{"postgres-batch", postgresBatchAbout, postgresBatch},
		{"redis-hot", redisHotAbout, redisHot},
		{"postgres-servers", serversAbout, postgresServers},
		{"redis-keys", redisKeysAbout, redisKeys},
		{"hop", hopAbout, hop},
		{"hot-read", hotReadAbout, hotRead},
		{"hot-tokens", hotTokensAbout, hotTokens},
		{"hot-adaptive", hotAdaptiveAbout, hotAdaptive},
		{"viral", viralAbout, viral},
		{"heat-memory", heatAbout, heatMemory},
		{"hostile", hostileAbout, underAttack},
		{"flood", floodAbout, floods},
		{"part", partAbout, parts},
		{"views", viewsCostAbout, viewsCost},
		{"range", rangeAbout, ranges},
		{"reviews", reviewsAbout, reviews},
		{"postgres-views", postgresViewsAbout, postgresViews},
		{"limit", limitAbout, limitFigure},
		{"verify", verifyAbout, verify},
		{"bounded", boundedAbout, bounded},
		{"postgres-bounded", postgresBoundedAbout, postgresBounded},
		{"like", likeAbout, likes},
		{"pfadd", pfaddAbout, pfadds},
		{"pfcount", pfcountAbout, pfcounts},
		{"members", membersAbout, memberSizes},
		{"unique-error", uniqueErrorAbout, uniqueError},
		{"before", beforeAbout, before},
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		_, _ = fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 3 && args[0] == childCommand {
		return serveChild(args[1], args[2], os.Stdin, out)
	}
	o := options{out: out, command: strings.Join(append([]string{"go -C bench run ."}, args...), " ")}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	names := flags.String("run", "", "figures to measure, separated by commas; all if empty")
	flags.IntVar(&o.rounds, "rounds", 5, "rounds of each figure")
	flags.BoolVar(&o.quick, "quick", false, "see whether it works: 2 short and small rounds, no results written")
	flags.StringVar(&o.dir, "dir", os.TempDir(), "directory for the data, on the file system to measure")
	flags.StringVar(&o.results, "results", "results", "directory for the results")
	flags.StringVar(&o.choice.cases, "cases", "", "of the figure peers, the cases: such as incr-hot,incr-created; of stall, the numbers of counters; of hostile, the attacks; all if empty")
	flags.StringVar(&o.choice.depths, "depths", "", "of the figure peers, the depths, such as 1,64; if empty 1,16,64,256")
	flags.StringVar(&o.choice.sides, "sides", "", "of the figure peers, the sides, such as bare,quipu-synced; all if empty")
	flags.StringVar(&o.reviewsFile, "reviews", "", "of the figures reviews and postgres-views, a CSV file of reviewer, vendor, rating and date, perhaps as .bz2; if empty they are made up")
	flags.StringVar(&o.beforeBinary, "before", "", "of the figure before, the command quipu of an earlier version; if empty it is the one that is built here")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if o.quick {
		o.rounds = 2
	}
	if flags.NArg() > 0 || o.rounds < 1 {
		return errors.New("want no arguments besides flags, and at least 1 round")
	}
	chosen, err := choose(*names)
	if err != nil {
		return err
	}
	for _, f := range chosen {
		if err := o.measure(ctx, f); err != nil {
			return fmt.Errorf("measure %s: %w", f.name, err)
		}
	}
	return nil
}

// choose returns the figures that are named.
func choose(names string) ([]figure, error) {
	all := figures()
	if names == "" {
		return all, nil
	}
	var chosen []figure
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(all, func(f figure) bool { return f.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no figure %q", name)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}
