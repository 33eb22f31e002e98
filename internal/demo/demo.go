// Package demo simulates traffic on a server: page views from several
// countries, reactions to posts, a sale in which stock is reserved, an API with
// rate limits, and a post that goes viral.
//
// It uses the server from outside, over HTTP and the Redis protocol. It never
// sends more than it was told to, and sends less if the server is slow.
package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

const (
	// RateMax is the highest rate that a load may have: one process can't do much more
	// besides the server that it loads.
	RateMax = 5000

	workers   = 8
	tickEvery = 50 * time.Millisecond
	callMax   = 5 * time.Second
	replyMax  = 1 << 20
)

// Keys of the counters that are worth a look.
const (
	PageKey  = "views:home"
	PostKey  = "post:42"
	StockKey = "stock:sneakers"
	ViralKey = "viral:cat-video"
	LimitKey = "api:search"
)

// A Load loads one server.
type Load struct {
	URL    string  // of the REST door
	RESP   string  // address of the RESP door; "" for no viral post
	Rate   float64 // calls a second over HTTP
	Seed   uint64
	Logger *slog.Logger

	client http.Client
	rng    *rand.Rand
	sale   sale
}

// Prepare makes the definitions and the policies, and what was counted in the day
// before.
func (l *Load) Prepare(ctx context.Context) error {
	l.client = http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: workers, MaxConnsPerHost: workers}}
	l.rng = rand.New(rand.NewPCG(l.Seed, 1))
	for _, step := range []struct{ path, body string }{
		{"/definitions", definitions},
		{"/policies", policies},
	} {
		if err := l.call(ctx, http.MethodPut, step.path, step.body, "If-Match", "*"); err != nil {
			return fmt.Errorf("prepare the demo: %w", err)
		}
	}
	if err := l.call(ctx, http.MethodPut, "/counters/"+url.PathEscape(StockKey), `{"value":400,"reason":"the sale begins","actor":"shop"}`); err != nil {
		return fmt.Errorf("prepare the demo: %w", err)
	}
	if err := l.past(ctx, time.Now()); err != nil {
		return fmt.Errorf("prepare the demo: %w", err)
	}
	return nil
}

// Run loads the server until ctx ends.
func (l *Load) Run(ctx context.Context) {
	jobs := make(chan job, workers)
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for j := range jobs {
				if err := j(ctx); err != nil && ctx.Err() == nil {
					l.Logger.Debug("a call of the demo failed", "error", err)
				}
			}
		})
	}
	if l.RESP != "" {
		running.Go(func() { l.viral(ctx) })
	}
	l.generate(ctx, jobs)
	close(jobs)
	running.Wait()
	l.client.CloseIdleConnections()
}

// A job is one call, or a few that belong together.
type job func(context.Context) error

// generate makes as many calls as are due. Those that nobody is free for are left out.
func (l *Load) generate(ctx context.Context, jobs chan<- job) {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	began, due := time.Now(), 0.0
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			due += l.Rate * tide(now.Sub(began)) * tickEvery.Seconds()
			for ; due >= 1; due-- {
				select {
				case jobs <- l.next(now.Sub(began)):
				case <-ctx.Done():
					return
				case <-time.After(tickEvery):
					due = 0 // the server has enough to do
				}
			}
		}
	}
}

// errReply is what is wrong with a call that got an answer.
var errReply = errors.New("refused")

// call makes one call. Header are names and values.
func (l *Load) call(ctx context.Context, method, path, body string, header ...string) error {
	_, err := l.ask(ctx, method, path, body, header...)
	return err
}

// ask makes one call, and returns the body of its reply.
func (l *Load) ask(ctx context.Context, method, path, body string, header ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callMax)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, l.URL+"/api/v1"+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := l.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(res.Body, replyMax))
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return raw, fmt.Errorf("%s %s: %w with %s: %s", method, path, errReply, res.Status, bytes.TrimSpace(raw))
	}
	return raw, nil
}

// field returns a text of a JSON object, or "".
func field(raw []byte, name string) string {
	var object map[string]any
	if json.Unmarshal(raw, &object) != nil {
		return ""
	}
	text, _ := object[name].(string)
	return text
}
