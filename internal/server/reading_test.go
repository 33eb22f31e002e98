package server_test

import (
	"math"
	"net/http"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/quipudb/quipu/internal/server"
)

// A reading has what each door has done, and leaves out what is not for callers.
func TestReading(t *testing.T) {
	m := server.NewMetrics(twoMeters{})
	m.WatchMemory([]server.MemoryPart{{Name: "store", Bytes: 5}})
	read := func() *server.Reading {
		t.Helper()
		r, err := m.Reading()
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	before := read()
	a := m.Route("GET", "/api/v1/counters/{key}")
	for range 98 {
		a.Observe(http.StatusOK, 700*time.Microsecond)
	}
	m.Route("POST", "/api/v1/namespaces/{ns}/batch").Observe(http.StatusServiceUnavailable, 3*time.Second)
	a.Observe(http.StatusNotFound, 700*time.Microsecond)
	for _, route := range []string{"/api/v1/live", "/api/v1/namespaces/{ns}/live", "/api/v1/backup", "/api/v1/overview", "/", "/metrics", "other"} {
		m.Route("GET", route).Observe(http.StatusOK, time.Hour)
	}
	m.Call("Add").Observe(codes.Unavailable, time.Second)
	m.Call("Add").Observe(codes.InvalidArgument, time.Second)
	m.Commands().Observe(time.Hour, 3)
	now := read()
	if now.Values["quipu_things_total"] != 7 || now.Values["quipu_room_bytes"] != 1.5 || now.Limits["store"] != 5 {
		t.Errorf("values %v, limits %v", now.Values, now.Limits)
	}
	lately := func(door string) server.DoorReading { return now.Doors[door].Since(before.Doors[door]) }
	if d := lately("http"); d.Calls != 100 || d.Errors != 1 {
		t.Errorf("http: %+v", d)
	}
	if d := lately("rpc"); d.Calls != 2 || d.Errors != 1 {
		t.Errorf("rpc: %+v", d)
	}
	f := func(door string, q float64, want time.Duration) {
		t.Helper()
		d := lately(door)
		if got, ok := d.Quantile(q); !ok || math.Abs(float64(got-want)) > float64(want)/50 {
			t.Errorf("%s: quantile %v is %v, want %v", door, q, got, want)
		}
	}
	f("http", 0.5, 752525*time.Nanosecond) // between 0.5 and 1 ms, of 99 calls
	f("http", 0.995, 3750*time.Millisecond)
	f("resp", 0.99, 10*time.Second) // more than the last bucket has no place in it
	none := server.DoorReading{}
	if _, ok := none.Quantile(0.5); ok {
		t.Error("no calls have a quantile")
	}
}
