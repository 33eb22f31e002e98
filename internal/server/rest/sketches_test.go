package rest_test

import (
	"testing"

	"github.com/quipudb/quipu/internal/server/rest"
)

// A zero in the shape of a sketch is refused. It does not stand for the default, as a member
// does that is not there; nor does a number that is too close to 0.
func TestZeroIsNoDefault(t *testing.T) {
	f := open(t, rest.Options{})
	for _, c := range []struct{ body, field string }{
		{`{"kind":"filter","capacity":10,"error":0}`, "error"},
		{`{"kind":"filter","capacity":10,"error":-0}`, "error"},
		{`{"kind":"filter","capacity":10,"error":1e-400}`, "error"},
		{`{"kind":"filter","capacity":10,"error":-0.0e5}`, "error"},
		{`{"kind":"filter","capacity":10,"growth":0}`, "growth"},
		{`{"kind":"frequencies","epsilon":0}`, "epsilon"},
		{`{"kind":"frequencies","confidence":0.0}`, "confidence"},
		{`{"kind":"frequencies","width":0,"depth":0}`, "width"},
		{`{"kind":"frequencies","width":5,"depth":0}`, "depth"},
		{`{"kind":"top","k":0}`, "k"},
	} {
		f.do("PUT", "/api/v1/sketches/s", c.body).problem(t, 400, "invalid", c.field+": want ")
	}
	f.do("PUT", "/api/v1/sketches/s", `{"kind":"filter","capacity":10}`).want(t, 200, "made=true")
}
