// Package alert evaluates alerting rules for Prometheus for one server. It
// keeps the last hour of the server's metrics and evaluates the rules over them
// as Prometheus does, for the part of the language that the rules use. It is
// pure: others read the metrics and the clock.
//
// It promises to agree with promtool on every case of the tests of the rules.
package alert

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/quipudb/quipu/internal/duration"
)

// A State is what a rule says.
type State string

// A rule is quiet, or its condition holds and has not held for long enough, or it
// fires.
const (
	Quiet   State = "quiet"
	Pending State = "pending"
	Firing  State = "firing"
)

// An Alert is what one rule says of one thing, such as a counter.
type Alert struct {
	Name        string
	Severity    string
	Expr        string
	For         time.Duration
	State       State
	Since       time.Time // when its condition began to hold; zero if it is quiet
	Labels      map[string]string
	Value       float64
	Summary     string
	Description string
	Action      string
}

// rule is one rule, and what of it holds.
type rule struct {
	name        string
	text        string
	expr        expr
	wait        time.Duration
	labels      map[string]string
	annotations map[string]annotation
	active      map[string]*active
}

type active struct {
	result
	since time.Time
	fires bool // what fires goes on while its condition holds
}

// Rules are alerting rules, with what they have seen. They are not safe for concurrent
// use.
type Rules struct {
	rules   []*rule
	history *History
}

// Parse reads a file of rules.
func Parse(file []byte) (*Rules, error) {
	var in struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(file, &in); err != nil {
		return nil, fmt.Errorf("parse the alerts: %w", err)
	}
	rs := &Rules{}
	names := map[string]bool{}
	for _, g := range in.Groups {
		for _, one := range g.Rules {
			e, err := parse(one.Expr)
			if err != nil {
				return nil, fmt.Errorf("parse the alert %s: %w", one.Alert, err)
			}
			r := &rule{name: one.Alert, text: strings.TrimSpace(one.Expr), expr: e, labels: one.Labels, annotations: map[string]annotation{}, active: map[string]*active{}}
			if one.For != "" {
				if r.wait, err = duration.Parse(one.For); err != nil {
					return nil, fmt.Errorf("parse the alert %s: %w", one.Alert, err)
				}
			}
			for name, text := range one.Annotations {
				if r.annotations[name], err = parseAnnotation(text); err != nil {
					return nil, fmt.Errorf("parse the alert %s: %w", one.Alert, err)
				}
			}
			namesOf(e, names)
			rs.rules = append(rs.rules, r)
		}
	}
	rs.history = newHistory(names)
	return rs, nil
}

// namesOf adds the names of the metrics of an expression.
func namesOf(e expr, names map[string]bool) {
	switch e := e.(type) {
	case selector:
		names[e.name] = true
	case growth:
		names[e.of.name] = true
	case sumBy:
		namesOf(e.of, names)
	case quantile:
		namesOf(e.of, names)
	case replace:
		namesOf(e.of, names)
	case binary:
		namesOf(e.left, names)
		namesOf(e.right, names)
	}
}

// Wants reports whether a rule is about a metric.
func (rs *Rules) Wants(name string) bool { return rs.history.wanted[name] }

// Len returns how many rules there are.
func (rs *Rules) Len() int { return len(rs.rules) }

// Seen returns for how long the metrics are known.
func (rs *Rules) Seen(now time.Time) time.Duration {
	if rs.history.began.IsZero() {
		return 0
	}
	return min(now.Sub(rs.history.began), keep)
}

// Add takes a reading of the metrics, and evaluates the rules.
func (rs *Rules) Add(now time.Time, samples []Sample) {
	rs.history.Add(now, samples)
	m := &moment{now, rs.history}
	for _, r := range rs.rules {
		holds := map[string]*active{}
		for _, found := range r.expr.eval(m) {
			k := key(found.labels)
			a := r.active[k]
			if a == nil {
				a = &active{since: now}
			}
			a.result = found
			a.fires = a.fires || now.Sub(a.since) >= r.wait
			holds[k] = a
		}
		r.active = holds
	}
}

// Alerts returns what the rules say, in their order. A rule that is quiet has one.
func (rs *Rules) Alerts() (all []Alert) {
	for _, r := range rs.rules {
		one := Alert{Name: r.name, Severity: r.labels["severity"], Expr: r.text, For: r.wait, State: Quiet}
		if len(r.active) == 0 {
			one.Action = r.annotate("action", result{})
			all = append(all, one)
		}
		for _, k := range slices.Sorted(maps.Keys(r.active)) {
			a := r.active[k]
			one.State = Pending
			if a.fires {
				one.State = Firing
			}
			one.Since, one.Labels, one.Value = a.since, a.labels, a.value
			one.Summary, one.Description, one.Action = r.annotate("summary", a.result), r.annotate("description", a.result), r.annotate("action", a.result)
			all = append(all, one)
		}
	}
	return all
}

// annotate returns an annotation for a result.
func (r *rule) annotate(name string, of result) string { return r.annotations[name].fill(of) }
