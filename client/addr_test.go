package client_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/client"
	"github.com/quipudb/quipu/store/memstore"
	"github.com/quipudb/quipu/store/storetest"
)

// A client of several servers goes on with another when the one that it uses is
// gone, and what it sends again counts once.
func TestSeveralServers(t *testing.T) {
	h := new(storetest.Hooks)
	h.On(storetest.OnClose, storetest.Ignore) // It outlives the DBs over it.
	s := storetest.Wrap(memstore.New(memstore.Options{Shared: true}), h)
	var servers []*testServer
	var addrs []string
	for range 3 {
		servers = append(servers, serve(t, quipu.New(s, quipu.Options{})))
		addrs = append(addrs, servers[len(servers)-1].addr)
	}
	db, err := client.Dial(t.Context(), strings.Join(addrs, ","), client.Options{Tokens: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	added := int64(0)
	for i := range servers {
		for range 10 {
			if _, err := db.Add(t.Context(), "a", 1); err != nil {
				t.Fatal(err)
			}
			added++
		}
		if i < len(servers)-1 {
			if err := servers[i].door.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if c, err := db.Read(t.Context(), "a", quipu.Exact()); err != nil || c.Value != added {
		t.Errorf("%+v, %v, want %d", c, err, added)
	}
}

// What is no address is refused at once.
func TestAddresses(t *testing.T) {
	for _, addr := range []string{"http://127.0.0.1:8080", "127.0.0.1:50051,127.0.0.1", "127.0.0.1:50051,http://a:1"} {
		if _, err := client.Dial(t.Context(), addr, client.Options{}); !errors.Is(err, quipu.ErrInvalid) {
			t.Errorf("%s: %v", addr, err)
		}
	}
}
