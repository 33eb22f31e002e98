package alert

import (
	"maps"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

const (
	rulesFile = "../../deploy/alerts.yml"
	testsFile = "../../deploy/alerts_test.yml"
)

// A file is what promtool is told to test.
type file struct {
	Tests []struct {
		Name     string
		Interval string
		Input    []struct{ Series, Values string } `yaml:"input_series"`
		Rules    []struct {
			At     string `yaml:"eval_time"`
			Name   string `yaml:"alertname"`
			Alerts []struct {
				Labels      map[string]string `yaml:"exp_labels"`
				Annotations map[string]string `yaml:"exp_annotations"`
			} `yaml:"exp_alerts"`
		} `yaml:"alert_rule_test"`
		Exprs []struct {
			At      string                    `yaml:"eval_time"`
			Samples []struct{ Labels string } `yaml:"exp_samples"`
		} `yaml:"promql_expr_test"`
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// seriesOf reads a series as it is written in a test.
func seriesOf(t *testing.T, text string) Sample {
	t.Helper()
	e, err := parse(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	s, _ := e.(selector)
	one := Sample{Name: s.name, Labels: map[string]string{}}
	for _, m := range s.match {
		one.Labels[m.label] = m.value
	}
	return one
}

// values reads values as they are written in a test.
func values(t *testing.T, text string) (all []float64) {
	t.Helper()
	form := regexp.MustCompile(`^(-?[0-9.]+)(?:([+-][0-9.]+))?(?:x([0-9]+))?$`)
	for one := range strings.FieldsSeq(text) {
		m := form.FindStringSubmatch(one)
		if m == nil {
			t.Fatalf("values %q", one)
		}
		v, _ := strconv.ParseFloat(m[1], 64)
		by, _ := strconv.ParseFloat(m[2], 64)
		times, _ := strconv.Atoi(m[3])
		for i := range times + 1 {
			all = append(all, v+float64(i)*by)
		}
	}
	return all
}

func length(t *testing.T, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// What promtool is told of the rules holds here: which fire, when, of what, and with
// which words.
func TestAsPromtool(t *testing.T) {
	var f file
	if err := yaml.Unmarshal(read(t, testsFile), &f); err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, test := range f.Tests {
		rs, err := Parse(read(t, rulesFile))
		if err != nil {
			t.Fatal(err)
		}
		every := length(t, test.Interval)
		var series []Sample
		var of [][]float64
		steps := 0
		for _, in := range test.Input {
			series = append(series, seriesOf(t, in.Series))
			of = append(of, values(t, in.Values))
			steps = max(steps, len(of[len(of)-1]))
		}
		begin := time.Unix(0, 0)
		for i := range steps {
			var now []Sample
			for j, s := range series {
				if i < len(of[j]) {
					s.Value = of[j][i]
					now = append(now, s)
				}
			}
			at := begin.Add(time.Duration(i) * every)
			rs.Add(at, now)
			for _, e := range test.Exprs {
				if begin.Add(length(t, e.At)).Equal(at) {
					checked++
					firing := map[string]bool{}
					for _, a := range rs.Alerts() {
						if a.State == Firing {
							firing[key(map[string]string{"alertname": a.Name, "instance": a.Labels["instance"], "severity": a.Severity})] = true
						}
					}
					want := map[string]bool{}
					for _, s := range e.Samples {
						want[key(seriesOf(t, "x"+s.Labels).Labels)] = true
					}
					for k := range want {
						if !firing[k] {
							t.Errorf("%s, at %s: %s does not fire", test.Name, e.At, k)
						}
					}
					for k := range firing {
						if !want[k] {
							t.Errorf("%s, at %s: %s fires", test.Name, e.At, k)
						}
					}
				}
			}
			for _, r := range test.Rules {
				if !begin.Add(length(t, r.At)).Equal(at) {
					continue
				}
				checked++
				var firing []Alert
				for _, a := range rs.Alerts() {
					if a.State == Firing && a.Name == r.Name {
						firing = append(firing, a)
					}
				}
				if len(firing) != len(r.Alerts) {
					t.Errorf("%s, at %s: %s fires %d times, want %d: %+v", test.Name, r.At, r.Name, len(firing), len(r.Alerts), firing)
					continue
				}
				for _, want := range r.Alerts {
					if !slices.ContainsFunc(firing, func(a Alert) bool {
						labels := maps.Clone(a.Labels)
						labels["severity"] = a.Severity
						return maps.Equal(labels, want.Labels) && a.Summary == want.Annotations["summary"] &&
							a.Description == want.Annotations["description"] && a.Action == want.Annotations["action"]
					}) {
						t.Errorf("%s, at %s: no %s is %+v, of %+v", test.Name, r.At, r.Name, want, firing)
					}
				}
			}
		}
	}
	if checked < 3 {
		t.Errorf("%d moments were checked", checked)
	}
}

// A rule is pending before it fires, says since when, and begins anew after a pause.
func TestStates(t *testing.T) {
	rs, err := Parse([]byte(`groups: [{rules: [{alert: A, expr: "x > 1", for: 1m, labels: {severity: info}, annotations: {summary: "{{ $labels.a }} is {{ $value | humanize }}"}}]}]`))
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Unix(1000, 0)
	f := func(seconds int, value float64, want State, since int) {
		t.Helper()
		rs.Add(begin.Add(time.Duration(seconds)*time.Second), []Sample{{"x", map[string]string{"a": "b"}, value}, {"y", nil, 9}})
		a := rs.Alerts()
		if len(a) != 1 || a[0].State != want || want != Quiet && (!a[0].Since.Equal(begin.Add(time.Duration(since)*time.Second)) || a[0].Summary != "b is 2") {
			t.Errorf("after %d s: %+v, want %s since %d", seconds, a, want, since)
		}
	}
	f(0, 2, Pending, 0)
	f(59, 2, Pending, 0)
	f(60, 2, Firing, 0)
	f(75, 1, Quiet, 0)
	f(90, 2, Pending, 90)
	f(150, 2, Firing, 90)
	if rs.Wants("y") || !rs.Wants("x") || rs.Len() != 1 || rs.Seen(begin.Add(150*time.Second)) != 150*time.Second {
		t.Errorf("it wants y: %v, %d rules, seen %v", rs.Wants("y"), rs.Len(), rs.Seen(begin.Add(150*time.Second)))
	}
}

// What is kept has an end, in time and in number.
func TestHistoryIsLimited(t *testing.T) {
	h := newHistory(map[string]bool{"x": true})
	at := time.Unix(0, 0)
	for range 1000 {
		at = at.Add(15 * time.Second)
		h.Add(at, []Sample{{"x", nil, 1}, {"other", nil, 1}})
	}
	if n := len(h.series["x"][""].points); n > int(keep/(15*time.Second))+1 || len(h.series) != 1 {
		t.Errorf("%d points of %d metrics are kept", n, len(h.series))
	}
	for i := range seriesMax + 100 {
		h.Add(at, []Sample{{"x", map[string]string{"i": strconv.Itoa(i)}, 1}})
	}
	if n := len(h.series["x"]); n != seriesMax {
		t.Errorf("%d series are kept", n)
	}
	at = at.Add(2 * keep)
	h.Add(at, nil)
	if h.count != 0 || len(h.series["x"]) != 0 {
		t.Errorf("%d series are left", h.count)
	}
}

// What a rule may not say is refused, and nothing is too deep.
func TestParse(t *testing.T) {
	for _, bad := range []string{
		"", "x >", "x > 1 y", "rate(x) > 1", "rate(x[5m]", "x{a!=\"b\"}", "x{a=b}", "x{a", "sum(x)", "sum by (a x", "histogram_quantile(x, y)",
		`label_replace(x, "a", "b", "c", "d")`, "x ~ 1", "x[5", "1 +", "avg(x)", strings.Repeat("(", 1000) + "x", "x{a=~\"(\"}", "x[-5m]",
	} {
		if e, err := parse(bad); err == nil {
			t.Errorf("%s is %v", bad, e)
		}
	}
	for _, bad := range []string{"groups: 1", `groups: [{rules: [{alert: A, expr: "x >"}]}]`, `groups: [{rules: [{alert: A, expr: x, for: soon}]}]`, `groups: [{rules: [{alert: A, expr: x, annotations: {summary: "{{ $nothing }}"}}]}]`} {
		if _, err := Parse([]byte(bad)); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}

// FuzzParse checks that no expression makes the parser or the evaluation panic.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"x > 1", "rate(x[5m]) / (rate(y[5m]) > 1) or z", `histogram_quantile(0.99, sum by (le) (rate(x_bucket{a=~"b.*"}[5m])))`, `label_replace(x, "a", "b", "", "")`, "1 + 2 * x{a=\"b\"} # c"} {
		f.Add(seed)
	}
	f.Fuzz(func(_ *testing.T, text string) {
		e, err := parse(text)
		if err != nil {
			return
		}
		names := map[string]bool{"x": true}
		namesOf(e, names)
		h := newHistory(names)
		for i := range 3 {
			h.Add(time.Unix(int64(i), 0), []Sample{{"x", map[string]string{"le": "1"}, float64(i)}, {"x", map[string]string{"le": "+Inf"}, 1}})
		}
		e.eval(&moment{time.Unix(3, 0), h})
	})
}

// A counter's rise over a range is what Prometheus makes of it: stretched to the ends of
// the range, but not below zero, and whole over a restart.
func TestIncrease(t *testing.T) {
	f := func(want float64, first, at int, values ...float64) {
		t.Helper()
		s := &series{}
		for i, v := range values {
			s.points = append(s.points, point{time.Unix(int64(first+15*i), 0), v})
		}
		got, ok := s.increase(time.Unix(int64(at), 0), 5*time.Minute)
		if ok != (want >= 0) || ok && math.Abs(got-want) > 1e-9 {
			t.Errorf("%v from %d, at %d: %v, %v, want %v", values, first, at, got, ok, want)
		}
	}
	steady := make([]float64, 41)
	for i := range steady {
		steady[i] = float64(i)
	}
	f(20, 0, 600, steady...)
	f(8.5, 480, 600, 32, 33, 34, 35, 36, 37, 38, 39, 40)                 // half a step before the first
	f(8, 480, 600, 0, 1, 2, 3, 4, 5, 6, 7, 8)                            // which was at zero
	f(3.5, 555, 600, 5, 6, 1, 2)                                         // a restart
	f(8.0*(120+7.5+7.5)/120, 400, 600, 8, 9, 10, 11, 12, 13, 14, 15, 16) // nothing since: half a step after the last
	f(-1, 600, 600, 7)
	f(-1, 0, 900, 7, 8)
}
