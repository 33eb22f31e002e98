package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestParseBenchmark(t *testing.T) {
	const names = `"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"` + "\n"
	got, err := parseBenchmark(names + `"INCR k","597014.94","1.205","0.168","0.735","4.471","7.815","8.695"` + "\n")
	if want := (benchmark{rate: 597014.94, p99MS: 7.815}); err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	for _, bad := range []string{
		"", names, "Could not connect\n", names + `"INCR k","x","1","1","1","1","1","1"` + "\n", "a,b\nc,d\n",
		names + `"INCR k","0.00","1","1","1","1","1","1"` + "\n", names + "a\n",
	} {
		if got, err := parseBenchmark(bad); err == nil {
			t.Errorf("parse %q: %+v", bad, got)
		}
	}
}

func TestChoose(t *testing.T) {
	f := func(c choice, want string, sides ...string) {
		t.Helper()
		p := &peers{session: &session{}}
		got, err := p.choose(c)
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("choose %+v: got %v, want %q", c, err, want)
			}
			return
		}
		if err != nil || !slices.Equal(got, sides) {
			t.Errorf("choose %+v: got %v, %v; want %v", c, got, err, sides)
		}
	}
	f(choice{}, "", bareLoop, redisOff, redisEverysec, redisAlways, quipuSynced, quipuWritten, postgreSQL)
	f(choice{sides: "quipu-synced,redis-always", depths: "1,64", cases: "get"}, "", redisAlways, quipuSynced)
	f(choice{sides: "mysql"}, `-sides: "mysql"`)
	f(choice{cases: "lpush"}, `-cases: "lpush"`)
	f(choice{depths: "1,x"}, `-depths: "x"`)
	f(choice{depths: "0"}, `-depths: "0"`)
}

func (s *session) caseOf(t *testing.T, name string) peerCase {
	t.Helper()
	cases := s.peerCases()
	i := slices.IndexFunc(cases, func(c peerCase) bool { return c.name == name })
	if i < 0 {
		t.Fatalf("no case %s", name)
	}
	return cases[i]
}

