package rest

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/quipudb/quipu/internal/access"
	"github.com/quipudb/quipu/internal/server"
)

// loginCookie is what the name of the cookie begins with in which a browser has its login, and
// csrfHeader the header that a change with that cookie must have.
const (
	loginCookie = "quipu_session"
	csrfHeader  = "X-Csrf-Token"
)

// operation returns the name that a route has in the table of package access: of those below
// a namespace there is one for both forms.
func (r *route) operation() string {
	path := r.path
	if r.page {
		return r.method + " page"
	}
	if rest, ok := strings.CutPrefix(path, namespacePath+"/"); ok {
		return r.method + " " + rest
	}
	if r.ofNamespace {
		path = strings.TrimPrefix(path, apiPath+"/")
	}
	return r.method + " " + path
}

// identify finds out who calls: by the Authorization header, the login of a browser, the
// certificate of the connection, or as one who shows nothing. A caller who is known makes its
// connection known too, also on an open route.
func (c *call) identify() error {
	g, place := c.h.gate, server.PlaceFrom(c.r.Context())
	who, err := c.find()
	if who != nil {
		place.Known()
		c.who = who
		return c.pay(access.Cost{Requests: 1, Writes: c.writes(), Connections: once(place.Used(who))})
	}
	if !place.Call() {
		c.w.Header().Set("Connection", "close")
	}
	if c.need.Open() {
		c.who = g.Anyone()
		return nil
	}
	if many, ok := errors.AsType[*server.TooManyError](err); ok {
		return tooMany(many.Error(), many.After)
	}
	return c.unauthorized()
}

