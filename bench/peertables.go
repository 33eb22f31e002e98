package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/quipudb/quipu/internal/load"
	"github.com/quipudb/quipu/internal/load/chart"
)

// A peerTarget is a comparison for a case, at several depths, and what is wanted
// of it at some.
type peerTarget struct {
	name   string
	ours   string // the side that is compared, if it is another
	peer   string // the side that it is compared with; of reads any Redis
	metric string
	most   bool // want is the most, not the least
	want   map[int]float64
}

// overHot compares a side with itself on one key, instead of with a peer.
const overHot = "overHot"

// peerTargets are those of a case.
func peerTargets(name string) []peerTarget {
	rateOver := func(peer string, want map[int]float64) peerTarget {
		return peerTarget{name: "rate over that of " + peer, peer: peer, metric: rate, want: want}
	}
	cpuOver := func(peer string, want map[int]float64) peerTarget {
		return peerTarget{name: "server CPU over that of " + peer, peer: peer, metric: cpuNS, most: true, want: want}
	}
	noSlower := peerTarget{
		name: "p99 over that of " + redisAlways, peer: redisAlways, metric: p99MS, most: true, want: map[int]float64{16: 1, 64: 1, 256: 1},
	}
	switch name {
	case hotCase:
		return []peerTarget{
			rateOver(bareLoop, map[int]float64{1: 1, 16: 0.9, 64: 0.9, 256: 0.9}),
			cpuOver(bareLoop, nil),
			rateOver(redisAlways, map[int]float64{1: 1.15, 16: 1.6, 64: 3, 256: 5.5}),
			cpuOver(redisAlways, map[int]float64{1: 0.95, 16: 0.6, 64: 0.3, 256: 0.15}),
			noSlower,
			rateOver(redisOff, map[int]float64{1: 0.75, 16: 0.85, 64: 1.4, 256: 2.4}),
		}
	case "incr-uniform":
		return []peerTarget{
			rateOver(bareLoop, map[int]float64{16: 0.85, 64: 0.85, 256: 0.8}),
			cpuOver(bareLoop, nil),
			rateOver(redisAlways, map[int]float64{1: 1.05, 16: 1.8, 64: 3, 256: 5}),
			cpuOver(redisAlways, nil),
			noSlower,
		}
	case "incr-created":
		return []peerTarget{
			rateOver(bareLoop, map[int]float64{16: 0.8, 64: 0.7, 256: 0.6}),
			cpuOver(bareLoop, nil),
			rateOver(redisAlways, nil),
			cpuOver(redisAlways, nil),
		}
	case "get":
		return []peerTarget{
			rateOver(bareLoop, nil),
			{name: "rate over that of Redis", metric: rate, want: map[int]float64{1: 0.95, 16: 1.05, 64: 1.8, 256: 2.8}},
		}
	default:
		return []peerTarget{
			{name: "server CPU over that with one key", peer: overHot, metric: cpuNS, most: true, want: map[int]float64{64: 1.6, 256: 1.6}},
			{name: "the same of " + bareLoop, ours: bareLoop, peer: overHot, metric: cpuNS, most: true},
			rateOver(bareLoop, nil),
			rateOver(redisAlways, nil),
			cpuOver(redisAlways, nil),
		}
	}
}

// judge compares with the targets, where both sides were measured.
func (p *peers) judge() {
	t := table{Title: "Ratios, and targets"}
	t.head("Quipu, acknowledging after the sync", p.depthNames()...)
	for _, c := range p.cases {
		for _, want := range peerTargets(c.name) {
			row, measured := []string{c.title + ": " + want.name}, false
			for _, depth := range p.depths {
				side := cmp.Or(want.ours, quipuSynced)
				ours, theirs := cellOf(side, c, depth), p.compared(side, c, want.peer, depth)
				if theirs == "" || !p.has(ours, want.metric) || !p.has(theirs, want.metric) {
					row = append(row, "")
					continue
				}
				measured = true
				ratio := p.over(ours, theirs, want.metric)
				row = append(row, p.verdict(fmt.Sprintf("%s, depth %d: %s", c.name, depth, want.name), ratio, want, depth))
			}
			if measured {
				t.rows = append(t.rows, row)
			}
		}
	}
	if len(t.rows) > 0 {
		p.Tables = append(p.Tables, t)
	}
}

// compared returns the cell that a side of a case is compared with, if there is one.
func (p *peers) compared(side string, c peerCase, peer string, depth int) string {
	if peer == overHot {
		i := slices.IndexFunc(p.cases, func(c peerCase) bool { return c.name == hotCase })
		switch {
		case i < 0:
			return ""
		case c.args == nil: // by the same client
			return ownCellOf(side, p.cases[i], depth)
		default:
			return cellOf(side, p.cases[i], depth)
		}
	}
	for _, to := range p.asked(c) {
		if to.name == peer || peer == "" && to.program == "redis-server" {
			return cellOf(to.name, c, depth)
		}
	}
	return ""
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
			for _, to := range p.asked(c) {
				row := []string{to.name}
				for _, d := range p.depths {
					row = append(row, p.shown(cellOf(to.name, c, d), metric))
				}
				t.rows = append(t.rows, row)
			}
			p.Tables = append(p.Tables, t)
			if !c.side {
				p.Panels = append(p.Panels, p.panel(t.Title, c, metric))
			}
		}
	}
	p.tabulateClients()
	p.tabulatePostgres()
	p.note("A value is the median of the rounds, with the smallest and the largest; ratios are computed in each round. The commands of "+
		"redis-benchmark are `redis-benchmark %s`, with `-n` for about 3 s, and `INCR %s` or `GET %s` for one key. After each run on the hot key, what the server "+
		"has counted was compared with what was sent.", strings.Join(benchmarkArgs("PORT", 16, 1_000_000, []string{"-r", strconv.Itoa(peersKeys), "INCR", "key:__rand_int__"}), " "), load.KeyZero, load.KeyZero)
	p.note("All keys are present before a measurement. Where they are new, each measurement has a new server, and sends as many commands, with `-r %d`.", manyKeys)
	p.note("redis-benchmark has no Zipf distribution: those rows are by `quipu bench`, and their CPU is compared with that of one key by the same client.")
	p.note("† The client limits this: redis-benchmark keeps its one thread busy for %v of the time or more.", clientBound)
}

// shown writes what was measured of a cell, if anything was.
func (p *peers) shown(cell, metric string) string {
	if !p.has(cell, metric) {
		return ""
	}
	s := p.find(cell, metric)
	return s.spread() + p.mark(s)
}

// panel draws a metric of a case.
func (p *peers) panel(title string, c peerCase, metric string) chart.Panel {
	panel := chart.Panel{Title: title, X: "depth", Y: metric, LogY: true}
	for i, d := range p.depths {
		panel.Ticks = append(panel.Ticks, chart.Tick{At: float64(i), Label: strconv.Itoa(d)})
	}
	for _, to := range p.asked(c) {
		line := chart.Line{Name: to.name}
		for i, d := range p.depths {
			line.Points = append(line.Points, chart.Point{X: float64(i), Y: p.median(cellOf(to.name, c, d), metric)})
		}
		panel.Lines = append(panel.Lines, line)
	}
	return panel
}

// mark marks a rate that the client limits.
func (p *peers) mark(s *series) string {
	if s.Metric == rate && p.has(s.Side, clientCores) && p.median(s.Side, clientCores) >= clientBound {
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
				if !p.besides(c, depth, to) {
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
