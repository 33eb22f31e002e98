package dash_test

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/quipudb/quipu/internal/server/dash"
)

// Whatever a file refers to is one of the files, and nothing comes from elsewhere.
func TestFiles(t *testing.T) {
	files, err := dash.Files()
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, f := range files {
		paths = append(paths, strings.TrimPrefix(f.Path, "/"))
	}
	refers := regexp.MustCompile(`(?:src|href)="([^"#]+)"|from "\./([^"]+)"|url\(([^)]+)\)`)
	for _, f := range files {
		for _, m := range refers.FindAllStringSubmatch(string(f.Body), -1) {
			to := m[1] + m[3]
			if m[2] != "" {
				to = "dash/" + m[2]
			}
			if !slices.Contains(paths, to) && to != "openapi.json" {
				t.Errorf("%s refers to %s, which is not there", f.Path, to)
			}
		}
		for _, bad := range []string{"innerHTML", "document.write", "eval(", "http://", "https://", " style=", "onclick="} {
			text := strings.ReplaceAll(string(f.Body), "http://www.w3.org/2000/svg", "")
			if strings.Contains(text, bad) {
				t.Errorf("%s has %s", f.Path, bad)
			}
		}
	}
}

// The page may load nothing from elsewhere, run no string, and be in no frame.
func TestHeaders(t *testing.T) {
	files, err := dash.Files()
	if err != nil || len(files) < 5 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, f := range files {
		h := http.Header{}
		f.SetHeader(h)
		policy := h.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "require-trusted-types-for 'script'"} {
			if !strings.Contains(policy, want) {
				t.Errorf("%s: the policy has no %s", f.Path, want)
			}
		}
		if strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") {
			t.Errorf("%s: policy %s", f.Path, policy)
		}
		if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("X-Frame-Options") != "DENY" || h.Get("Etag") == "" || h.Get("Content-Type") == "" {
			t.Errorf("%s: headers %v", f.Path, h)
		}
	}
}
