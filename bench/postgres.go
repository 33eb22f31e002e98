package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// A postgres is a PostgreSQL server of our own, with default settings, that
// listens on a Unix socket only.
type postgres struct {
	bin     string // where its commands are
	dir     string // where its files are
	version string
	pid     int
}

// postgresUser is who runs the server: it refuses to be run by root.
const postgresUser = "postgres"

// startPostgres starts a server on new files below dir.
func startPostgres(ctx context.Context, dir string) (*postgres, error) {
	bin, err := findPostgres()
	if err != nil {
		return nil, err
	}
	p := &postgres{bin: bin, dir: filepath.Join(dir, "pg")}
	if err := p.makeDir(dir); err != nil {
		return nil, err
	}
	if p.version, err = p.run(ctx, "postgres", "--version"); err != nil {
		return nil, err
	}
	if _, err := p.run(ctx, "initdb", "-D", p.path("data"), "-A", "trust", "-U", postgresUser); err != nil {
		return nil, err
	}
	if _, err := p.run(ctx, "pg_ctl", "-D", p.path("data"), "-l", p.path("log"), "-w",
		"-o", "-c listen_addresses= -k "+p.dir, "start"); err != nil {
		return nil, err
	}
	if err := p.prepare(ctx); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

// findPostgres returns the directory of PostgreSQL's commands. Debian keeps
// those of each version in a directory of its own, and few of them in the path.
func findPostgres() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil {
		return "", err
	}
	if len(found) > 0 {
		return filepath.Dir(found[len(found)-1]), nil
	}
	path, err := exec.LookPath("initdb")
	if err != nil {
		return "", fmt.Errorf("find PostgreSQL: %w: is it installed?", err)
	}
	return filepath.Dir(path), nil
}

func (p *postgres) path(name string) string { return filepath.Join(p.dir, name) }

// makeDir makes the directory, and gives it to who runs the server.
func (p *postgres) makeDir(parent string) error {
	if err := os.Mkdir(p.dir, 0o700); err != nil || os.Geteuid() != 0 {
		return err
	}
	u, err := user.Lookup(postgresUser)
	if err != nil {
		return err
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return err
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return err
	}
	return errors.Join(os.Chmod(parent, 0o755), os.Chown(p.dir, uid, gid))
}

// run runs a command of PostgreSQL and returns what it printed.
func (p *postgres) run(ctx context.Context, name string, args ...string) (string, error) {
	command := append([]string{filepath.Join(p.bin, name)}, args...)
	if os.Geteuid() == 0 {
		command = append([]string{"runuser", "-u", postgresUser, "--"}, command...)
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = p.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("run %s: %w\n%s", name, err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// prepare makes the table and the script, and finds the server's process.
func (p *postgres) prepare(ctx context.Context) error {
	table := fmt.Sprintf(`CREATE TABLE counters (id int PRIMARY KEY, n bigint NOT NULL);
		INSERT INTO counters SELECT id, 0 FROM generate_series(1, %d) AS id`, pgRowsMax)
	if _, err := p.run(ctx, "psql", "-h", p.dir, "-U", postgresUser, "-v", "ON_ERROR_STOP=1", "-c", table); err != nil {
		return err
	}
	const script = "\\set id random(1, :rows)\nUPDATE counters SET n = n + 1 WHERE id = :id;\n"
	if err := os.WriteFile(p.path("script"), []byte(script), 0o644); err != nil {
		return err
	}
	text, err := os.ReadFile(p.path("data/postmaster.pid"))
	if err != nil {
		return err
	}
	first, _, _ := strings.Cut(string(text), "\n")
	p.pid, err = strconv.Atoi(first)
	return err
}

// A pgLoad is how pgbench updates: rows at random, of those that there are.
type pgLoad struct{ rows, connections int }

// pgRowsMax is how many rows there are.
const pgRowsMax = 100

// A pgResult is what pgbench counted.
type pgResult struct {
	transactions int
	rate         float64
}

// bench runs the script for some time, in whole seconds.
func (p *postgres) bench(ctx context.Context, l pgLoad, d time.Duration) (r pgResult, err error) {
	out, err := p.run(ctx, "pgbench", "-h", p.dir, "-U", postgresUser, "-n", "-M", "prepared", "-f", p.path("script"),
		"-D", "rows="+strconv.Itoa(l.rows), "-c", strconv.Itoa(l.connections), "-j", "2", "-T", strconv.Itoa(int(d.Seconds())), postgresUser)
	if err != nil {
		return r, err
	}
	found := regexp.MustCompile(`(?s)actually processed: (\d+).*number of failed transactions: 0 .*tps = ([0-9.]+)`).FindStringSubmatch(out)
	if found == nil {
		return r, fmt.Errorf("no result in what pgbench said:\n%s", out)
	}
	if r.transactions, err = strconv.Atoi(found[1]); err != nil {
		return r, err
	}
	r.rate, err = strconv.ParseFloat(found[2], 64)
	return r, err
}

func (p *postgres) stop() error {
	_, err := p.run(context.Background(), "pg_ctl", "-D", p.path("data"), "-m", "fast", "-w", "stop")
	return err
}

// drivePostgres updates for some time, and records the rate and the server's
// CPU time.
func (s *session) drivePostgres(side string, p *postgres, l pgLoad, d time.Duration) error {
	before, err := cpuTimeOfAll(p.pid)
	if err != nil {
		return err
	}
	r, err := p.bench(s.ctx, l, d)
	if err != nil {
		return err
	}
	after, err := cpuTimeOfAll(p.pid)
	s.record(side, rate, r.rate)
	s.record(side, cpuNS, float64(after-before)/float64(r.transactions))
	return err
}
