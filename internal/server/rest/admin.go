package rest

import (
	"context"
	_ "embed"
	"encoding/json"
	"net/http"
	"time"

	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/store"
)

//go:embed openapi.json
var openapiDocument []byte

const (
	// stallMax is how long the taker of a backup may take nothing.
	stallMax = 30 * time.Second
	// verifyMax is how long a verify may take.
	verifyMax = 30 * time.Minute
)

func healthz(c *call) error {
	c.out = append(c.out, `{"status":"ok"}`+"\n"...)
	c.w.Header()["Cache-Control"] = cacheNever
	return c.reply()
}

// A readiness is what readyz says of a server that takes writes.
type readiness struct {
	Status     string `json:"status"`
	Partitions int    `json:"partitions,omitempty"`
	Down       []int  `json:"down,omitempty"` // of them
}

// readyz answers 200 while a partition takes writes: if every server of a cluster
// were taken out of a balancer because one master is gone, the counters of all
// others would be gone too. The answer says which partitions are down.
func readyz(c *call) error {
	h := c.db.Port().Health(c.ctx)
	if err := h.Ready(); err != nil {
		p := problemOf(err, server.ReadDetail)
		p.status = http.StatusServiceUnavailable
		if server.KindOf(err) == store.KindUnknown { // there is nothing to send again
			p.detail = "the store did not answer in time"
		}
		return p
	}
	status := readiness{Status: "ready"}
	if len(h.Down) > 0 {
		status = readiness{"degraded", h.Partitions, h.Down}
	}
	text, err := json.Marshal(status)
	if err != nil {
		return err
	}
	c.out = append(append(c.out, text...), '\n')
	c.w.Header()["Cache-Control"] = cacheNever
	return c.reply()
}

func metrics(c *call) error {
	c.status = http.StatusOK
	c.h.metrics.Handler().ServeHTTP(c.w, c.r)
	return nil
}

func openapi(c *call) error {
	c.out = append(c.out, openapiDocument...)
	return c.reply()
}

// stream serves a handler that takes as long as its caller wants.
func stream(f http.HandlerFunc) func(*call) error {
	return func(c *call) error {
		if err := c.unhurried(); err != nil {
			return err
		}
		c.status = http.StatusOK
		f(c.w, c.r)
		return nil
	}
}

// unhurried lifts the connection's own deadline for replies from this call.
func (c *call) unhurried() error {
	return http.NewResponseController(c.w).SetWriteDeadline(time.Time{})
}

// alone takes the one place for long work.
func (c *call) alone() error {
	if err := c.unhurried(); err != nil {
		return err
	}
	select {
	case c.h.long <- struct{}{}:
		return nil
	default:
		return ofKind(store.KindUnavailable, "a backup or verify is already running")
	}
}

func (c *call) leave() { <-c.h.long }

func backup(c *call) error {
	if err := c.alone(); err != nil {
		return err
	}
	defer c.leave()
	header := c.w.Header()
	header.Set("Content-Type", "application/x-tar")
	header.Set("Content-Disposition", `attachment; filename="quipu.tar"`)
	header["Cache-Control"] = cacheNever
	w := &taker{c: c, rc: http.NewResponseController(c.w)}
	err := c.db.Backup(c.r.Context(), w)
	if err == nil {
		c.status = http.StatusOK
		return nil
	}
	if c.status == 0 {
		header.Del("Content-Disposition")
		return err
	}
	// The client has not got a whole backup: only a broken connection says so.
	c.h.logger.Error("backup failed", "request_id", c.id, "error", err)
	panic(http.ErrAbortHandler)
}

// A taker writes a backup to a client, and gives up on one that stalls.
type taker struct {
	c  *call
	rc *http.ResponseController
}

// Write writes p to the client.
func (t *taker) Write(p []byte) (int, error) {
	if err := t.rc.SetWriteDeadline(time.Now().Add(stallMax)); err != nil {
		return 0, err
	}
	t.c.status = http.StatusOK
	return t.c.w.Write(p)
}

func verify(c *call) error {
	if err := c.alone(); err != nil {
		return err
	}
	defer c.leave()
	ctx, cancel := context.WithTimeout(c.r.Context(), verifyMax)
	defer cancel()
	audit, err := c.db.Verify(ctx)
	if err != nil {
		return err
	}
	if n := len(audit.Drift); n > 0 {
		c.h.logger.Warn("verify found differences", "request_id", c.id, "differences", n, "first", audit.Drift[0].What)
	}
	c.out = append(appendAudit(c.out[:0], &audit), '\n')
	return c.reply()
}
