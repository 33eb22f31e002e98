package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"syscall"
	"time"

	"github.com/quipudb/quipu/internal/hostile"
	"github.com/quipudb/quipu/internal/load"
)

const floodAbout = "How long a well-behaved tenant waits while another one floods the server far beyond its quota. The tenant increments a counter of its own 500 times a second, on 4 connections, at fixed times: " +
	"its latency counts from when a request was due. The other tenant has a quota of 1,000 requests a second, and sends as fast as it is answered on 64 connections, over RESP 64 commands at a time. " +
	"Both use the same door of an embedded store. The flood comes from a process of the lowest priority, as in `hostile`, and `" + busyName + "` has programs of that priority that only compute: " +
	"what is waited there is the machine's part. `alone` has neither."

// The rows of the figure flood.
const (
	floodAlone = "alone"
	flooded    = "flood"
)

const (
	floodQuota       = 1000 // requests a second
	floodConnections = 64
	floodDepth       = 64 // over RESP
	tenantRate       = 500

	answered = "replies to the flood, a second"
	served   = "of them not refused"
)

// A deluge is the task of a child that floods a server.
type deluge struct {
	Target, Key string
	Depth       int
	Lasting     time.Duration
}

// flood floods a server from a process of the lowest priority.
func flood(d deluge) (*load.Report, error) {
	const lowest = 19
	if err := errors.Join(syscall.Setpgid(0, 0), syscall.Setpriority(syscall.PRIO_PGRP, 0, lowest)); err != nil {
		return nil, err
	}
	return load.Run(context.Background(), load.Config{
		Target: d.Target, APIKey: d.Key, Op: load.Incr, Dist: load.Hot, Key: "bad", Connections: floodConnections, Depth: d.Depth, Duration: d.Lasting,
	}, nil)
}

// floods measures what the flood of a tenant costs another.
func floods(s *session) (err error) {
	const admin = "flood-figure"
	server, err := s.serveQuipu(filepath.Join(s.dir, "quipu-data"), "--http", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--rpc", "off", "--api-key", admin, "--log-level", "error")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	f := &flooding{session: s, server: server}
	if f.good, err = server.newKey(s.ctx, admin, "good", 0); err != nil {
		return err
	}
	if f.bad, err = server.newKey(s.ctx, admin, "bad", floodQuota); err != nil {
		return err
	}
	doors := []string{overRESP, byREST}
	var sides []func() error
	for _, door := range doors {
		for _, row := range []string{floodAlone, busyName, flooded} {
			sides = append(sides, func() error { return f.measure(door, row) })
		}
	}
	if err := s.alternate(sides...); err != nil {
		return err
	}
	for _, door := range doors {
		s.over(door+", "+flooded, door+", "+floodAlone, p99MS)
		s.atMost("p99 over "+door+" in a flood, over that beside "+busyName+" programs", s.over(door+", "+flooded, door+", "+busyName, p99MS), 2)
	}
	return nil
}

// A flooding is a server with two tenants.
type flooding struct {
	*session
	server    *quipuServer
	good, bad string // their keys
}

// measure measures the tenant's wait over a door.
func (f *flooding) measure(door, row string) error {
	d := pick(f.session, 5*time.Second, time.Second)
	target, depth := "redis://"+f.server.doors["resp"], floodDepth
	if door == byREST {
		target, depth = "http://"+f.server.doors["http"], 1
	}
	beside := make(chan error, 1)
	var came *load.Report
	go func() {
		var err error
		switch row {
		case busyName:
			_, err = runChild[struct{}](f.ctx, "attack", assault{busyName, hostile.Target{}, d + d/5}, ended)
		case flooded:
			came, err = runChild[*load.Report](f.ctx, "flood", deluge{target, f.bad, depth, d + d/5}, ended)
		}
		beside <- err
	}()
	err := wait(f.ctx, d/10) // until it floods
	var report *load.Report
	if err == nil {
		report, err = load.Run(f.ctx, load.Config{
			Target: target, APIKey: f.good, Op: load.Incr, Dist: load.Hot, Key: "good", Connections: 4, Depth: 1, Duration: d, Rate: tenantRate,
		}, nil)
	}
	if err := errors.Join(err, <-beside); err != nil {
		return fmt.Errorf("%s, %s: %w", door, row, err)
	}
	if report.Errors > 0 {
		return fmt.Errorf("%s, %s: the tenant had %d errors, the first: %s", door, row, report.Errors, report.FirstError)
	}
	side := door + ", " + row
	f.record(side, medianMS, float64(report.Latency.P50)/1e6)
	f.record(side, p99MS, float64(report.Latency.P99)/1e6)
	if came != nil {
		f.record(side, answered, came.Rate)
		f.record(side, served, float64(came.Operations-came.Errors)/came.Seconds)
	}
	return nil
}

// newKey makes a key for counters that begin with its name, with a quota of requests.
func (s *quipuServer) newKey(ctx context.Context, admin, name string, requests int64) (key string, err error) {
	body, err := json.Marshal(map[string]any{
		"name": name, "grants": []string{"read+write+decide:default/" + name + "*"}, "quota": map[string]int64{"requests": requests},
	})
	if err != nil {
		return "", err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.doors["http"]+"/api/v1/keys", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Authorization", "Bearer "+admin)
	r.Header.Set("Content-Type", "application/json")
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, reply.Body.Close()) }()
	raw, err := io.ReadAll(reply.Body)
	if err != nil {
		return "", err
	}
	var made struct{ Key string }
	if err := json.Unmarshal(raw, &made); err != nil || made.Key == "" {
		return "", fmt.Errorf("make a key: %s: %s", reply.Status, raw)
	}
	return made.Key, nil
}
