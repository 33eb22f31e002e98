package main

import (
	"context"
	"net/http"
	"time"
)

type serversCmd struct {
	remote `embed:""`
}

// Help is shown by --help.
func (*serversCmd) Help() string {
	return `It prints all servers of the store that the server at --addr uses, as each said last. Servers say how they fare every 5 s,
through the store, so this needs the address of one alone. A server that has stopped speaking is "silent", and is forgotten after 5 minutes.

  WRITES, READS, ERRORS   per second, those of the last seconds
  LAG                     how long writes take to be durable
  P99                     how long the slowest call in a hundred took, of the slowest door
  SPOKE                   how long ago; "now" is the server that was asked
  STORE                   how the server sees the store: ready, degraded or unavailable

A read-only server writes nothing to the store, so only the list that it prints itself has it.

Examples:

  quipu servers
  quipu servers --addr https://counters.example --json | jq '.servers[] | select(.silent)'`
}

// A serverReply is a server, as the REST API writes it.
type serverReply struct {
	Host, Version, Status string
	Started               time.Time `json:"started_at"`
	Writes                float64   `json:"writes_per_second"`
	Reads                 float64   `json:"reads_per_second"`
	Errors                float64   `json:"errors_per_second"`
	LagMS                 *float64  `json:"lag_ms"`
	Memory                int64     `json:"memory_bytes"`
	Doors                 []struct {
		Name, Address string
		P99           *float64 `json:"p99_ms"`
	}
	Self, Silent bool
	AgeMS        int64 `json:"age_ms"`
}

// Run prints the servers.
func (c *serversCmd) Run(ctx context.Context, out *output) error {
	var list struct {
		Servers  []serverReply
		Complete bool
		Detail   string
	}
	raw, err := c.call(ctx, request{method: http.MethodGet, path: "/api/v1/servers"}, &list)
	if err != nil {
		return err
	}
	if !list.Complete {
		out.hint(printable(list.Detail))
	}
	if c.JSON {
		return out.print("%s", raw)
	}
	const texts = 6 // from this column on
	rows := [][]string{{"WRITES", "READS", "ERRORS", "LAG", "P99", "MEMORY", "SPOKE", "STORE", "VERSION", "HOST", "ADDRESS"}}
	for i := range list.Servers {
		rows = append(rows, list.Servers[i].row())
	}
	return out.printLines(align(rows, func(column int) bool { return column < texts }))
}

// row returns what is shown of a server.
func (s *serverReply) row() []string {
	var slowest *float64
	address := "-"
	for i, d := range s.Doors {
		if i == 0 {
			address = d.Address
		}
		if d.P99 != nil && (slowest == nil || *d.P99 > *slowest) {
			slowest = d.P99
		}
	}
	spoke := milliseconds(s.AgeMS).Round(time.Second).String() + " ago"
	switch {
	case s.Self:
		spoke = "now"
	case s.Silent:
		spoke = "silent, " + spoke
	}
	return []string{
		formatRate(s.Writes), formatRate(s.Reads), formatRate(s.Errors), formatMS(s.LagMS), formatMS(slowest), formatSize(s.Memory),
		spoke, printable(s.Status), printable(s.Version), shorten(printable(s.Host), hotKeyMax), shorten(printable(address), hotKeyMax),
	}
}
