package faults

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// A proxy is a way to a store that can be broken.
type proxy struct{ *toxiproxy.Proxy }

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	s := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := &proxy{toxiproxy.NewProxy(s, t.Name(), "127.0.0.1:0", to)}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return p
}

// Where data is held up: on its way to the store, or on its way back.
const (
	there = "upstream"
	back  = "downstream"
)

// spoil makes the way bad, as a toxic of toxiproxy does.
func (p *proxy) spoil(stream, toxic, attributes string) error {
	_, err := p.Toxics.AddToxicJson(strings.NewReader(
		fmt.Sprintf(`{"stream":%q,"type":%q,"attributes":{%s}}`, stream, toxic, attributes)))
	return err
}

// heal makes the way good again.
func (p *proxy) heal(ctx context.Context) error {
	p.Toxics.ResetToxics(ctx)
	p.Lock()
	up := p.Enabled
	p.Unlock()
	if up {
		return nil
	}
	return p.Start()
}

// relay passes connections on to a Unix socket, which toxiproxy can't reach, and
// returns where it takes them. The end of the test closes it.
func relay(t *testing.T, socket string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("unix", socket)
			if err != nil {
				_ = in.Close() // the server is down
				continue
			}
			pass := func(to, from net.Conn) {
				_, _ = io.Copy(to, from) // until one of them ends
				_ = to.Close()
				_ = from.Close()
			}
			go pass(out, in)
			go pass(in, out)
		}
	}()
	return l.Addr().String()
}
