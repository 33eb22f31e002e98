package rest

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/quipudb/quipu/internal/access"
	"github.com/quipudb/quipu/internal/server"
)

// An identity is who makes a call, as it is told.
type identity struct {
	Name      string     `json:"name"`
	Kind      string     `json:"kind"`
	Grants    []string   `json:"grants"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"` // of the login, or of what was shown
	Open      bool       `json:"open"`                 // everyone may do everything here
	CSRF      string     `json:"csrf,omitempty"`       // what a change with the login must show
}

func (c *call) identityOf(p *access.Principal, until time.Time) identity {
	i := identity{Name: p.Name, Kind: p.Kind.String(), Grants: access.RuleTexts(p.Rules), ExpiresAt: given(until), Open: c.h.gate.Open()}
	if until.IsZero() {
		i.ExpiresAt = atMS(p.UntilMS)
	}
	return i
}

// whoAmI replies who the caller is.
func whoAmI(c *call) error {
	i := c.identityOf(c.who, time.Time{})
	if c.viaCookie {
		var until time.Time
		_, until = c.h.gate.LoggedIn(c.login())
		i.ExpiresAt, i.CSRF = given(until), csrfOf(c.login())
	}
	return c.secretJSON(i)
}

// logIn takes a key or a token, and gives the browser a cookie in its place.
func logIn(c *call) error {
	var body struct {
		Key string `json:"key"`
	}
	if err := c.decodeJSON(&body); err != nil {
		return err
	}
	g := c.h.gate
	if g.Open() {
		return c.secretJSON(c.identityOf(g.Anyone(), time.Time{}))
	}
	who, err := g.Enter(c.r.Context(), c.caller(), body.Key)
	if many, ok := errors.AsType[*server.TooManyError](err); ok {
		return tooMany(many.Error(), many.After)
	}
	if err != nil {
		return &problem{status: http.StatusUnauthorized, kind: "unauthorized", title: "Login failed", detail: err.Error()}
	}
	place := server.PlaceFrom(c.r.Context())
	place.Known()
	if server.HolderOf(c.who) != server.HolderOf(who) { // It has paid for this call otherwise.
		if err := c.charge(who, access.Cost{Requests: 1, Connections: once(place.Used(who))}); err != nil {
			return err
		}
	}
	if name := c.login(); name != "" {
		g.Logout(name)
	}
	name, until := g.Login(who)
	c.setLogin(name, int(time.Until(until)/time.Second))
	i := c.identityOf(who, until)
	i.CSRF = csrfOf(name)
	return c.secretJSON(i)
}

// logOut ends the login of a browser, if it has one.
func logOut(c *call) error {
	if name := c.login(); name != "" {
		c.h.gate.Logout(name)
	}
	c.setLogin("", -1)
	return c.secretJSON(struct{}{})
}

// setLogin sets the cookie. No script can read it, and no other site has it sent. A browser
// that called by https, perhaps a proxy before this server, sends it encrypted only.
func (c *call) setLogin(value string, seconds int) {
	http.SetCookie(c.w, &http.Cookie{
		Name: c.loginCookie(), Value: value, Path: "/", MaxAge: seconds, HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: c.r.TLS != nil || strings.HasPrefix(c.r.Header.Get("Origin"), "https://"),
	})
}
