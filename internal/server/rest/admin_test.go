package rest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/internal/server/rest"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

func newMemory() *memstore.Store { return memstore.New(memstore.Options{}) }

// kindWords returns the words of all kinds.
func kindWords() []string {
	var words []string
	for k := store.KindOther; k <= store.KindLost; k++ {
		words = append(words, server.StatusOf(k).Word)
	}
	for k := store.KindNotCount; k <= store.KindAbsent; k++ {
		words = append(words, server.StatusOf(k).Word)
	}
	return words
}

// An archive is a store that writes a backup of its own making, and audits. It is no
// hook, as it has a method that the store under it lacks.
type archive struct {
	*memstore.Store
	snapshot func(ctx context.Context, w io.Writer) error
	audit    func(ctx context.Context) error
	drift    []store.Drift
}

func (a *archive) Snapshot(ctx context.Context, w io.Writer) error {
	if a.snapshot != nil {
		return a.snapshot(ctx, w)
	}
	_, err := io.WriteString(w, "tar")
	return err
}

func (a *archive) Audit(ctx context.Context) (store.Audit, error) {
	if a.audit != nil {
		if err := a.audit(ctx); err != nil {
			return store.Audit{}, err
		}
	}
	return store.Audit{Cells: 3, Tokens: 2, Deltas: 7, Drift: a.drift}, nil
}

func TestHealth(t *testing.T) {
	f := open(t, rest.Options{})
	f.do("GET", "/healthz", "").want(t, 200, "status=ok")
	f.do("GET", "/readyz", "").want(t, 200, "status=ready")
	f.do("GET", "/api/v1/counters/quipu.ready", "").want(t, 200, "exists=false") // the probe changed nothing
	if r := f.do("GET", "/metrics", ""); !strings.Contains(r.body, "\nquipu_writes_refused_total 0\n") {
		t.Error("a probe counts as a refused write")
	}
	f.do("POST", "/api/v1/counters/quipu.ready/increment", "").want(t, 200)
	f.do("GET", "/readyz", "").want(t, 200, "status=ready")
	f.do("GET", "/api/v1/counters/quipu.ready", "").want(t, 200, "value=1")
}

func TestMetrics(t *testing.T) {
	f := open(t, rest.Options{})
	f.do("POST", "/api/v1/counters/a/increment", "", "Idempotency-Key: t").want(t, 200)
	f.do("POST", "/api/v1/counters/a/increment", "", "Idempotency-Key: t").want(t, 200)
	f.do("POST", "/api/v1/counters/a/increment", "[]").want(t, 400)
	f.do("GET", "/nothing", "").want(t, 404)
	r := f.do("GET", "/metrics", "")
	if r.status != 200 || !strings.HasPrefix(r.header.Get("Content-Type"), "text/plain") {
		t.Fatalf("metrics: %d %v", r.status, r.header)
	}
	for _, line := range []string{
		`quipu_http_requests_total{code="200",method="POST",route="/api/v1/counters/{key}/increment"} 2`,
		`quipu_http_requests_total{code="400",method="POST",route="/api/v1/counters/{key}/increment"} 1`,
		`quipu_http_requests_total{code="404",method="other",route="other"} 1`,
		`quipu_http_request_duration_seconds_count{method="POST",route="/api/v1/counters/{key}/increment"} 3`,
		"# TYPE quipu_writes_replayed_total counter",
		"quipu_writes_replayed_total 1",
		"go_goroutines ",
		"process_open_fds ",
	} {
		if !strings.Contains(r.body, "\n"+line) {
			t.Errorf("no line %q", line)
		}
	}
}

