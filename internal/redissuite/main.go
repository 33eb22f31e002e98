// Redissuite runs Redis's own tests against Quipu, beside a Redis, and says how
// many pass of those that need no command that Quipu lacks. It promises that the
// count is not ours to choose: a test is counted if the Redis that runs it as well
// was asked for nothing but commands that Quipu has.
//
// The suite is not part of this repository: its folder is an argument.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/quipudb/quipu/internal/load/redisproc"
	"github.com/quipudb/quipu/internal/serving"
)

// units are those that are about what a counter is.
const units = "type/incr,type/string,expire,keyspace,scan,multi,protocol,quit,info-command,introspection,other,hyperloglog"

// tags leave out what no server that is not the suite's own can do: let itself be
// debugged, be replicated, or take gigabytes.
const tags = "-needs:debug -needs:repl -large-memory"

// unitMax is how long a unit may take.
const unitMax = 5 * time.Minute

func main() {
	suite := flag.String("suite", "", "the folder of Redis's source, which has runtest")
	only := flag.String("units", units, "the units to run")
	verbose := flag.Bool("v", false, "say why each test failed")
	flag.Parse()
	if err := run(context.Background(), os.Stdout, *suite, strings.Split(*only, ","), *verbose); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer, suite string, units []string, verbose bool) (err error) {
	if _, err := os.Stat(filepath.Join(suite, "runtest")); err != nil {
		return fmt.Errorf("no suite of Redis (make redis-suite SUITE=DIR): %w", err)
	}
	dir, err := os.MkdirTemp("", "redissuite")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	redis, err := redisproc.Start(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { _ = redis.Stop() }()
	quipu, addr, err := serve(ctx, dir)
	if err != nil {
		return err
	}
	defer quipu.Kill()

	watch, err := listen(redis.Addr)
	if err != nil {
		return err
	}
	defer watch.close()
	c := &comparison{known: knowing(redis.Addr), has: knowing(addr)}
	for _, u := range units {
		watch.clear()
		reference, err := tests(ctx, suite, u, watch.addr(), nil)
		if err != nil {
			return fmt.Errorf("unit %s, Redis: %w", u, err)
		}
		apart, err := c.apart(reference, watch.commands())
		if err != nil {
			return err
		}
		// What is not counted is left out, or it would leave behind half of what it does: a
		// transaction that was not ended, for example.
		got, err := tests(ctx, suite, u, addr, apart)
		if err != nil {
			return fmt.Errorf("unit %s, Quipu: %w", u, err)
		}
		if err := c.add(u, reference, got, watch.commands()); err != nil {
			return err
		}
	}
	c.print(w, verbose)
	return quipu.Died()
}

// serve starts Quipu as it is in this tree.
func serve(ctx context.Context, dir string) (*serving.Process, string, error) {
	binary, err := serving.Build(ctx, ".", dir)
	if err != nil {
		return nil, "", err
	}
	cmd := exec.CommandContext(ctx, binary, "serve", "--data", filepath.Join(dir, "quipu-data"), "--http", "off", "--rpc", "off", "--resp", "127.0.0.1:0")
	cmd.Env = serving.Environment()
	p, err := serving.Start(cmd)
	if err != nil {
		return nil, "", err
	}
	doors, err := p.Ready(ctx)
	if err != nil {
		p.Kill()
		return nil, "", err
	}
	return p, doors["resp"], nil
}

// tests runs a unit against a server, but for some tests.
func tests(ctx context.Context, suite, unit, addr string, without []string) ([]result, error) {
	ctx, cancel := context.WithTimeout(ctx, unitMax)
	defer cancel()
	host, port, _ := strings.Cut(addr, ":")
	args := []string{"--host", host, "--port", port, "--single", "unit/" + unit, "--durable", "--dont-clean", "--timeout", "30", "--tags", tags}
	for _, name := range without {
		args = append(args, "--skiptest", name)
	}
	cmd := exec.CommandContext(ctx, "./runtest", args...)
	cmd.Dir = suite
	out, err := cmd.CombinedOutput()
	results := parse(string(out))
	if len(results) == 0 { // It ends with an error whenever a test fails.
		return nil, fmt.Errorf("no test was run: %w\n%s", err, out)
	}
	return results, ctx.Err()
}
