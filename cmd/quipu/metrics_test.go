package main

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

const (
	alertsFile     = "../../deploy/alerts.yml"
	alertTestsFile = "../../deploy/alerts_test.yml"
)

// readText reads a file of the repository.
func readText(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.FromSlash(name))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// An alert is one of the rules.
type alert struct {
	Alert, Expr string
	Labels      map[string]string
	Annotations map[string]string
}

func alerts(t *testing.T) []alert {
	t.Helper()
	var file struct{ Groups []struct{ Rules []alert } }
	if err := yaml.Unmarshal([]byte(readText(t, alertsFile)), &file); err != nil {
		t.Fatal(err)
	}
	var all []alert
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// The rules are valid, fire when they should, and say what to do.
func TestAlerts(t *testing.T) {
	if _, err := exec.LookPath("promtool"); err != nil {
		t.Fatalf("%v: make servers installs it; on Debian it is in the package prometheus", err)
	}
	for _, args := range [][]string{{"check", "rules", alertsFile}, {"test", "rules", alertTestsFile}} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		out, err := exec.CommandContext(ctx, "promtool", args...).CombinedOutput()
		cancel()
		if err != nil {
			t.Errorf("promtool %q: %v\n%s", args, err, out)
		}
	}
	tests, page := readText(t, alertTestsFile), readText(t, "../../docs/hot.md")
	for _, a := range alerts(t) {
		if a.Labels["severity"] == "" || a.Annotations["summary"] == "" || a.Annotations["description"] == "" || a.Annotations["action"] == "" {
			t.Errorf("%s: want a severity, a summary, a description and an action", a.Alert)
		}
		if !strings.Contains(tests, `alertname="`+a.Alert+`"`) {
			t.Errorf("%s is not tested", a.Alert)
		}
		if !strings.Contains(page, "| `"+a.Alert+"` |") {
			t.Errorf("%s is not in docs/hot.md", a.Alert)
		}
	}
}

// ours finds the names of metrics, or the beginnings of some.
var ours = regexp.MustCompile(`\bquipu_[a-z0-9_]+`)

// exposed returns the names of the metrics that servers over each store expose
// when a counter is hot, split, and read as a total.
func exposed(t *testing.T) []string {
	t.Helper()
	conf := writeFile(t, "policies:\n  - {pattern: hot, shards: 2, timing: rollup}\n")
	var names []string
	for _, store := range []string{"embedded:", "memory:", startPostgres(t).URL(), "redis://" + startRedis(t, "--appendonly", "yes").Addr} {
		p := start(t, nil, "--http", "127.0.0.1:0", "--store", store, "--config", conf)
		var body string
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		for !strings.Contains(body, "quipu_hot_growth_rate{") || !strings.Contains(body, "quipu_hot_rollup_age_ratio{") {
			writeBlind(ctx, t, p.url+"/api/v1/counters/hot/increment")
			httpGet(ctx, t, p.url+"/api/v1/counters/hot")
			_, body = httpGet(ctx, t, p.url+"/metrics")
		}
		cancel()
		for _, m := range regexp.MustCompile(`(?m)^# TYPE (quipu_\S+) `).FindAllStringSubmatch(body, -1) {
			names = append(names, m[1])
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// writeBlind increments a counter and asks for nothing back.
func writeBlind(ctx context.Context, t *testing.T, url string) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Prefer", "return=minimal")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
}

// Alerts are over metrics that there are, and the page names those that there
// are and no other.
func TestMetricsExist(t *testing.T) {
	names := exposed(t)
	for _, a := range alerts(t) {
		for _, text := range append([]string{a.Expr}, a.Annotations["description"], a.Annotations["action"]) {
			for _, name := range ours.FindAllString(text, -1) {
				if !slices.Contains(names, strings.TrimSuffix(name, "_bucket")) {
					t.Errorf("%s: no server exposes %s", a.Alert, name)
				}
			}
		}
	}
	page := readText(t, "../../docs/metrics.md")
	for _, name := range names {
		if !strings.Contains(page, "`"+name+"`") {
			t.Errorf("%s is not in docs/metrics.md", name)
		}
	}
	for _, name := range ours.FindAllString(page+readText(t, "../../docs/hot.md"), -1) {
		if !slices.Contains(names, strings.TrimSuffix(name, "_bucket")) {
			t.Errorf("the pages name %s, which no server exposes", name)
		}
	}
}
