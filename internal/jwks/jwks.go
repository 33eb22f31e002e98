// Package jwks provides the keys that verify tokens: a JSON web key set from a
// file or from the issuer's URL.
//
// It reads the set again every few minutes, when its file changes, and when a
// token names an unknown key, because an issuer that rotates its keys signs
// with a new one at once. The last is limited to twice a minute, so that
// made-up tokens can't make a server flood the issuer. If the issuer can't be
// reached, the known set stays in effect for a day.
package jwks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quipudb/quipu/internal/jwt"
)

const (
	refreshEvery = 5 * time.Minute
	lookEvery    = 2 * time.Second  // at a file
	askAgain     = 30 * time.Second // for a key that is not there, or after a failure
	fetchTimeout = 10 * time.Second
	staleMax     = 24 * time.Hour
)

// A Source is a key set that is kept up to date. It is safe for concurrent use.
type Source struct {
	from   string
	isURL  bool
	logger *slog.Logger
	client *http.Client
	stop   context.CancelFunc
	done   sync.WaitGroup
	wake   chan struct{}

	set      atomic.Pointer[jwt.Set] // nil before it was read for the first time
	readAt   atomic.Int64            // Unix nanoseconds
	askedAt  atomic.Int64            // the same, of the last attempt
	failures atomic.Uint64
	reads    atomic.Uint64
}

// New returns a source, which has read its set if that could be done now: a file that can't be
// read is an error, and an issuer that can't be reached is asked again later. Without TLS only
// this machine may be asked.
func New(ctx context.Context, from string, logger *slog.Logger) (*Source, error) {
	s, err := newSource(from, logger)
	if err != nil {
		return nil, err
	}
	if err := s.refresh(ctx); err != nil && !s.isURL {
		return nil, err
	} else if err != nil {
		logger.Warn("can't read the keys that verify tokens: the server refuses tokens until it can", "from", s.from, "error", err)
	}
	ctx, s.stop = context.WithCancel(context.Background())
	s.done.Go(func() { s.run(ctx) })
	return s, nil
}

// Check returns why nothing can be read from a source, as far as its name tells.
func Check(from string) error {
	_, err := newSource(from, slog.Default())
	return err
}

func newSource(from string, logger *slog.Logger) (*Source, error) {
	s := &Source{from: from, logger: logger, wake: make(chan struct{}, 1), stop: func() {}}
	if !strings.Contains(from, "://") {
		return s, nil
	}
	s.isURL = true
	u, err := url.Parse(from)
	if err != nil || u.Host == "" {
		return nil, errors.New("want the name of a file, or an https URL")
	}
	if err := checkURL(u); err != nil {
		return nil, err
	}
	s.client = &http.Client{
		Timeout: fetchTimeout,
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) > 3 {
				return errors.New("too many redirects")
			}
			return checkURL(r.URL)
		},
	}
	return s, nil
}

// checkURL refuses what anyone on the way could change.
func checkURL(u *url.URL) error {
	if u.Scheme == "https" {
		return nil
	}
	if u.Scheme == "http" {
		if ip, err := netip.ParseAddr(u.Hostname()); u.Hostname() == "localhost" || err == nil && ip.IsLoopback() {
			return nil
		}
	}
	return errors.New("want an https URL: without TLS anyone on the way could replace the keys")
}

// Close ends the refreshing.
func (s *Source) Close() {
	s.stop()
	s.done.Wait()
}

// Refresh has the set read again soon.
func (s *Source) Refresh() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Generation is another number whenever the set was read.
func (s *Source) Generation() uint64 { return s.reads.Load() }

// Verify returns the claims of a token. If the set does not have its key, it is read again
// first, unless that was just done.
func (s *Source) Verify(ctx context.Context, token string, c jwt.Check) (*jwt.Claims, error) {
	set := s.set.Load()
	if set == nil || time.Since(time.Unix(0, s.readAt.Load())) > staleMax {
		return nil, errors.New("the keys of tokens can't be read")
	}
	claims, err := set.Verify(token, c)
	if !errors.Is(err, jwt.ErrUnknownKey) {
		return claims, err
	}
	last := s.askedAt.Load()
	if time.Since(time.Unix(0, last)) < askAgain || !s.askedAt.CompareAndSwap(last, time.Now().UnixNano()) {
		return nil, err
	}
	if e := s.refresh(ctx); e != nil {
		return nil, errors.Join(err, e)
	}
	return s.set.Load().Verify(token, c)
}

func (s *Source) run(ctx context.Context) {
	every := refreshEvery
	if !s.isURL {
		every = lookEvery
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	was := s.stamp()
	failing := s.set.Load() == nil
	for {
		asked := false
		wait := (<-chan time.Time)(nil)
		if failing && s.isURL {
			wait = time.After(askAgain)
		}
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
			asked = true
		case <-wait:
		case <-ticker.C:
		}
		if now := s.stamp(); !s.isURL && !asked {
			if now == was {
				continue
			}
			was = now
		}
		err := s.refresh(ctx)
		if err != nil && ctx.Err() == nil && !failing {
			s.logger.Warn("can't read the keys that verify tokens: those read last stay in effect", "from", s.from, "error", err)
		}
		failing = err != nil
	}
}

// stamp tells a file from what it was before.
func (s *Source) stamp() (stamp struct{ at, size int64 }) {
	if info, err := os.Stat(s.from); !s.isURL && err == nil {
		stamp.at, stamp.size = info.ModTime().UnixNano(), info.Size()
	}
	return stamp
}

// refresh reads the set.
func (s *Source) refresh(ctx context.Context) error {
	s.askedAt.Store(time.Now().UnixNano())
	set, err := s.read(ctx)
	if err != nil {
		s.failures.Add(1)
		return err
	}
	s.set.Store(set)
	s.readAt.Store(time.Now().UnixNano())
	s.reads.Add(1)
	return nil
}

func (s *Source) read(ctx context.Context) (*jwt.Set, error) {
	if !s.isURL {
		f, err := os.Open(s.from)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }()
		return parse(f)
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.from, nil)
	if err != nil {
		return nil, err
	}
	res, err := s.client.Do(req)
	if err != nil {
		if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
			return nil, errors.New("the issuer did not answer in time")
		}
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the issuer answered %s", res.Status)
	}
	return parse(res.Body)
}

func parse(r io.Reader) (*jwt.Set, error) {
	raw, err := io.ReadAll(io.LimitReader(r, jwt.SetBytesMax+1))
	if err != nil {
		return nil, err
	}
	return jwt.ParseSet(raw)
}

// Meters calls f for each meter. Those of no source are 0.
func (s *Source) Meters(f func(name, help string, value float64)) {
	n, age := 0, 0.0
	if s == nil {
		s = &Source{}
	}
	if set := s.set.Load(); set != nil {
		n, age = set.Len(), time.Since(time.Unix(0, s.readAt.Load())).Seconds()
	}
	f("quipu_jwks_keys", "Keys that tokens are verified with.", float64(n))
	f("quipu_jwks_age_seconds", "Time since they were read.", age)
	f("quipu_jwks_reads_total", "Times that they were read.", float64(s.reads.Load()))
	f("quipu_jwks_failures_total", "Attempts to read them that failed.", float64(s.failures.Load()))
}
