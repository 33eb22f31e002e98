package main

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/quipudb/quipu/client"
	"github.com/quipudb/quipu/internal/load/redisproc"
)

const (
	alertsFile     = "../../deploy/alerts.yml"
	alertTestsFile = "../../deploy/alerts_test.yml"
	prometheusFile = "../../deploy/prometheus.yml"
	unitFile       = "../../deploy/quipu.service"
	dashboardFile  = "../../deploy/grafana/quipu.json"
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
	for _, args := range [][]string{{"check", "rules", alertsFile}, {"test", "rules", alertTestsFile}, {"check", "config", prometheusFile}} {
		passes(t, "promtool", args...)
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

// passes runs a program that checks something, and returns what it says.
func passes(t *testing.T, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		t.Errorf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// A panel is one of the dashboard.
type panel struct {
	Title, Type string
	Targets     []struct{ Expr string }
}

func panels(t *testing.T) []panel {
	t.Helper()
	var file struct{ Panels []panel }
	if err := json.Unmarshal([]byte(readText(t, dashboardFile)), &file); err != nil {
		t.Fatal(err)
	}
	return file.Panels
}

// Prometheus understands the expressions of the dashboard, and Grafana has them for
// the servers that are chosen.
func TestDashboard(t *testing.T) {
	type rule struct {
		Record string `yaml:"record"`
		Expr   string `yaml:"expr"`
	}
	var rules []rule
	grafana := strings.NewReplacer("$__rate_interval", "1m", "$instance", ".*")
	for _, p := range panels(t) {
		if len(p.Targets) == 0 && p.Type != "row" {
			t.Errorf("panel %q shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			if !strings.Contains(target.Expr, "instance=~\"$instance\"") {
				t.Errorf("panel %q is not of the servers that are chosen: %s", p.Title, target.Expr)
			}
			rules = append(rules, rule{"panel" + strconv.Itoa(len(rules)), grafana.Replace(target.Expr)})
		}
	}
	if len(rules) < 30 {
		t.Errorf("%d expressions", len(rules))
	}
	raw, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": rules}}})
	if err != nil {
		t.Fatal(err)
	}
	passes(t, "promtool", "check", "rules", writeFile(t, string(raw)))
}

// The example for Prometheus has the alerts and a job that they know.
func TestPrometheusExample(t *testing.T) {
	var file struct {
		RuleFiles []string `yaml:"rule_files"`
		Scrapes   []struct {
			Job string `yaml:"job_name"`
		} `yaml:"scrape_configs"`
	}
	if err := yaml.Unmarshal([]byte(readText(t, prometheusFile)), &file); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(file.RuleFiles, []string{filepath.Base(alertsFile)}) || len(file.Scrapes) != 1 || !strings.Contains(file.Scrapes[0].Job, "quipu") {
		t.Errorf("the example is %+v", file)
	}
}

// The unit for systemd starts the server with flags that it has, in the directory
// that is its own, and systemd, where there is one, takes it.
func TestUnit(t *testing.T) {
	unit := readText(t, unitFile)
	setting := func(name string) string {
		t.Helper()
		found := regexp.MustCompile(`(?m)^`+name+`=(.*)$`).FindAllStringSubmatch(unit, -1)
		if len(found) != 1 {
			t.Fatalf("%d settings %s", len(found), name)
		}
		return found[0][1]
	}
	const program = "/usr/local/bin/quipu"
	args := strings.Fields(setting("ExecStart"))
	if want := []string{program, "serve", "--data", "/var/lib/" + setting("StateDirectory")}; !slices.Equal(args, want) {
		t.Errorf("it starts %q, want %q", args, want)
	}
	if stop, err := time.ParseDuration(setting("TimeoutStopSec") + "s"); err != nil || stop < 2*drainMax {
		t.Errorf("it is killed %s after it is told to stop (%v), and drains for %s", stop, err, drainMax)
	}
	if _, err := exec.LookPath("systemd-analyze"); err == nil {
		file := filepath.Join(t.TempDir(), "quipu.service")
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(unit, program, binary)), 0o600); err != nil {
			t.Fatal(err)
		}
		// What it would ignore it only warns of.
		if said := passes(t, "systemd-analyze", "verify", file); strings.Contains(said, filepath.Base(file)) {
			t.Errorf("systemd says\n%s", said)
		}
	}
}

// ours finds the names of metrics, or the beginnings of some.
var ours = regexp.MustCompile(`\bquipu_[a-z0-9_]+`)

// exposed returns the names of the metrics that servers over each store expose
// when a counter is hot, split, and read as a total, and each door has had a call.
func exposed(t *testing.T) []string {
	t.Helper()
	conf := writeFile(t, "policies:\n  - {pattern: hot, shards: 2, timing: rollup}\n")
	var names []string
	for _, store := range []string{"embedded:", "memory:", startPostgres(t).URL(), "redis://" + redisproc.For(t, "--appendonly", "yes").Addr} {
		p := start(t, nil, "--http", "127.0.0.1:0", "--statsd", "127.0.0.1:0", "--trace-endpoint", "http://127.0.0.1:9", "--store", store, "--config", conf)
		_, addr, _ := strings.Cut(p.ready, "rpc=")
		addr, _, _ = strings.Cut(addr, " ")
		db, err := client.Dial(t.Context(), addr, client.Options{}) // asks whether it is let in
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
		var body string
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		kept := strings.Contains(store, "//") // Elsewhere reads are exact.
		for !strings.Contains(body, "quipu_hot_growth_rate{") || kept && !strings.Contains(body, "quipu_hot_rollup_age_ratio{") {
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
	for _, p := range panels(t) {
		for _, target := range p.Targets {
			for _, name := range ours.FindAllString(target.Expr, -1) {
				if !slices.Contains(names, strings.TrimSuffix(name, "_bucket")) {
					t.Errorf("the dashboard's panel %q: no server exposes %s", p.Title, name)
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
