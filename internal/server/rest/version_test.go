package rest_test

import (
	"fmt"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/server/rest"
	"github.com/quipudb/quipu/policy"
	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/storetest"
)

// inTime serves a store with policies, which might be anywhere, in a bubble whose time passes
// when nothing else can. F is given what makes a call.
func inTime(t *testing.T, policies []quipu.Policy, f func(t *testing.T, do func(method, path, body string, headers ...string) reply)) {
	t.Helper()
	inTimeOver(t, storetest.Far(newMemory()), policies, f)
}

func inTimeOver(t *testing.T, s store.Store, policies []quipu.Policy, f func(t *testing.T, do func(method, path, body string, headers ...string) reply)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		db := quipu.New(s, quipu.Options{Policies: policies})
		h := rest.New(db, rest.Options{})
		defer func() {
			h.Close()
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		}()
		f(t, func(method, path, body string, headers ...string) reply {
			t.Helper()
			req := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
			for _, h := range headers {
				name, value, _ := strings.Cut(h, ": ")
				req.Header.Set(name, value)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, req)
			r := reply{w.Code, w.Header(), w.Body.String()}
			loadContract(t).check(t, method, path, r, false)
			return r
		})
	})
}

const weakDetail = "no write can be made at this ETag, which is weak or that of several cells: read with read=exact"

// The version of a counter that is split looks like none that a write can be made
// at; trying to makes the counter one cell, whose version is one.
func TestVersionOfSplitCounter(t *testing.T) {
	const path = "/api/v1/counters/a"
	policies := []quipu.Policy{{Pattern: "a", Shards: 3, Spread: quipu.SpreadWho}}
	inTime(t, policies, func(t *testing.T, do func(method, path, body string, headers ...string) reply) {
		split := func() (tag string) {
			t.Helper()
			shards := ""
			for range 100 { // one that was one cell by need rests for a while
				for range 50 { // of which some are looked at
					do("POST", path+"/increment", "", "Prefer: return=minimal").want(t, 200)
				}
				<-time.After(2 * time.Second)
				r := do("GET", path, "")
				if shards = fmt.Sprint(r.fields(t)["shards"]); shards == "3" {
					r.want(t, 200, "exact=true", "version")
					tag = r.header.Get("Etag")
					break
				}
			}
			if !strings.HasPrefix(tag, `W/"`) {
				t.Fatalf("%s shards, ETag %s; want 3 shards, and a weak one", shards, tag)
			}
			return tag
		}
		tag := split()
		if r := do("POST", "/api/v1/read", `{"keys":["a"]}`); strings.Contains(r.body, "version") {
			t.Errorf("read: %s", r.body)
		}
		without := 0
		for i := range 100 { // some go to the counter's own cell
			if r := do("POST", path+"/increment", fmt.Sprintf(`{"who":"%d"}`, i), "Prefer: return=minimal"); !strings.Contains(r.body, "version") {
				without++
			}
		}
		if without == 0 || without == 100 {
			t.Errorf("%d of 100 increments have no version", without)
		}
		if r := do("GET", path, "", "If-None-Match: "+tag); r.status != 200 {
			t.Errorf("If-None-Match of before: %d", r.status)
		}
		tag = do("GET", path, "").header.Get("Etag")
		for _, same := range []string{tag, strings.TrimPrefix(tag, "W/")} {
			if r := do("GET", path, "", "If-None-Match: "+same); r.status != 304 {
				t.Errorf("If-None-Match %s: %d", same, r.status)
			}
		}

		for _, cut := range []string{"", "W/"} {
			do("PUT", path, `{"value":1}`, "If-Match: "+strings.TrimPrefix(tag, cut)).problem(t, 412, "changed", weakDetail)
			r := do("GET", path+"/exact", "")
			r.want(t, 200, "shards=1")
			strong := r.header.Get("Etag")
			do("PUT", path, `{"value":1}`, "If-Match: "+strong).want(t, 200, "value=1")
			do("POST", path+"/increment", "", "If-Match: "+strong).problem(t, 412, "changed", "the counter changed")
			tag = split()
		}
	})
}

