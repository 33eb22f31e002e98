package alert

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A result is one element of what an expression is.
type result struct {
	labels map[string]string // without the name of a metric
	value  float64
}

// A moment is when expressions are evaluated, and over what.
type moment struct {
	at      time.Time
	history *History
}

// key is the same for the same labels.
func key(labels map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		b.WriteString(strconv.Quote(name))
		b.WriteString(strconv.Quote(labels[name]))
	}
	return b.String()
}

func (n number) eval(*moment) []result { return []result{{value: float64(n)}} }

func (s selector) matches(labels map[string]string) bool {
	for _, m := range s.match {
		if v := labels[m.label]; m.re != nil && !m.re.MatchString(v) || m.re == nil && v != m.value {
			return false
		}
	}
	return true
}

func (s selector) eval(m *moment) (found []result) {
	for _, one := range m.history.named(s.name) {
		if last := one.points[len(one.points)-1]; one.present && s.matches(one.labels) {
			found = append(found, result{one.labels, last.value})
		}
	}
	return found
}

func (g growth) eval(m *moment) (found []result) {
	for _, one := range m.history.named(g.of.name) {
		if !g.of.matches(one.labels) {
			continue
		}
		if v, ok := one.increase(m.at, g.of.window); ok {
			if g.perSecond {
				v /= g.of.window.Seconds()
			}
			found = append(found, result{one.labels, v})
		}
	}
	return found
}

// increase returns by how much a counter has risen in a range. It begins and ends
// where Prometheus would have it: between the readings, by their mean distance.
func (s *series) increase(end time.Time, window time.Duration) (float64, bool) {
	begin := end.Add(-window)
	first := slices.IndexFunc(s.points, func(p point) bool { return p.at.After(begin) })
	if first < 0 || len(s.points)-first < 2 {
		return 0, false
	}
	in := s.points[first:]
	last := in[len(in)-1]
	rise := last.value - in[0].value
	for i := 1; i < len(in); i++ {
		if in[i].value < in[i-1].value { // It began anew.
			rise += in[i-1].value
		}
	}
	sampled := last.at.Sub(in[0].at).Seconds()
	mean := sampled / float64(len(in)-1)
	before, after := in[0].at.Sub(begin).Seconds(), end.Sub(last.at).Seconds()
	if before >= mean*1.1 {
		before = mean / 2
	}
	if rise > 0 && in[0].value >= 0 {
		before = min(before, sampled*in[0].value/rise) // It was not below zero.
	}
	if after >= mean*1.1 {
		after = mean / 2
	}
	return rise * (sampled + before + after) / sampled, true
}

func (s sumBy) eval(m *moment) (found []result) {
	at := map[string]int{}
	for _, r := range s.of.eval(m) {
		labels := map[string]string{}
		for _, name := range s.labels {
			if v, ok := r.labels[name]; ok {
				labels[name] = v
			}
		}
		k := key(labels)
		i, known := at[k]
		if !known {
			i = len(found)
			at[k] = i
			found = append(found, result{labels: labels})
		}
		found[i].value += r.value
	}
	return found
}

// A bucket is one of a histogram: how many values were at most le.
type bucket struct{ le, count float64 }

func (q quantile) eval(m *moment) (found []result) {
	type histogram struct {
		labels  map[string]string
		buckets []bucket
	}
	of, order := map[string]*histogram{}, []string(nil)
	for _, r := range q.of.eval(m) {
		le, err := strconv.ParseFloat(r.labels["le"], 64)
		if err != nil {
			continue
		}
		labels := maps.Clone(r.labels)
		delete(labels, "le")
		k := key(labels)
		if of[k] == nil {
			of[k] = &histogram{labels: labels}
			order = append(order, k)
		}
		of[k].buckets = append(of[k].buckets, bucket{le, r.value})
	}
	for _, k := range order {
		found = append(found, result{of[k].labels, quantileOf(q.q, of[k].buckets)})
	}
	return found
}

// quantileOf returns a quantile of a histogram, and NaN if it is empty.
func quantileOf(q float64, buckets []bucket) float64 {
	slices.SortFunc(buckets, func(a, b bucket) int { return cmp.Compare(a.le, b.le) })
	last := len(buckets) - 1
	if last < 1 || !math.IsInf(buckets[last].le, 1) || buckets[last].count == 0 {
		return math.NaN()
	}
	rank := q * buckets[last].count
	i := slices.IndexFunc(buckets, func(b bucket) bool { return b.count >= rank })
	switch {
	case i == last || i < 0:
		return buckets[last-1].le
	case i == 0:
		return buckets[0].le * rank / buckets[0].count
	default:
		low := buckets[i-1]
		return low.le + (buckets[i].le-low.le)*(rank-low.count)/(buckets[i].count-low.count)
	}
}

func (r replace) eval(m *moment) (found []result) {
	for _, one := range r.of.eval(m) {
		labels := maps.Clone(one.labels)
		labels[r.label] = r.add
		found = append(found, result{labels, one.value})
	}
	return found
}

func (b binary) eval(m *moment) (found []result) {
	left, right := b.left.eval(m), b.right.eval(m)
	byKey := map[string]float64{}
	if _, scalar := b.right.(number); !scalar {
		for _, r := range right {
			byKey[key(r.labels)] = r.value
		}
	}
	if b.op == "or" {
		have := map[string]bool{}
		for _, l := range left {
			have[key(l.labels)] = true
		}
		for _, r := range right {
			if !have[key(r.labels)] {
				left = append(left, r)
			}
		}
		return left
	}
	if scalar, ok := b.left.(number); ok {
		for _, r := range right {
			found = b.combine(found, r.labels, float64(scalar), r.value, r.value)
		}
		return found
	}
	for _, l := range left {
		other, ok := byKey[key(l.labels)]
		if scalar, is := b.right.(number); is {
			other, ok = float64(scalar), true
		}
		if ok {
			found = b.combine(found, l.labels, l.value, other, l.value)
		}
	}
	return found
}

// combine appends what an operator makes of two values. A comparison keeps one of them,
// or nothing.
func (b binary) combine(found []result, labels map[string]string, x, y, kept float64) []result {
	v := kept
	switch b.op {
	case "+":
		v = x + y
	case "-":
		v = x - y
	case "*":
		v = x * y
	case "/":
		v = x / y
	case ">", "<", ">=", "<=", "==", "!=":
		if holds := map[string]bool{">": x > y, "<": x < y, ">=": x >= y, "<=": x <= y, "==": x == y, "!=": x != y}; !holds[b.op] {
			return found
		}
	case "and":
	}
	return append(found, result{labels, v})
}