func once(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

// writes returns how many writes the call is, as far as its route tells.
func (c *call) writes() int64 { return once(c.need.Changes()) }

// find returns who calls, or nil. An error is of a credential that is wrong.
func (c *call) find() (*access.Principal, error) {
	g := c.h.gate
	if g.Open() {
		return g.Anyone(), nil
	}
	if header := c.r.Header.Get("Authorization"); header != "" {
		return g.Enter(c.r.Context(), c.caller(), server.Bearer(header))
	}
	if c.login() != "" {
		if who, _ := g.LoggedIn(c.login()); who != nil {
			c.viaCookie = true
			return who, nil
		}
	}
	if who := g.Certificate(c.r.TLS); who != nil {
		return who, nil
	}
	return g.Anyone(), nil
}

// login returns the login that a browser sends, or "".
func (c *call) login() string {
	if len(c.r.Header["Cookie"]) == 0 { // Fast path.
		return ""
	}
	cookie, err := c.r.Cookie(c.loginCookie())
	if err != nil {
		return ""
	}
	return cookie.Value
}

// loginCookie returns the name of the cookie. It ends in the port that the browser has called:
// browsers send one cookie to all ports of a machine, and two servers on one machine must not
// log each other's users out.
func (c *call) loginCookie() string {
	_, port, err := net.SplitHostPort(c.r.Host)
	if n, e := strconv.ParseUint(port, 10, 16); err != nil || e != nil || n == 0 {
		return loginCookie
	}
	return loginCookie + "_" + port
}

// csrfOf returns what a page sends in csrfHeader. It is made of the login, which no script can
// read, so a page has it from this server alone.
func csrfOf(login string) string {
	sum := sha256.Sum256([]byte("csrf\x00" + login))
	return hex.EncodeToString(sum[:16])
}

func (c *call) caller() server.Caller { return server.Caller{Door: "rest", Addr: c.r.RemoteAddr} }

// unauthorized is the answer to who has to be known and is not.
func (c *call) unauthorized() error {
	c.w.Header().Set("WWW-Authenticate", `Bearer realm="quipu"`)
	return &problem{
		status: http.StatusUnauthorized, kind: "unauthorized", title: "API key needed",
		detail: "send Authorization: Bearer with an API key or a token that this server accepts",
	}
}

// tooMany is the answer to who has to wait.
func tooMany(detail string, after time.Duration) *problem {
	return &problem{
		status: http.StatusTooManyRequests, kind: "quota", title: "Too many requests", detail: detail,
		retryAfter: max(int64((after+time.Second-1)/time.Second), 1),
	}
}

// pay takes the cost of a call from its caller's quota.
func (c *call) pay(cost access.Cost) error { return c.charge(c.who, cost) }

// charge takes a cost from the quota of someone, or of nobody.
func (c *call) charge(who *access.Principal, cost access.Cost) error {
	if who == nil || who.Spent == nil { // Fast path.
		return nil
	}
	err := c.h.gate.Spend(who, cost)
	if e, ok := errors.AsType[*access.ExceededError](err); ok {
		c.rest(time.Duration(e.RestUS) * time.Microsecond)
		return tooMany(e.Error(), time.Duration(max(e.RetryMS, 1000))*time.Millisecond)
	}
	return err
}

// rest lets the connection wait for its refusal, whose caller sends much more than its quota:
// until it has that, it sends no other call. So a flood costs as little as it may, and
// others do not wait for it.
func (c *call) rest(d time.Duration) {
	if d <= 0 { // Fast path.
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.r.Context().Done():
	case <-c.ctx.Done():
	}
}

// permit refuses a call that its caller is not granted. Of keys in the body only the handler
// knows: see permitKeys.
func (c *call) permit() error {
	if c.who == nil || c.keysInBody {
		return nil
	}
	v := c.who.In(c.namespace())
	if v.Freely(c.need) { // Fast path.
		return nil
	}
	names, err := c.names()
	if err != nil {
		return err
	}
	return c.permitted(&v, names)
}

// permitKeys is permit for a call whose keys are in its body.
func (c *call) permitKeys(n int, key func(i int) string) error {
	if c.who == nil {
		return nil
	}
	v := c.who.In(c.namespace())
	if v.Freely(c.need) {
		return nil
	}
	for i := range n {
		if !v.MayName(c.need, key(i)) {
			return c.refused(&v)
		}
	}
	if n == 0 {
		return c.permitted(&v, nil)
	}
	return nil
}

func (c *call) permitted(v *access.View, names []string) error {
	if v.May(c.need, names...) {
		return nil
	}
	return c.refused(v)
}

// refused is the answer to a call that is not granted. Whoever has shown nothing may have
// something to show.
func (c *call) refused(v *access.View) error {
	detail := c.h.gate.Denied(v, c.need)
	if c.who.Kind == access.Anyone {
		return c.unauthorized()
	}
	return &problem{status: http.StatusForbidden, kind: "forbidden", title: "Not granted", detail: detail}
}

// names returns what the path and the parameters of a call name: keys, or a prefix of them.
func (c *call) names() ([]string, error) {
	switch {
	case strings.Contains(c.path, "/{key}"):
		names := []string{c.args.key}
		if c.query.Has("with") { // Users of two counters are compared.
			names = append(names, c.query.Get("with"))
		}
		return names, nil
	case strings.Contains(c.path, "/{name}"):
		return []string{c.args.name}, nil
	case strings.Contains(c.path, "/reservations/{id}"):
		key, err := c.db.Port().ReservedKey(c.args.id)
		return []string{key}, err
	case c.need.Scope == access.OnPrefix:
		return []string{c.query.Get("prefix")}, nil
	case c.query.Has("key"):
		return []string{c.query.Get("key")}, nil
	}
	return nil, nil
}

// forged refuses a change that a browser sends with its login, unless it says that a page of
// this server has made it, and that page knows what only such a page can. The cookie alone is
// strict, and modern browsers send it from nowhere else; this is for those that are not.
func (c *call) forged() error {
	if !c.viaCookie || c.safe() {
		return nil
	}
	own := false
	switch c.r.Header.Get("Sec-Fetch-Site") {
	case "same-origin":
		own = true
	case "":
		from, err := url.Parse(c.r.Header.Get("Origin"))
		own = err == nil && from.Host != "" && from.Host == c.r.Host
	}
	switch {
	case !own:
		return foreign()
	case c.entry: // It brings a key, and the login that it had may be another's.
		return nil
	case subtle.ConstantTimeCompare([]byte(c.r.Header.Get(csrfHeader)), []byte(csrfOf(c.login()))) != 1:
		return &problem{
			status: http.StatusForbidden, kind: "forbidden", title: "Token missing",
			detail: "a change with a login needs the header " + csrfHeader + " with the csrf that GET /api/v1/session tells",
		}
	}
	return nil
}

// foreign is the answer to a page of another origin.
func foreign() error {
	return &problem{
		status: http.StatusForbidden, kind: "forbidden", title: "Cross-origin request",
		detail: "browsers may not call this from a page of another origin",
	}
}

// note writes down what an administrator did, or tried to.
func (c *call) note() {
	if c.who == nil || !c.need.Audited() { // Strangers try all day.
		return
	}
	act := server.Act{Act: c.operation(), Target: c.target}
	if act.Target == "" {
		act.Target = server.Clip(c.r.URL.EscapedPath())
	}
	switch c.status {
	case http.StatusOK:
		act.Outcome = "done"
	case http.StatusForbidden, http.StatusUnauthorized:
		act.Outcome = "denied"
	default:
		act.Outcome = "failed: " + strconv.Itoa(c.status)
	}
	c.h.gate.Audit(c.who, c.caller(), act)
}
