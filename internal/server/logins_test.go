package server_test

import (
	"fmt"
	"testing"

	"github.com/quipudb/quipu/internal/access"
	"github.com/quipudb/quipu/internal/server"
)

// A principal with many logins ends its own, the oldest first, and nobody else's. There are so
// many in all.
func TestLoginsOfEach(t *testing.T) {
	g := gateOf(t, server.GateOptions{}, "secret")
	other, _ := g.Login(access.Everything(access.StoredKey, "other"))
	flooder := func() *access.Principal { // made anew each time, as that of a token is
		return &access.Principal{Kind: access.Token, Name: "token:eve"}
	}
	in := func(name string) bool { who, _ := g.LoggedIn(name); return who != nil }
	var names []string
	for range 10_050 {
		name, _ := g.Login(flooder())
		names = append(names, name)
	}
	if !in(other) {
		t.Error("another principal was logged out")
	}
	for i, name := range names {
		if want := i >= len(names)-100; in(name) != want {
			t.Fatalf("login %d of %d: %v", i, len(names), !want)
		}
	}
	g.Logout(names[len(names)-1])
	g.Logout(names[len(names)-1])
	if _, _ = g.Login(flooder()); !in(names[len(names)-100]) {
		t.Error("the place of a login that ended was not free")
	}

	gone := flooder()
	name, _ := g.Login(gone)
	gone.End()
	for range 2 { // Whoever finds it removes it.
		if in(name) {
			t.Error("a principal that has ended is logged in")
		}
	}

	first, _ := g.Login(access.Everything(access.StoredKey, "first"))
	for i := range 10_000 {
		_, _ = g.Login(access.Everything(access.StoredKey, fmt.Sprint(i)))
	}
	if in(first) || in(other) {
		t.Error("there is no limit of all")
	}
}