// So does that of a total to which writes of the same server are added.
func TestVersionOfHybrid(t *testing.T) {
	const path = "/api/v1/counters/a"
	policies := []quipu.Policy{{Pattern: "a", Timing: quipu.Hybrid, Interval: time.Minute}}
	inTime(t, policies, func(t *testing.T, do func(method, path, body string, headers ...string) reply) {
		do("PUT", path, `{"value":1}`).want(t, 200)
		do("GET", path, "").want(t, 200, "value=1")
		do("POST", path+"/increment", "", "Prefer: return=minimal").want(t, 200)
		r := do("GET", path, "")
		r.want(t, 200, "value=2", "source=rollup", "version")
		tag := r.header.Get("Etag")
		if !strings.HasPrefix(tag, `W/"`) {
			t.Errorf("ETag %s is not weak", tag)
		}
		if r := do("GET", path, "", "If-None-Match: "+tag); r.status != 304 {
			t.Errorf("If-None-Match: %d", r.status)
		}
		do("DELETE", path, "", "If-Match: "+tag).problem(t, 412, "changed", weakDetail)
		do("DELETE", path, "", "If-Match: "+do("GET", path+"?read=exact", "").header.Get("Etag")).want(t, 200, "before=2")
	})
}

// That a counter does not exist is a total like any other.
func TestVersionOfNothing(t *testing.T) {
	const path = "/api/v1/counters/a"
	for _, timing := range []policy.Timing{quipu.FanIn, quipu.Rollup, quipu.Hybrid} {
		policies := []quipu.Policy{{Pattern: "a", Timing: timing}}
		inTime(t, policies, func(t *testing.T, do func(method, path, body string, headers ...string) reply) {
			tag := do("GET", path, "").header.Get("Etag")
			if r := do("GET", path, "", "If-None-Match: "+tag); r.status != 304 || r.header.Get("Etag") != tag {
				t.Errorf("%s: If-None-Match %s: %d, %s", timing, tag, r.status, r.header.Get("Etag"))
			}
			if r := do("GET", path, "", "If-None-Match: *"); r.status != 200 {
				t.Errorf("%s: If-None-Match *: %d", timing, r.status)
			}
		})
	}
}

func TestWeakETagRefused(t *testing.T) {
	f := open(t, rest.Options{})
	f.do("PUT", "/api/v1/counters/a", `{"value":1}`).want(t, 200)
	for _, tag := range []string{`W/"1"`, `W/`, `"4611686018427387904"`} {
		f.do("PUT", "/api/v1/counters/a", `{"value":9}`, "If-Match: "+tag).problem(t, 412, "changed", weakDetail)
	}
	f.do("PUT", "/api/v1/counters/a", `{"value":9}`, `If-Match: "4611686018427387903"`).problem(t, 412, "changed", "the counter changed")
}

// What a cache may serve is never older than the caller or the policy allows.
func TestCaches(t *testing.T) {
	policies := []quipu.Policy{
		{Pattern: "rollup", Timing: quipu.Rollup, Interval: 10 * time.Second},
		{Pattern: "second", Timing: quipu.Rollup, Interval: time.Second},
		{Pattern: "half", Timing: quipu.Rollup, Interval: 500 * time.Millisecond},
		{Pattern: "hybrid", Timing: quipu.Hybrid, Interval: 10 * time.Second},
	}
	inTime(t, policies, func(t *testing.T, do func(method, path, body string, headers ...string) reply) {
		check := func(query, age, control string) {
			t.Helper()
			r := do("GET", "/api/v1/counters/"+query, "")
			if a, c := r.header.Get("Age"), r.header.Get("Cache-Control"); a != age || c != control {
				t.Errorf("%s: Age %q, Cache-Control %q; want %q and %q", query, a, c, age, control)
			}
		}
		check("rollup", "0", "max-age=10")
		check("second", "0", "max-age=1")
		check("half", "0", "no-cache")
		check("hybrid", "0", "private, no-cache")
		<-time.After(1100 * time.Millisecond)
		check("rollup", "2", "max-age=12") // ten more seconds
		check("second", "1", "max-age=2")
		check("half", "1", "no-cache")
		check("rollup?max_staleness=3900ms", "2", "max-age=4")
		check("rollup?max_staleness=2s", "2", "no-cache")  // 900 ms are left, less than a second
		check("rollup?max_staleness=1s", "0", "max-age=1") // the total is too old
		check("rollup?read=exact", "0", "no-cache")
		check("hybrid?read=cached", "2", "private, no-cache")
		check("hybrid?max_staleness=5s", "2", "max-age=5")
		check("plain", "0", "no-cache")
	})
}

