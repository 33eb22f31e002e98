package server

import (
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// The limits of every HTTP connection.
const (
	headerTimeout  = 10 * time.Second // to send the head of a request
	writeTimeout   = time.Minute      // to take a whole reply, after the time of a call
	idleTimeout    = 2 * time.Minute  // between requests
	headerBytesMax = 16 << 10

	// With HTTP/2: requests at a time, and bytes of their bodies that nobody has
	// read yet, over all of them. That is the least net/http can be told.
	streamsMax     = 100
	unreadBytesMax = 64 << 10
)

// CLIAgent is what the User-Agent of the command line begins with.
const CLIAgent = "quipu-cli"

// HTTPRefusal returns what a client over the connection limit reads from a
// plain HTTP listener.
func HTTPRefusal() string {
	const body = `{"type":"urn:quipu:problem:unavailable","title":"Unavailable","status":503,` +
		`"detail":"the server is at its connection limit","kind":"unavailable"}` + "\n"
	return "HTTP/1.1 503 Service Unavailable\r\n" +
		"Content-Type: application/problem+json\r\n" +
		"Retry-After: 1\r\n" +
		"Connection: close\r\n" +
		"Content-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
}

// HTTP returns a door that serves h with limits on everything a client sends
// and takes. A request must have arrived within callTimeout: at the end of a
// call there is nothing left to do with the rest of its body. The door's own
// complaints go to the logger.
func HTTP(h http.Handler, callTimeout time.Duration, logger *slog.Logger) *http.Server {
	s := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       callTimeout,
		WriteTimeout:      callTimeout + writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    headerBytesMax,
		ConnContext:       withPlace,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          streamsMax,
			MaxReceiveBufferPerConnection: unreadBytesMax,
			MaxReceiveBufferPerStream:     unreadBytesMax,
		},
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
	var silent silentConns
	s.ConnState = silent.note
	s.RegisterOnShutdown(silent.close)
	return s
}

// silentConns are the connections on which nothing was sent yet. Shutdown would
// wait five seconds for them to say something.
type silentConns struct {
	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

func (s *silentConns) note(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state != http.StateNew {
		delete(s.conns, c)
		return
	}
	if s.conns == nil {
		s.conns = map[net.Conn]struct{}{}
	}
	s.conns[c] = struct{}{}
}

func (s *silentConns) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.Close()
	}
}