func TestBackup(t *testing.T) {
	a := &archive{Store: newMemory()}
	f := openOver(t, a, rest.Options{})
	r := f.do("GET", "/api/v1/backup", "")
	if r.status != 200 || r.body != "tar" || r.header.Get("Content-Type") != "application/x-tar" {
		t.Errorf("backup: %+v", r)
	}

	// Nothing was sent yet: the error can be told.
	a.snapshot = func(context.Context, io.Writer) error { return store.ErrUnavailable }
	f.do("GET", "/api/v1/backup", "").problem(t, 503, "unavailable", "unavailable")

	// Something was: only a broken transfer tells.
	a.snapshot = func(_ context.Context, w io.Writer) error {
		_, err := io.WriteString(w, strings.Repeat("x", 1<<20))
		return errors.Join(err, errors.New("disk on fire"))
	}
	req, err := http.NewRequestWithContext(t.Context(), "GET", f.url+"/api/v1/backup", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := f.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if _, err := io.Copy(io.Discard, res.Body); err == nil {
		t.Error("a broken backup looks whole")
	}
}

func TestUnsupported(t *testing.T) {
	f := openOver(t, storetest.Bare(newMemory()), rest.Options{})
	f.do("GET", "/api/v1/backup", "").problem(t, 501, "unsupported", "backup")
	f.do("POST", "/api/v1/verify", "").problem(t, 501, "unsupported", "verify")
}

func TestVerify(t *testing.T) {
	a := &archive{Store: newMemory()}
	var log bytes.Buffer
	unheard := server.NewGate(server.GateOptions{Audit: slog.New(slog.DiscardHandler)})
	f := openOver(t, a, rest.Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), Gate: unheard})
	metrics := func(drift, cells int, since time.Time) {
		t.Helper()
		body := f.do("GET", "/metrics", "").body
		for _, line := range []string{fmt.Sprint("\nquipu_verify_drift ", drift, "\n"), fmt.Sprint("\nquipu_verify_cells ", cells, "\n")} {
			if !strings.Contains(body, line) {
				t.Errorf("no %q in the metrics", line)
			}
		}
		_, text, _ := strings.Cut(body, "\nquipu_verify_timestamp_seconds ")
		text, _, _ = strings.Cut(text, "\n")
		at, err := strconv.ParseFloat(text, 64)
		if now := float64(time.Now().UnixMilli()) / 1000; err != nil || at < float64(since.UnixMilli())/1000 || at > now {
			t.Errorf("verified at %s, %v", text, err)
		}
	}
	metrics(0, 0, time.Unix(0, 0))
	begin := time.Now()
	f.do("POST", "/api/v1/verify", "").want(t, 200, "ok=true", "cells=3", "tokens=2", "deltas=7", "drift=[]")
	metrics(0, 3, begin)
	if log.Len() > 0 {
		t.Errorf("logged %s", &log)
	}
	a.drift = []store.Drift{{What: "sum", Have: "1", Want: `"2"`}, {What: "count"}}
	r := f.do("POST", "/api/v1/verify", "")
	r.want(t, 200, "ok=false")
	if drift, _ := r.fields(t)["drift"].([]any); len(drift) != 2 {
		t.Errorf("drift: %s", r.body)
	}
	metrics(2, 3, begin)
	if !strings.Contains(log.String(), `level=WARN msg="verify found differences"`) || !strings.Contains(log.String(), "differences=2 first=sum") {
		t.Errorf("logged %s", &log)
	}
}

// Backups and verifies go one at a time, and a place is given back.
func TestLongWorkGoesAlone(t *testing.T) {
	started, finish := make(chan struct{}), make(chan struct{})
	a := &archive{Store: newMemory(), snapshot: func(context.Context, io.Writer) error {
		close(started)
		<-finish
		return nil
	}}
	f := openOver(t, a, rest.Options{})
	done := make(chan reply)
	go func() { done <- f.do("GET", "/api/v1/backup", "") }()
	<-started
	f.do("POST", "/api/v1/verify", "").problem(t, 503, "unavailable", "already running")
	f.do("GET", "/api/v1/backup", "").problem(t, 503, "unavailable", "already running")
	close(finish)
	if r := <-done; r.status != 200 {
		t.Errorf("backup: %d %s", r.status, r.body)
	}
	f.do("POST", "/api/v1/verify", "").want(t, 200, "ok=true")
}

func TestPprof(t *testing.T) {
	keys, err := server.NewKeys([]string{"k"})
	if err != nil {
		t.Fatal(err)
	}
	f := open(t, rest.Options{Pprof: true, Gate: server.NewGate(server.GateOptions{Keys: keys, Logger: slog.New(slog.DiscardHandler)})})
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/goroutine?debug=1", "/debug/pprof/cmdline"} {
		f.do("GET", path, "").problem(t, 401, "unauthorized", "API key")
		if r := f.do("GET", path, "", "Authorization: Bearer k"); r.status != 200 || r.body == "" {
			t.Errorf("%s: %d", path, r.status)
		}
	}
}