// An edge keeps a reply for as long as it says.
type edge struct {
	kept  reply
	until time.Time
	asked int
}

func (e *edge) get(t *testing.T, do func() reply) reply {
	t.Helper()
	if now := time.Now(); !now.Before(e.until) {
		e.asked++
		e.kept, e.until = do(), now
		if most, ok := strings.CutPrefix(e.kept.header.Get("Cache-Control"), "max-age="); ok {
			s, err := strconv.Atoi(most)
			age, errAge := strconv.Atoi(e.kept.header.Get("Age"))
			if err != nil || errAge != nil {
				t.Fatal(err, errAge)
			}
			e.until = now.Add(time.Duration(s-age) * time.Second)
		}
	}
	return e.kept
}

// Caches that nobody looks after ask once in a while, and what they serve is never
// older than it may be.
func TestEdges(t *testing.T) {
	policies := []quipu.Policy{
		{Pattern: "second", Timing: quipu.Rollup, Interval: time.Second},
		{Pattern: "five", Timing: quipu.Rollup, Interval: 5 * time.Second},
	}
	// Reads come ten times a second, for a minute.
	f := func(query string, oldest time.Duration, askedMax int) {
		t.Helper()
		inTime(t, policies, func(t *testing.T, do func(method, path, body string, headers ...string) reply) {
			t.Helper()
			var edges [2]edge
			for i := range 600 {
				r := edges[i%2].get(t, func() reply { return do("GET", "/api/v1/counters/"+query, "") })
				asOf, err := time.Parse(time.RFC3339Nano, fmt.Sprint(r.fields(t)["as_of"]))
				if age := time.Since(asOf); err != nil || age > oldest {
					t.Errorf("%s: served when %s old (%v), want at most %s", query, age, err, oldest)
				}
				<-time.After(100 * time.Millisecond)
			}
			for i := range edges {
				if n := edges[i].asked; n > askedMax {
					t.Errorf("%s: edge %d asked %d times in a minute, want at most %d", query, i, n, askedMax)
				}
			}
		})
	}
	f("second", 3*time.Second, 61)
	f("five", 15*time.Second, 13)
	f("five?max_staleness=4s", 4*time.Second, 61)
}

// What is served because the store can't be reached is not kept any longer.
func TestCachesOfRecalled(t *testing.T) {
	h := new(storetest.Hooks)
	s := storetest.Wrap(storetest.Far(newMemory()), h)
	policies := []quipu.Policy{{Pattern: "a", Timing: quipu.Rollup, Interval: 10 * time.Second, Stale: time.Minute}}
	inTimeOver(t, s, policies, func(t *testing.T, do func(method, path, body string, headers ...string) reply) {
		check := func(source, control string) {
			t.Helper()
			r := do("GET", "/api/v1/counters/a", "")
			r.want(t, 200, "source="+source)
			if c := r.header.Get("Cache-Control"); c != control {
				t.Errorf("Cache-Control %q; want %q", c, control)
			}
		}
		check("store", "max-age=10")
		h.On(storetest.OnGet, storetest.Fail(store.ErrUnavailable))
		<-time.After(19 * time.Second)
		check("rollup", "max-age=29") // and is 19 old
		<-time.After(6 * time.Second)
		check("recalled", "max-age=30")
		<-time.After(5 * time.Second)
		check("recalled", "no-cache")
	})
}
