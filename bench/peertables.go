package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/quipudb/quipu/internal/load"
	"github.com/quipudb/quipu/internal/load/chart"
)

// A peerTarget is a promise for a case, at several depths.
type peerTarget struct {
	name   string
	peer   string // the side that ours is compared with; of reads any Redis
	metric string
	most   bool // want is the most, not the least
	want   map[int]float64
}

// peerTargets are those of a case.
func peerTargets(name string) []peerTarget {
	const noSlower = "p99 over that of "
	switch name {
	case "incr-hot":
		return []peerTarget{
			{"rate over that of " + redisAlways, redisAlways, rate, false, map[int]float64{1: 1.05, 16: 1.8, 64: 2.8, 256: 4.5}},
			{"rate over that of " + redisOff, redisOff, rate, false, map[int]float64{1: 0.75, 16: 0.85, 64: 1.4, 256: 2.4}},
			{"server CPU over that of " + redisAlways, redisAlways, cpuNS, true, map[int]float64{1: 1, 16: 0.5, 64: 0.35, 256: 0.2}},
			{noSlower + redisAlways, redisAlways, p99MS, true, map[int]float64{16: 1, 64: 1, 256: 1}},
		}
	case "incr-uniform":
		return []peerTarget{
			{"rate over that of " + redisAlways, redisAlways, rate, false, map[int]float64{1: 1.05, 16: 1.5, 64: 2.3, 256: 2.8}},
			{noSlower + redisAlways, redisAlways, p99MS, true, map[int]float64{16: 1, 64: 1, 256: 1}},
		}
	default:
		return []peerTarget{
			{"rate over that of Redis", "", rate, false, map[int]float64{1: 0.95, 16: 1.05, 64: 1.8, 256: 2.8}},
		}
	}
}

// judge compares with the targets, where both sides were measured.
func (p *peers) judge() {
	var t table
	t.head("Quipu, acknowledging after the sync", p.depthNames()...)
	for _, c := range p.cases {
		asked := p.asked(c)
		find := func(match func(*peer) bool) *peer {
			if i := slices.IndexFunc(asked, match); i >= 0 {
				return asked[i]
			}
			return nil
		}
		ours := find(func(to *peer) bool { return to.name == quipuSynced })
		for _, want := range peerTargets(c.name) {
			theirs := find(func(to *peer) bool {
				return to.name == want.peer || want.peer == "" && to.program == "redis-server"
			})
			if ours == nil || theirs == nil {
				continue
			}
			row := []string{c.title + ": " + want.name}
			for _, depth := range p.depths {
				ratio := p.over(cellOf(ours.name, c, depth), cellOf(theirs.name, c, depth), want.metric)
				row = append(row, p.verdict(fmt.Sprintf("%s, depth %d: %s", c.name, depth, want.name), ratio, want, depth))
			}
			t.rows = append(t.rows, row)
		}
	}
	if len(t.rows) > 0 {
		t.Title = "Ratios, and targets"
		p.Tables = append(p.Tables, t)
	}
}

// verdict keeps a target, if there is one at this depth, and writes what came
// of it.
func (p *peers) verdict(what string, ratio float64, want peerTarget, depth int) string {
	limit, ok := want.want[depth]
	if !ok {
		return number(ratio)
	}
	sign := "≥"
	if want.most {
		sign = "≤"
		p.atMost(what, ratio, limit)
	} else {
		p.atLeast(what, ratio, limit)
	}
	met := "met"
	if !p.Targets[len(p.Targets)-1].Met {
		met = "**missed**"
	}
	return fmt.Sprintf("%s (%s %s) %s", number(ratio), sign, number(limit), met)
}

func (p *peers) depthNames() []string {
	var names []string
	for _, d := range p.depths {
		names = append(names, "depth "+strconv.Itoa(d))
	}
	return names
}

// tabulate makes the tables and the charts of what was measured.
func (p *peers) tabulate() {
	for _, c := range p.cases {
		for _, metric := range []string{rate, cpuNS, p99MS} {
			t := table{Title: c.title + ": " + metric}
			if metric == cpuNS {
				t.Title = c.title + ": CPU ns/operation of the server"
			}
			t.head("side", p.depthNames()...)
			panel := chart.Panel{Title: t.Title, X: "depth", Y: metric, LogY: true}
			for i, d := range p.depths {
				panel.Ticks = append(panel.Ticks, chart.Tick{At: float64(i), Label: strconv.Itoa(d)})
			}
			for _, to := range p.asked(c) {
				row, line := []string{to.name}, chart.Line{Name: to.name}
				for i, d := range p.depths {
					s := p.find(cellOf(to.name, c, d), metric)
					row = append(row, s.spread()+p.mark(s))
					line.Points = append(line.Points, chart.Point{X: float64(i), Y: s.median()})
				}
				t.rows = append(t.rows, row)
				panel.Lines = append(panel.Lines, line)
			}
			p.Tables = append(p.Tables, t)
			p.Panels = append(p.Panels, panel)
		}
	}
	p.tabulateClients()
	p.tabulatePostgres()
	p.note("A value is the median of the rounds, with the smallest and the largest; ratios are computed in each round. The commands of "+
		"redis-benchmark are `redis-benchmark %s`, with `-n` for about 3 s, and `INCR %s` or `GET %s` for one key. After each run on the hot key, what the server "+
		"has counted was compared with what was sent.", strings.Join(benchmarkArgs("PORT", 16, 1_000_000, []string{"-r", strconv.Itoa(peersKeys), "INCR", "key:__rand_int__"}), " "), load.KeyZero, load.KeyZero)
	p.note("† The client limits this: redis-benchmark keeps its one thread busy for %v of the time or more.", clientBound)
}

// mark marks a rate that the client limits.
func (p *peers) mark(s *series) string {
	if s.Metric == rate && p.median(s.Side, clientCores) >= clientBound {
		return " †"
	}
	return ""
}

// tabulateClients shows both clients beside each other.
func (p *peers) tabulateClients() {
	t := table{Title: "The clients: redis-benchmark / quipu bench"}
	t.head("", rate, cpuNS+" of the server", clientNS, p99MS)
	for _, c := range p.cases {
		for _, depth := range p.depths {
			for _, to := range p.asked(c) {
				if !p.besides(to, depth) {
					continue
				}
				row := []string{cellOf(to.name, c, depth)}
				for _, metric := range []string{rate, cpuNS, clientNS, p99MS} {
					neutral, own := p.median(cellOf(to.name, c, depth), metric), p.median(ownCellOf(to.name, c, depth), metric)
					row = append(row, number(neutral)+" / "+number(own))
				}
				t.rows = append(t.rows, row)
			}
		}
	}
	if len(t.rows) > 0 {
		p.Tables = append(p.Tables, t)
	}
}

func (p *peers) tabulatePostgres() {
	if p.pg == nil {
		return
	}
	t := table{Title: fmt.Sprintf("PostgreSQL, UPDATE, %d connections", peersConnections)}
	t.head("", rate, cpuNS+" of the server")
	for _, rows := range pgRows {
		side := pgSide(rows)
		t.rows = append(t.rows, []string{side, p.find(side, rate).spread(), p.find(side, cpuNS).spread()})
	}
	p.Tables = append(p.Tables, t)
}
