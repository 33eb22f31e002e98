package hostile

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"
)

// beat is how often a Witness sends a command.
const beat = 5 * time.Millisecond

// Latencies are what a well-behaved client has waited for its replies, sorted.
type Latencies []time.Duration

// Quantile returns what a part of the replies took at most, or 0 if there were
// none.
func (l Latencies) Quantile(part float64) time.Duration {
	if len(l) == 0 {
		return 0
	}
	return l[min(int(part*float64(len(l))), len(l)-1)]
}

// Witness counts on one RESP connection, a command at a time, until ctx ends, and
// returns how long each reply took. A reply that is not what a lone client is due,
// or none, is an error. It logs in before it says, by closing ready, that it counts.
func Witness(ctx context.Context, t Target, counter string, ready chan<- struct{}) (Latencies, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", t.RESP)
	if err != nil {
		return nil, fmt.Errorf("witness: %w", err)
	}
	defer func() { _ = c.Close() }()
	r := bufio.NewReader(c)
	ask := func(command string) (string, error) {
		if _, err := io.WriteString(c, command); err != nil {
			return "", fmt.Errorf("witness: %w", err)
		}
		line, err := r.ReadString('\n')
		if err != nil {
			return "", fmt.Errorf("witness: %w", err)
		}
		return strings.TrimSpace(line), nil
	}
	if t.Key != "" {
		if reply, err := ask(Command("AUTH", t.Key)); err != nil || reply != "+OK" {
			return nil, fmt.Errorf("witness: log in: %q, %w", reply, err)
		}
	}
	close(ready)
	var all Latencies
	for n := 1; ctx.Err() == nil; n++ {
		began := time.Now()
		reply, err := ask(Command("INCR", counter))
		if err == nil && reply != fmt.Sprintf(":%d", n) {
			err = fmt.Errorf("witness: reply %d is %q", n, reply)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, time.Since(began))
		pause(ctx, beat)
	}
	slices.Sort(all)
	return all, nil
}

// Besiege runs an attack for some time, beside a Witness that has begun before it,
// and returns what the witness waited.
func Besiege(ctx context.Context, a Attack, t Target, lasting time.Duration) (Latencies, error) {
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	type seen struct {
		waited Latencies
		err    error
	}
	witnessed, ready := make(chan seen, 1), make(chan struct{})
	go func() {
		waited, err := Witness(watching, t, "hostile:witness:"+a.Name, ready)
		witnessed <- seen{waited, err}
	}()
	select {
	case <-ready:
	case s := <-witnessed:
		return nil, s.err
	}
	attacking, stopAttack := context.WithTimeout(ctx, lasting)
	defer stopAttack()
	if err := a.Run(attacking, t); err != nil {
		return nil, fmt.Errorf("%s: %w", a.Name, err)
	}
	stopWatching()
	s := <-witnessed
	if s.err != nil {
		return nil, fmt.Errorf("%s: %w", a.Name, s.err)
	}
	return s.waited, nil
}