// Of several servers of a kind, reads ask one; and what bounds a server is asked of
// those that promise as much.
func TestAsked(t *testing.T) {
	p := &peers{session: &session{}}
	for _, name := range []string{bareLoop, redisOff, redisAlways, quipuSynced, quipuWritten} {
		program, _, _ := strings.Cut(name, "-")
		p.sides = append(p.sides, &peer{name: name, program: program})
	}
	f := func(c peerCase, want ...string) {
		t.Helper()
		var got []string
		for _, to := range p.asked(c) {
			got = append(got, to.name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: asked %v, want %v", c.name, got, want)
		}
	}
	f(p.caseOf(t, hotCase), bareLoop, redisOff, redisAlways, quipuSynced, quipuWritten)
	f(p.caseOf(t, "incr-created"), bareLoop, redisAlways, quipuSynced)
	f(p.caseOf(t, "get"), bareLoop, redisOff, quipuSynced)
}

// Targets are judged by the medians of the ratios, and shown with what came of
// them.
func TestJudge(t *testing.T) {
	s := &session{}
	hot, few := s.caseOf(t, hotCase), s.caseOf(t, "incr-10")
	p := &peers{session: s, depths: []int{1, 64}, cases: []peerCase{hot, few}}
	p.sides = []*peer{{name: redisAlways, program: "redis-server"}, {name: quipuSynced, program: "quipu"}}
	for i, depth := range p.depths {
		ours, theirs := cellOf(quipuSynced, hot, depth), cellOf(redisAlways, hot, depth)
		p.record(theirs, rate, 100)
		p.record(ours, rate, 150) // at least 1.15, and 3
		p.record(theirs, cpuNS, 100)
		p.record(ours, cpuNS, []float64{90, 60}[i]) // at most 0.95, and 0.3
		p.record(theirs, p99MS, 2)
		p.record(ours, p99MS, []float64{3, 1}[i]) // anything, and at most 1
	}
	p.record(cellOf(quipuSynced, few, 64), cpuNS, 90) // at most 1.6 of that with one key
	p.judge()
	got := p.Tables[0].String()
	const want = `| Quipu, acknowledging after the sync | depth 1 | depth 64 |
|---|---:|---:|
| INCR, one hot key: rate over that of redis-always | 1.5 (≥ 1.15) met | 1.5 (≥ 3) **missed** |
| INCR, one hot key: server CPU over that of redis-always | 0.9 (≤ 0.95) met | 0.6 (≤ 0.3) **missed** |
| INCR, one hot key: p99 over that of redis-always | 1.5 | 0.5 (≤ 1) met |
| INCR, 10 keys: server CPU over that with one key |  | 1.5 (≤ 1.6) met |
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if len(p.Targets) != 6 {
		t.Errorf("%d targets: %+v", len(p.Targets), p.Targets)
	}
}

// What our client alone can measure is compared with what it measured.
func TestCompared(t *testing.T) {
	s := &session{}
	hot := s.caseOf(t, hotCase)
	p := &peers{session: s, cases: []peerCase{hot}}
	f := func(name, want string) {
		t.Helper()
		if got := p.compared(quipuSynced, s.caseOf(t, name), overHot, 64); got != want {
			t.Errorf("%s is compared with %q, want %q", name, got, want)
		}
	}
	f("incr-10", cellOf(quipuSynced, hot, 64))
	f("incr-zipf", ownCellOf(quipuSynced, hot, 64))
	p.cases = nil
	f("incr-10", "")
}

// The figure is measured on real servers.
func TestPeers(t *testing.T) {
	quickly(t, "peers", choice{cases: "incr-hot,incr-created,incr-10,incr-zipf,get", depths: "64", sides: "bare,redis-always,quipu-synced"},
		"round 1 of 1", "Ratios, and targets", "rate over that of redis-always", "INCR, one hot key: rate over that of bare", "GET, one key: rate over that of Redis",
		"INCR, 1,000 keys that are new: rate over that of bare", "INCR, 10 keys: server CPU over that with one key", "INCR, 10 keys: the same of bare",
		"INCR, 1,000 keys, Zipf with exponent 1: server CPU over that with one key",
		"INCR, one hot key: p99 ms", "The clients", "redis-server --save", "quipu serve --http off", "[bare](../bare)")
}

// Results are a page, the numbers, and a chart.
func TestReport(t *testing.T) {
	dir := t.TempDir()
	s := &session{
		options: options{rounds: 1, results: dir, out: t.Output()}, ctx: t.Context(), dir: dir,
		result: result{Figure: "peers", About: "About."},
	}
	p := &peers{session: s, depths: []int{1, 64}, cases: s.peerCases()[:1]}
	p.sides = []*peer{{name: redisOff, program: "redis-server"}, {name: redisAlways, program: "redis-server"}}
	for _, depth := range p.depths {
		for i, to := range p.sides {
			for _, metric := range []string{rate, cpuNS, p99MS, clientCores, clientNS} {
				p.record(cellOf(to.name, p.cases[0], depth), metric, float64(1+i))
				p.record(ownCellOf(to.name, p.cases[0], depth), metric, float64(1+i))
			}
		}
	}
	p.judge()
	p.tabulate()
	if err := s.report(); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "peers.md"))
	if err != nil || !strings.Contains(string(page), "(peers.svg)") || !strings.Contains(string(page), "| redis-always | 2 (2 .. 2) † | 2 (2 .. 2) † |") {
		t.Errorf("%v in\n%s", err, page)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "peers.json"))
	var r record
	if err != nil || json.Unmarshal(raw, &r) != nil || len(r.Series) != 40 {
		t.Errorf("%v in %s", err, raw)
	}
	svg, err := os.Open(filepath.Join(dir, "peers.svg"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = svg.Close() }()
	d := xml.NewDecoder(svg)
	for err == nil {
		_, err = d.Token()
	}
	if !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}
