package main

import (
	"bufio"
	"bytes"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/quipudb/quipu/internal/pgtest"
)

// startPostgres starts a PostgreSQL server for a test.
func startPostgres(t *testing.T) *pgtest.Server {
	t.Helper()
	return pgtest.For(t, "fsync=off")
}

// sql runs a statement, and returns the rows of one column of text.
func sql(t *testing.T, s *pgtest.Server, statement string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	rows, _ := conn.Query(t.Context(), statement)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	return strings.Join(all, ",")
}

func TestMirrorUsage(t *testing.T) {
	f := func(text string, args ...string) {
		t.Helper()
		refused(t, 2, text, append([]string{"mirror"}, args...)...)
	}
	f("--to", "--table", "t")
	f("--table", "--to", "postgres://db/app")
	f("want postgres://", "--to", "redis://127.0.0.1:1", "--table", "t")
	f("want NAME or SCHEMA.NAME", "--to", "postgres://db/app", "--table", "a.b.c")
	f("want two names", "--to", "postgres://db/app", "--table", "t", "--key-column", "value")
	f("--rows", "--to", "postgres://db/app", "--table", "t", "--rows", "0")
	f("--rows", "--to", "postgres://db/app", "--table", "t", "--rows", "10001")
	f("--every", "--to", "postgres://db/app", "--table", "t", "--every", "0s")
	f("give --insecure", "--to", "postgres://db/app", "--table", "t", "--metrics", "0.0.0.0:0")
	f("want HOST:PORT or a URL", "--to", "postgres://db/app", "--table", "t", "--addr", "nonsense")
}

func TestMirrorOnce(t *testing.T) {
	pg, p := startPostgres(t), serve(t)
	client := p.client()
	for _, key := range []string{"likes:1", "likes:2", "likes:3", "views:1"} {
		client("add", key, "5")
	}
	client("add", "likes:1", "7", "--namespace", "shop")
	mirror := func(args ...string) result {
		t.Helper()
		return command(t, append([]string{"QUIPU_ADDR=" + p.url, "mirror", "--to", pg.URL(), "--table", "totals", "--once"}, args...)...)
	}
	f := func(want string, args ...string) {
		t.Helper()
		if r := mirror(args...); r.code != 0 || r.stdout != want || r.stderr != "" {
			t.Errorf("mirror %q: %+v, want %q", args, r, want)
		}
	}
	if r := mirror(); r.code != 1 || !strings.Contains(r.stderr, `create table "totals" ("key" text primary key, "value" bigint not null)`) {
		t.Errorf("without a table: %+v", r)
	}
	sql(t, pg, `create table totals (key text primary key, value bigint not null)`)
	f("3 rows written, 0 unchanged\n", "--prefix", "likes:", "--rows", "2")
	f("1 rows written, 3 unchanged\n")
	f(`{"written":1,"unchanged":0,"lower":0,"skipped":0}`+"\n", "--namespace", "shop", "--json")
	if got := sql(t, pg, `select key || '=' || value from totals order by key`); got != "likes:1=7,likes:2=5,likes:3=5,views:1=5" {
		t.Errorf("the table has %s", got)
	}
	client("add", "likes:2")
	if r := mirror("--grows"); r.code != 1 || r.stdout != "1 rows written, 2 unchanged\n" ||
		!strings.Contains(r.stderr, "1 lower values were refused") || !strings.Contains(r.stderr, "likes:1 has 7, is 5") {
		t.Errorf("with a lower value: %+v", r)
	}
	if r := mirror("--addr", "http://127.0.0.1:1"); r.code != 3 || !strings.Contains(r.stderr, "connection refused") {
		t.Errorf("without a server: %+v", r)
	}
	if r := mirror("--to", "postgres://127.0.0.1:1/x"); r.code != 3 || !strings.Contains(r.stderr, "connection refused") {
		t.Errorf("without a database: %+v", r)
	}
}

// It mirrors what is counted meanwhile, tells of itself, and ends when it is told
// to.
func TestMirror(t *testing.T) {
	pg, p := startPostgres(t), serve(t)
	sql(t, pg, `create table totals (key text primary key, value bigint not null)`)
	sql(t, pg, `create function told() returns trigger language plpgsql as
		$$ begin perform pg_notify('told', new.key || '=' || new.value); return new; end $$`)
	sql(t, pg, `create trigger told after insert or update on totals for each row execute function told()`)
	conn, err := pgx.Connect(t.Context(), pg.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if _, err := conn.Exec(t.Context(), "listen told"); err != nil {
		t.Fatal(err)
	}

	c := exec.CommandContext(t.Context(), binary, "mirror", "--to", pg.URL(), "--table", "public.totals", "--addr", p.url,
		"--every", "10ms", "--grows", "--metrics", "127.0.0.1:0")
	c.Env = environment()
	var stderr bytes.Buffer
	c.Stderr = &stderr
	stdout, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewReader(stdout)
	ready, err := out.ReadString('\n')
	if err != nil {
		t.Fatalf("no ready line: %v\n%s", err, &stderr)
	}
	for _, want := range []string{"a=1", "a=2", "a=3"} {
		p.client()("add", "a")
		n, err := conn.WaitForNotification(t.Context())
		if err != nil || n.Payload != want {
			t.Fatalf("the table was told %+v, %v; want %s", n, err, want)
		}
	}

	found := regexp.MustCompile(`^ready metrics=(\S+)\n$`).FindStringSubmatch(ready)
	if found == nil {
		t.Fatalf("the ready line is %q", ready)
	}
	_, metrics := httpGet(t.Context(), t, "http://"+found[1]+"/metrics")
	for _, want := range []string{
		`(?m)^quipu_mirror_lag_seconds \d`, `(?m)^quipu_mirror_passes_total \d`, `(?m)^quipu_mirror_errors_total 0$`,
		`(?m)^quipu_mirror_rows_written_total [23]$`, `(?m)^quipu_mirror_rows_unchanged_total \d`, `(?m)^quipu_mirror_rows_lower_total 0$`,
	} {
		if !regexp.MustCompile(want).MatchString(metrics) {
			t.Errorf("no %s among the metrics:\n%s", want, metrics)
		}
	}

	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(out); err != nil || len(rest) > 0 {
		t.Errorf("it went on with %q, %v", rest, err)
	}
	if err := c.Wait(); err != nil {
		t.Errorf("it ended with %v: %s", err, &stderr)
	}
	if !strings.Contains(stderr.String(), `"msg":"pass completed"`) {
		t.Errorf("the log says %s", &stderr)
	}
}
