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
	f(choice{}, "", redisOff, redisEverysec, redisAlways, quipuSynced, quipuWritten, postgreSQL)
	f(choice{sides: "quipu-synced,redis-always", depths: "1,64", cases: "get"}, "", redisAlways, quipuSynced)
	f(choice{sides: "mysql"}, `-sides: "mysql"`)
	f(choice{cases: "lpush"}, `-cases: "lpush"`)
	f(choice{depths: "1,x"}, `-depths: "x"`)
	f(choice{depths: "0"}, `-depths: "0"`)
}

// Of several servers of a kind, reads ask one.
func TestAsked(t *testing.T) {
	p := &peers{session: &session{}}
	for _, name := range []string{redisOff, redisAlways, quipuSynced, quipuWritten} {
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
	cases := p.peerCases()
	f(cases[0], redisOff, redisAlways, quipuSynced, quipuWritten)
	f(cases[2], redisOff, quipuSynced)
}

// Targets are judged by the medians of the ratios, and shown with what came of
// them.
func TestJudge(t *testing.T) {
	s := &session{}
	p := &peers{session: s, depths: []int{1, 16}, cases: s.peerCases()[:1]}
	p.sides = []*peer{{name: redisAlways, program: "redis-server"}, {name: quipuSynced, program: "quipu"}}
	for i, depth := range p.depths {
		ours, theirs := cellOf(quipuSynced, p.cases[0], depth), cellOf(redisAlways, p.cases[0], depth)
		p.record(theirs, rate, 100)
		p.record(ours, rate, []float64{150, 150}[i]) // at least 1.05, and 1.8
		p.record(theirs, cpuNS, 100)
		p.record(ours, cpuNS, []float64{90, 60}[i]) // at most 1, and 0.5
		p.record(theirs, p99MS, 2)
		p.record(ours, p99MS, []float64{3, 1}[i]) // anything, and at most 1
	}
	p.judge()
	got := p.Tables[0].String()
	const want = `| Quipu, acknowledging after the sync | depth 1 | depth 16 |
|---|---:|---:|
| INCR, one hot key: rate over that of redis-always | 1.5 (≥ 1.05) met | 1.5 (≥ 1.8) **missed** |
| INCR, one hot key: server CPU over that of redis-always | 0.9 (≤ 1) met | 0.6 (≤ 0.5) **missed** |
| INCR, one hot key: p99 over that of redis-always | 1.5 | 0.5 (≤ 1) met |
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if len(p.Targets) != 5 {
		t.Errorf("%d targets: %+v", len(p.Targets), p.Targets)
	}
}

// The figure is measured on real servers.
func TestPeers(t *testing.T) {
	dir := t.TempDir()
	var out strings.Builder
	o := options{
		rounds: 2, quick: true, dir: t.TempDir(), results: dir, command: "test", out: &out,
		choice: choice{cases: "incr-hot,get", depths: "64", sides: "redis-off,redis-always,quipu-synced"},
	}
	f := figures()
	if err := o.measure(t.Context(), f[slices.IndexFunc(f, func(f figure) bool { return f.name == "peers" })]); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{
		"round 2 of 2", "Ratios, and targets", "rate over that of redis-always", "GET, one key: rate over that of Redis",
		"INCR, one hot key: p99 ms", "The clients", "redis-server --save", "quipu serve --http off",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("a quick run wrote %v, %v", left, err)
	}
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
