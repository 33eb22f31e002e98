package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// A result is what became of one test.
type result struct {
	name   string
	failed bool
	why    string // it failed
}

var (
	colours = regexp.MustCompile("\x1b\\[[0-9;]*m")
	passed  = regexp.MustCompile(`(?s)^\[ok\]: (.*) \(\d+ ms\)$`)
	broken  = regexp.MustCompile(`(?s)^\[err\]: (.*?) in tests/unit/\S+\.tcl\n(.*)$`)
	begins  = regexp.MustCompile(`(?m)^\[[a-zA-Z0-9/ ]+\]: |^Testing |^\s+The End$`)
)

// parse reads what runtest prints. What is no result of a test is left out: a
// block of tests that was broken off shows in those that are missing.
func parse(out string) (all []result) {
	out = colours.ReplaceAllString(out, "")
	if end := strings.Index(out, "\n                   The End\n"); end >= 0 { // Failures are repeated after it.
		out = out[:end]
	}
	starts := begins.FindAllStringIndex(out, -1)
	for i, at := range starts {
		end := len(out)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		text := strings.TrimSpace(out[at[0]:end])
		if m := passed.FindStringSubmatch(text); m != nil {
			all = append(all, result{name: m[1]})
		} else if m := broken.FindStringSubmatch(text); m != nil {
			all = append(all, result{name: m[1], failed: true, why: m[2]})
		}
	}
	return all
}

// A comparison is of what two servers make of the same tests.
type comparison struct {
	known func(command string) (bool, error) // to Redis
	has   func(command string) (bool, error) // Quipu
	rows  []row
}

// A row is what a unit came to.
type row struct {
	unit   string
	redis  int // tests that Redis passes
	behind int // of these, those that need no command that Quipu lacks
	passed int // of these
	lost   []result
	apart  []result // those that need others, with the commands
}

// add takes a unit, with the commands that Redis was asked for in each test.
func (c *comparison) add(unit string, redis, quipu []result, asked map[string][]string) error {
	r := row{unit: unit}
	got := map[string][]result{} // Some names are used more than once.
	for _, t := range quipu {
		got[t.name] = append(got[t.name], t)
	}
	for _, t := range redis {
		if t.failed {
			continue
		}
		r.redis++
		lacks, err := c.lacks(asked[t.name])
		if err != nil {
			return err
		}
		mine := result{name: t.name, failed: true, why: "not reached: what comes before it in its block failed"}
		if list := got[t.name]; len(list) > 0 {
			mine, got[t.name] = list[0], list[1:]
		}
		switch {
		case len(lacks) > 0:
			r.apart = append(r.apart, result{name: t.name, why: strings.Join(lacks, " ")})
			continue
		case mine.failed:
			r.lost = append(r.lost, mine)
		default:
			r.passed++
		}
		r.behind++
	}
	c.rows = append(c.rows, r)
	return nil
}

// apart returns the tests that need commands that Quipu lacks.
func (c *comparison) apart(redis []result, asked map[string][]string) (names []string, err error) {
	for _, t := range redis {
		lacks, err := c.lacks(asked[t.name])
		if err != nil {
			return nil, err
		}
		if len(lacks) > 0 && !slices.Contains(names, t.name) {
			names = append(names, t.name)
		}
	}
	return names, nil
}

// otherwise are commands that Quipu has for something else than Redis: users of a counter
// whose definition has choices, where Redis has a set under any key; and messages about keys
// that have changed, where Redis publishes what clients say.
var otherwise = []string{"sadd", "srem", "sismember", "smismember", "scard", "smembers", "sscan", "subscribe", "unsubscribe"}

// lacks returns which commands Redis knows and Quipu does not have.
func (c *comparison) lacks(commands []string) (names []string, err error) {
	for _, name := range commands {
		known, err := c.known(name)
		if err != nil {
			return nil, err
		}
		if !known { // of a subcommand that is none, the command counts
			name, _, _ = strings.Cut(name, "|")
			if known, err = c.known(name); err != nil || !known {
				continue
			}
		}
		has, err := c.has(name)
		if err != nil {
			return nil, err
		}
		if (!has || slices.Contains(otherwise, name)) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// print prints the table, and which tests failed.
func (c *comparison) print(w io.Writer, verbose bool) {
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }
	p("| unit | Redis passes | behind commands of Quipu | Quipu passes |\n|---|---|---|---|\n")
	var all row
	for _, r := range c.rows {
		p("| %s | %d | %d | %d |\n", r.unit, r.redis, r.behind, r.passed)
		all.redis, all.behind, all.passed = all.redis+r.redis, all.behind+r.behind, all.passed+r.passed
	}
	p("| all | %d | %d | %d |\n", all.redis, all.behind, all.passed)
	for _, r := range c.rows {
		for _, t := range r.lost {
			why, _, _ := strings.Cut(t.why, "\n")
			if verbose {
				why = strings.ReplaceAll(t.why, "\n", "\n    ")
			}
			p("\n%s: %s\n    %s\n", r.unit, t.name, why)
		}
	}
	if !verbose {
		return
	}
	for _, r := range c.rows {
		for _, t := range r.apart {
			p("\n%s: %s\n    not counted, needs %s\n", r.unit, t.name, t.why)
		}
	}
}
