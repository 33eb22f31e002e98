package main

import (
	"strings"
	"testing"
)

const limitedAPI = "definitions:\n  - {pattern: api, limits: [{rate: 1, per: 24h, burst: 3}]}\n"

// A limit is defined in a file, and asked, used up and reset by the command line.
func TestAllow(t *testing.T) {
	p := serve(t, "--config", writeFile(t, limitedAPI))
	f := func(code int, stdout, stderr string, args ...string) {
		t.Helper()
		r := command(t, append([]string{"QUIPU_ADDR=" + p.url}, args...)...)
		if r.code != code || !strings.Contains(r.stdout, stdout) || !strings.Contains(r.stderr, stderr) || stdout == "" && r.stdout != "" {
			t.Errorf("quipu %q: %+v; want exit %d, %q, %q", args, r, code, stdout, stderr)
		}
	}
	f(0, "2\n", "", "allow", "api", "eve")
	f(0, "0\n", "", "allow", "api", "eve", "2")
	f(exitFailed, "", `refused by limit "24h": 0 of 3 are left; try again in 23h59m`, "allow", "api", "eve")
	f(0, "0\n", "", "allow", "api", "eve", "--peek")
	f(0, "", "", "allow", "api", "eve", "--reset")
	f(0, "3\n", "", "allow", "api", "eve", "--peek")
	f(0, "1\n", "", "allow", "api", "eve", "2", "--id", "t")
	f(0, "1\n", "", "allow", "api", "eve", "2", "--id", "t")
	f(exitFailed, "", "1 of 3 are left; it never is", "allow", "api", "eve", "4")
	f(exitFailed, "", `0 of 3 are left; try again in 71h59m`, "allow", "api", "eve", "3", "--burn")
	f(0, "0\n", "", "allow", "api", "eve", "--peek")
	f(0, `"allowed":true`, "", "allow", "api", "bob", "--json")
	f(exitFailed, `"allowed":false`, "refused", "allow", "api", "bob", "9", "--json")
	f(exitFailed, "", "no limits are defined for", "allow", "web", "eve")
	f(exitUsage, "", "leave out the cost", "allow", "api", "eve", "2", "--peek")
}
