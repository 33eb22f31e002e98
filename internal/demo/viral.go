package demo

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"net"
	"strings"
	"time"
)

const (
	viralTimes = 20 // as many INCR a second as calls over HTTP, at its height
	viralGrows = 40 * time.Second
	pipeMax    = 1000
)

// viral counts the likes of a post that goes viral, over Redis's protocol.
func (l *Load) viral(ctx context.Context) {
	for ctx.Err() == nil {
		if err := l.pipe(ctx); err != nil && ctx.Err() == nil {
			l.Logger.Debug("the viral post of the demo has lost its connection", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// pipe sends INCRs over one connection until it breaks.
func (l *Load) pipe(ctx context.Context) error {
	c, err := (&net.Dialer{Timeout: callMax}).DialContext(ctx, "tcp", l.RESP)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	defer func() { _ = c.Close() }()
	replies := bufio.NewReader(c)
	one := fmt.Sprintf("*2\r\n$4\r\nINCR\r\n$%d\r\n%s\r\n", len(ViralKey), ViralKey)
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	began, due := time.Now(), 0.0
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			t := now.Sub(began)
			height := 1 / (1 + math.Exp(-6*(t.Seconds()/viralGrows.Seconds()-0.7)))
			due = min(pipeMax, due+l.Rate*viralTimes*height*tide(t)*tickEvery.Seconds())
		}
		n := int(due)
		due -= float64(n)
		if err := c.SetDeadline(time.Now().Add(callMax)); err != nil {
			return err
		}
		if _, err := c.Write([]byte(strings.Repeat(one, n))); err != nil {
			return err
		}
		for range n {
			line, err := replies.ReadSlice('\n')
			if err != nil {
				return err
			}
			if line[0] != ':' {
				return fmt.Errorf("the reply to INCR is %q", line)
			}
		}
	}
}
