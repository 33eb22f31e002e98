package hostile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// dataBytes is how much goes into one frame.
const dataBytes = 16 << 10

// An H2 is a client of gRPC that sends frames one by one: also those that no
// client of good will would. It is not safe for concurrent use, but one
// goroutine may read while another sends.
type H2 struct {
	conn   net.Conn
	framer *http2.Framer
	fields bytes.Buffer
	coder  *hpack.Encoder
	last   uint32
}

// NewH2 greets the server.
func NewH2(c net.Conn) (*H2, error) {
	h := &H2{conn: c, framer: http2.NewFramer(c, c)}
	h.coder = hpack.NewEncoder(&h.fields)
	h.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		return nil, err
	}
	if err := h.framer.WriteSettings(); err != nil {
		return nil, err
	}
	return h, nil
}

// Call sends the headers of a call, and returns its stream. Headers are given in
// pairs of name and value.
func (h *H2) Call(method string, headers ...string) (stream uint32, err error) {
	h.fields.Reset()
	all := append([]string{
		":method", "POST", ":scheme", "http", ":path", method, ":authority", "localhost",
		"content-type", "application/grpc", "te", "trailers",
	}, headers...)
	for i := 0; i+1 < len(all); i += 2 {
		if err := h.coder.WriteField(hpack.HeaderField{Name: all[i], Value: all[i+1]}); err != nil {
			return 0, err
		}
	}
	if h.last == 0 {
		h.last = 1
	} else {
		h.last += 2
	}
	err = h.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: h.last, BlockFragment: h.fields.Bytes(), EndHeaders: true})
	return h.last, err
}

// Message sends the beginning of a message that is said to have size bytes, and
// sends only so many of them. It does not wait until the server wants more.
func (h *H2) Message(stream uint32, size, sent int) error {
	head := binary.BigEndian.AppendUint32([]byte{0}, uint32(size))
	if err := h.framer.WriteData(stream, false, head); err != nil {
		return err
	}
	for piece := make([]byte, dataBytes); sent > 0; sent -= dataBytes {
		if err := h.framer.WriteData(stream, false, piece[:min(sent, dataBytes)]); err != nil {
			return err
		}
	}
	return nil
}

// feed begins n calls, and sends a message of each as fast as the server takes
// it, but never its end. It returns when the server has ended the connection or
// all calls.
func (h *H2) feed(n int, methods, headers []string) error {
	const window = 65_535 // until the server says otherwise
	all := window
	room, left := map[uint32]int{}, map[uint32]int{}
	for i := range n {
		stream, err := h.Call(methods[i%len(methods)], headers...)
		if err == nil {
			err = h.Message(stream, messageBytes, 0)
		}
		if err != nil {
			return err
		}
		room[stream], left[stream] = window-5, messageBytes-1
		all -= 5
	}
	piece := make([]byte, dataBytes)
	push := func(stream uint32) error {
		for {
			n := min(len(piece), room[stream], left[stream], all)
			if n <= 0 {
				return nil
			}
			if err := h.framer.WriteData(stream, false, piece[:n]); err != nil {
				return err
			}
			room[stream], left[stream], all = room[stream]-n, left[stream]-n, all-n
		}
	}
	pushAll := func() error {
		for stream := range left {
			if err := push(stream); err != nil {
				return err
			}
		}
		return nil
	}
	for len(left) > 0 {
		f, err := h.framer.ReadFrame()
		if err != nil {
			return err
		}
		switch f := f.(type) {
		case *http2.WindowUpdateFrame:
			if f.StreamID == 0 {
				all += int(f.Increment)
				err = pushAll()
			} else {
				room[f.StreamID] += int(f.Increment)
				err = push(f.StreamID)
			}
			if err != nil {
				return err
			}
		case *http2.RSTStreamFrame:
			delete(left, f.StreamID)
		case *http2.MetaHeadersFrame:
			if f.StreamEnded() {
				delete(left, f.StreamID)
			}
		default:
			if err := h.answer(f); err != nil {
				return err
			}
		}
	}
	return nil
}

// answer answers a frame that must be answered.
func (h *H2) answer(f http2.Frame) error {
	switch f := f.(type) {
	case *http2.SettingsFrame:
		if !f.IsAck() {
			return h.framer.WriteSettingsAck()
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			return h.framer.WritePing(true, f.Data)
		}
	case *http2.GoAwayFrame:
		return fmt.Errorf("the server goes away: %v", f.ErrCode)
	}
	return nil
}

// Reset takes a call back.
func (h *H2) Reset(stream uint32) error { return h.framer.WriteRSTStream(stream, http2.ErrCodeCancel) }

// End reads until the server has ended a call, and returns its status, such as
// "16 send the metadata ...". It answers what must be answered.
func (h *H2) End(stream uint32) (string, error) {
	for {
		f, err := h.framer.ReadFrame()
		if err != nil {
			return "", err
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			if f.StreamID == stream && f.StreamEnded() {
				return grpcStatus(f), nil
			}
		case *http2.RSTStreamFrame:
			if f.StreamID == stream {
				return "reset: " + f.ErrCode.String(), nil
			}
		default:
			err = h.answer(f)
		}
		if err != nil {
			return "", err
		}
	}
}

func grpcStatus(f *http2.MetaHeadersFrame) string {
	var code, message string
	for _, field := range f.Fields {
		switch field.Name {
		case "grpc-status":
			code = field.Value
		case "grpc-message":
			message = field.Value
		}
	}
	return strings.TrimSpace(code + " " + message)
}

// Drain reads and answers until the connection ends.
func (h *H2) Drain() error {
	for {
		if _, err := h.End(0); err != nil {
			if errors.Is(err, net.ErrClosed) {
				err = nil
			}
			return err
		}
	}
}
