package server_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/quipudb/quipu/internal/server"
)

func TestMain(m *testing.M) {
	// net/http keeps a connection that it refused for half a second more.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

var quiet = slog.New(slog.DiscardHandler)

// listen returns a loopback listener for up to n connections.
func listen(t *testing.T, n int) (net.Listener, *server.Listener) {
	t.Helper()
	l, limited, err := server.Listen{Addr: "127.0.0.1:0", ConnectionsMax: n, Refusal: server.HTTPRefusal()}.Open()
	if err != nil {
		t.Fatal(err)
	}
	return l, limited
}

// get makes a request, and returns the body or why there is none.
func get(ctx context.Context, c *http.Client, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	res, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	return string(body), err
}

// A request under way when the server is told to end is answered; a new one
// is not accepted.
func TestDrain(t *testing.T) {
	started, finish := make(chan struct{}), make(chan struct{})
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(started)
		<-finish
		_, _ = io.WriteString(w, "done")
	})
	l, _ := listen(t, 10)
	s := server.New(quiet)
	s.Add("http", l, server.HTTP(h, time.Minute, quiet))
	if want := "ready http=" + l.Addr().String(); s.Ready() != want {
		t.Errorf("ready line %q, want %q", s.Ready(), want)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, 10*time.Second) }()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answers := make(chan string, 1)
	go func() {
		body, err := get(t.Context(), client, "http://"+l.Addr().String())
		answers <- body + errText(err)
	}()
	<-started
	stop()
	for { // until the listener is closed
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			break
		}
		_ = c.Close()
	}
	close(finish)
	if got := <-answers; got != "done" {
		t.Errorf("the request under way got %q", got)
	}
	if err := <-ended; err != nil {
		t.Errorf("run: %v", err)
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// What does not end in time is cut off.
func TestDrainIsLimited(t *testing.T) {
	started, finish := make(chan struct{}), make(chan struct{})
	h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(started)
		<-r.Context().Done() // the connection was broken
		close(finish)
	})
	l, _ := listen(t, 10)
	s := server.New(quiet)
	s.Add("http", l, server.HTTP(h, time.Minute, quiet))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, 10*time.Millisecond) }()
	answers := make(chan error, 1)
	go func() {
		_, err := get(t.Context(), &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, "http://"+l.Addr().String())
		answers <- err
	}()
	<-started
	stop()
	if err := <-ended; err != nil {
		t.Errorf("run: %v", err)
	}
	if err := <-answers; err == nil {
		t.Error("the request that was cut off got an answer")
	}
	<-finish
}

type brokenDoor struct{ *http.Server }

func (brokenDoor) Serve(l net.Listener) error {
	return errors.Join(l.Close(), errors.New("hinge broken"))
}

// A door that fails ends the others, and its error is told.
func TestBrokenDoor(t *testing.T) {
	good, _ := listen(t, 10)
	bad, _ := listen(t, 10)
	s := server.New(quiet)
	s.Add("http", good, server.HTTP(http.NotFoundHandler(), time.Minute, quiet))
	s.Add("rpc", bad, brokenDoor{server.HTTP(http.NotFoundHandler(), time.Minute, quiet)})
	err := s.Run(t.Context(), time.Second)
	if err == nil || !strings.Contains(err.Error(), "serve rpc") || !strings.Contains(err.Error(), "hinge broken") {
		t.Errorf("run: %v", err)
	}
}

func TestHeaderLimit(t *testing.T) {
	l, _ := listen(t, 10)
	door := server.HTTP(http.NotFoundHandler(), time.Minute, quiet)
	served := make(chan error, 1)
	go func() { served <- door.Serve(l) }()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+l.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Long", strings.Repeat("x", 32<<10))
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("status %d", res.StatusCode)
	}
	if err := door.Close(); err != nil {
		t.Error(err)
	}
	<-served
}
