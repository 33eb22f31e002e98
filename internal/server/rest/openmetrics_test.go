package rest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/quipudb/quipu/internal/server/rest"
)

func TestOpenMetrics(t *testing.T) {
	f := open(t, rest.Options{})
	for i, key := range []string{"views:a", "views:b%22%5C%0A%C3%A9", "other"} {
		f.do("POST", "/api/v1/counters/"+key+"/increment", fmt.Sprintf(`{"delta":%d}`, i+1)).want(t, 200)
	}
	r := f.do("GET", "/api/v1/openmetrics?prefix=views:", "", "Accept: application/json;int64=string")
	want := `# TYPE quipu_value gauge
# HELP quipu_value Values of counters.
quipu_value{namespace="default",key="views:a"} 1
quipu_value{namespace="default",key="views:b\"\\\né"} 2
# EOF
`
	if r.status != 200 || r.body != want || r.header.Get("Content-Type") != "application/openmetrics-text; version=1.0.0; charset=utf-8" {
		t.Errorf("%d %v\n%s", r.status, r.header, r.body)
	}
	r = f.do("GET", "/api/v1/openmetrics?prefix=other&name=likes&type=counter", "")
	if !strings.HasPrefix(r.body, "# TYPE likes counter\n") || !strings.Contains(r.body, "\nlikes_total{namespace=\"default\",key=\"other\"} 3\n") {
		t.Error(r.body)
	}
	if r := f.do("GET", "/api/v1/namespaces/n/openmetrics?prefix=x", ""); r.status != 200 || !strings.HasSuffix(r.body, "counters.\n# EOF\n") {
		t.Error(r.body)
	}
	f.do("GET", "/api/v1/openmetrics", "").problem(t, 400, "invalid", "name the counters")
	f.do("GET", "/api/v1/openmetrics?prefix=views:&limit=1", "").problem(t, 413, "too_large", "more than 1 counters")
	f.do("GET", "/api/v1/openmetrics?prefix=v&limit=10001", "").problem(t, 400, "invalid", "between 1 and 10000")
	f.do("GET", "/api/v1/openmetrics?prefix=v&type=histogram", "").problem(t, 400, "invalid", "want counter or gauge")
	for _, bad := range []string{"1a", "a-b", "%C3%A9", "a%0Ab"} {
		f.do("GET", "/api/v1/openmetrics?prefix=v&name="+bad, "").problem(t, 400, "invalid", "want letters")
	}
	// Over several pages.
	for i := range 9 {
		ops := make([]string, 100)
		for j := range ops {
			ops[j] = fmt.Sprintf(`{"key":"p%d"}`, i*100+j)
		}
		f.do("POST", "/api/v1/batch", `{"ops":[`+strings.Join(ops, ",")+`]}`).want(t, 200)
	}
	if r := f.do("GET", "/api/v1/openmetrics?prefix=p&limit=900", ""); strings.Count(r.body, "quipu_value{") != 900 {
		t.Errorf("%d samples", strings.Count(r.body, "quipu_value{"))
	}
	f.do("GET", "/api/v1/openmetrics?prefix=p&limit=899", "").problem(t, 413, "too_large", "")
}

// FuzzLabel checks that a label stays on its line and in its quotes, and says what it said.
func FuzzLabel(f *testing.F) {
	for _, seed := range []string{"a", `"`, `\`, "\n", `\n`, "é\"} 5\n# EOF"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		label := rest.Label(s)
		if strings.Contains(label, "\n") {
			t.Fatalf("%q has a line end", label)
		}
		var back strings.Builder
		for i := 0; i < len(label); i++ {
			switch {
			case label[i] == '"':
				t.Fatalf("%q ends early", label)
			case label[i] != '\\':
				back.WriteByte(label[i])
				continue
			}
			if i++; i == len(label) {
				t.Fatalf("%q has half an escape", label)
			}
			if label[i] == 'n' {
				back.WriteByte('\n')
			} else {
				back.WriteByte(label[i])
			}
		}
		if back.String() != s {
			t.Fatalf("%q became %q", s, label)
		}
	})
}
