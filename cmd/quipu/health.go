package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

type healthCmd struct {
	Addr    address       `help:"Address of the server: HOST:PORT or a URL. The default is the address of --http on this machine." placeholder:"ADDR"`
	HTTP    string        `name:"http" help:"The --http of the server." default:"127.0.0.1:8080"`
	TLSCert string        `name:"tls-cert" help:"The --tls-cert of the server, if it has one. The command then uses TLS." placeholder:"FILE"`
	Timeout time.Duration `help:"How long to wait for the answer." default:"3s"`
}

// Help is shown by --help.
func (*healthCmd) Help() string {
	return `The command prints "ready" or "degraded" and exits with code 0 if the server can serve. Otherwise it exits with code 3. A
degraded server serves, but some counters can't be reached.

The command reads the environment variables of the server, QUIPU_HTTP and QUIPU_TLS_CERT, so a health check inside the
server's container needs no flags. It sends no API key. Without --addr it does not verify the certificate, because the
certificate names another host.

Examples:

  quipu health
  quipu health --http 0.0.0.0:9000
  quipu health --addr https://counters.example`
}

// Validate is called after the flags are parsed.
func (c *healthCmd) Validate() error {
	if c.Timeout <= 0 {
		return &flagError{"timeout", errors.New("want more than 0s")}
	}
	if c.Addr == "" && c.HTTP == doorOff {
		return &flagError{"http", errors.New("the server serves no REST API: start it with --http, or check another server with --addr")}
	}
	if c.Addr != "" {
		return nil
	}
	if _, _, err := net.SplitHostPort(c.HTTP); err != nil {
		return &flagError{"http", fmt.Errorf("%q: want HOST:PORT", c.HTTP)}
	}
	return nil
}

// target returns the URL of the server.
func (c *healthCmd) target() address {
	if c.Addr != "" {
		return c.Addr
	}
	host, port, _ := net.SplitHostPort(c.HTTP) // Validate did
	switch host {
	case "", "0.0.0.0":
		host = "127.0.0.1"
	case "::":
		host = "::1"
	}
	scheme := "http"
	if c.TLSCert != "" {
		scheme = "https"
	}
	return address(scheme + "://" + net.JoinHostPort(host, port))
}

// Run asks whether the server is ready.
func (c *healthCmd) Run(ctx context.Context, out *output) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	r := remote{Addr: c.target()}
	req, err := r.request(ctx, request{method: http.MethodGet, path: "/readyz"})
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: c.Addr == "", MinVersion: tls.VersionTLS12},
		DisableKeepAlives: true,
	}}
	res, err := client.Do(req)
	if err != nil {
		return r.unreached(err, exitUnavailable)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return refusal(res, exitUnavailable)
	}
	var said struct{ Status string }
	if err := json.NewDecoder(io.LimitReader(res.Body, 1<<20)).Decode(&said); err != nil || said.Status == "" {
		return &exitError{exitUnavailable, fmt.Errorf("%s does not answer like a Quipu server", r.Addr)}
	}
	return out.print("%s", strings.ToValidUTF8(said.Status, "?"))
}
