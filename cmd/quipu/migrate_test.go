package main

import (
	"regexp"
	"testing"
)

func TestMigrate(t *testing.T) {
	pg := startPostgres(t)
	f := func(want string, args ...string) {
		t.Helper()
		r := command(t, append([]string{"migrate", "--store"}, args...)...)
		if r.code != 0 || r.stderr != "" || !regexp.MustCompile(`^`+want+`\n$`).MatchString(r.stdout) {
			t.Errorf("quipu migrate %q: %+v, want %s", args, r, want)
		}
	}
	f(`schema quipu made, at version \d+`, pg.URL())
	f(`schema quipu is at version \d+ already`, pg.URL())
	f(`schema other made, at version \d+`, pg.URL(), "--store-name", "other")
	f(`nothing to do: .*`, "embedded:")
	f(`nothing to do: .*`, "memory:")
	f(`nothing to do: .*`, "redis://127.0.0.1:1")
	refused(t, 2, "--store", "migrate")
	refused(t, 2, "want embedded:", "migrate", "--store", "mysql://localhost")
	refused(t, 1, "schema", "migrate", "--store", pg.URL(), "--store-name", "a b")
	refused(t, 3, "connection refused", "migrate", "--store", "postgres://127.0.0.1:1/x")
}
