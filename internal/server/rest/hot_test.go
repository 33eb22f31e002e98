package rest_test

import (
	"encoding/json"
	"log/slog"
	"math"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/internal/server/rest"
	"github.com/quipudb/quipu/store/storetest"
)

func TestHot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		retried := new(storetest.Hooks)
		retried.On(storetest.OnWrite, func(c *storetest.Call) error {
			err := c.Pass()
			for i := range c.Replies {
				c.Replies[i].Retries = 1
			}
			return err
		})
		db := quipu.New(storetest.Wrap(storetest.Far(newMemory()), retried), quipu.Options{
			Policies: []quipu.Policy{{Namespace: "n", Pattern: `"hot"`, Shards: 3, Timing: quipu.Rollup, Interval: time.Second}},
		})
		h := rest.New(db, rest.Options{})
		defer func() {
			h.Close()
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		}()
		do := func(method, path string) reply {
			t.Helper()
			req := httptest.NewRequestWithContext(t.Context(), method, path, nil)
			req.Header.Set("Prefer", "return=minimal")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, req)
			r := reply{w.Code, w.Header(), w.Body.String()}
			loadContract(t).check(t, method, path, r, false)
			if r.status != 200 {
				t.Fatalf("%s %s: %d %s", method, path, r.status, r.body)
			}
			return r
		}
		// One of eight writes is looked at, by chance: these are enough for both to
		// be seen and told apart.
		write := func(path string, n int) {
			t.Helper()
			for range n {
				do("POST", path+"/increment")
			}
		}
		r := do("GET", "/api/v1/hot")
		if r.body != `{"counters":[]}`+"\n" || r.header.Get("Cache-Control") != "no-store" {
			t.Errorf("nothing is hot: %+v", r)
		}

		const hottest = "/api/v1/namespaces/n/counters/%22hot%22"
		write(hottest, 300)
		<-time.After(2 * time.Second) // it is split
		write(hottest, 2000)
		write("/api/v1/counters/warm", 300)
		do("GET", hottest)
		<-time.After(300 * time.Millisecond) // the total is older
		type counter struct {
			Namespace, Key   string
			Rate             float64
			Shards           int
			Retries          float64  `json:"retries_per_second"`
			GrowthRate       *float64 `json:"growth_rate"`
			RollupAgeMS      *int     `json:"rollup_age_ms"`
			RollupIntervalMS int      `json:"rollup_interval_ms"`
		}
		var got struct{ Counters []counter }
		r = do("GET", "/api/v1/hot")
		if err := json.Unmarshal([]byte(r.body), &got); err != nil || len(got.Counters) != 2 {
			t.Fatalf("%s: %v", r.body, err)
		}
		hot, warm := got.Counters[0], got.Counters[1]
		if hot.Namespace != "n" || hot.Key != `"hot"` || hot.Rate < 500 || hot.Shards != 3 || !strings.Contains(r.body, `"waiting_ratio":0,`) ||
			hot.RollupAgeMS == nil || *hot.RollupAgeMS != 300 || hot.RollupIntervalMS != 1000 {
			t.Errorf("%s: the hottest is wrong", r.body)
		}
		for _, c := range got.Counters {
			if math.Abs(c.Retries-c.Rate) > 0.01 {
				t.Errorf("%+v: every write was retried", c)
			}
		}
		// What has no meaning is left out.
		if warm.Namespace != "default" || warm.Key != "warm" || warm.Rate < 10 || warm.Rate > hot.Rate || warm.Shards != 1 ||
			warm.GrowthRate != nil || strings.Count(r.body, "rollup") != 2 {
			t.Errorf("%s: the other is wrong", r.body)
		}
		for range 15 { // in which it is measured twice
			write(hottest, 100)
			<-time.After(time.Second)
		}
		got.Counters = nil
		r = do("GET", "/api/v1/hot")
		if err := json.Unmarshal([]byte(r.body), &got); err != nil || len(got.Counters) == 0 {
			t.Fatalf("%s: %v", r.body, err)
		}
		if hot = got.Counters[0]; hot.GrowthRate == nil || math.Abs(*hot.GrowthRate-100) > 50 || strings.Count(r.body, "growth_rate") != 1 {
			t.Errorf("%s: 100 writes a second", r.body)
		}
		<-time.After(30 * time.Second)
		if r = do("GET", "/api/v1/hot"); !strings.Contains(r.body, `"shards":3`) || strings.Contains(r.body, "growth_rate") {
			t.Errorf("%s: it is split, and nothing is known of its growth", r.body)
		}
		write(hottest, 100)
		if r = do("GET", "/api/v1/hot?limit=1"); strings.Count(r.body, `"key"`) != 1 {
			t.Errorf("limit of 1: %s", r.body)
		}
	})
}

func TestHotRefused(t *testing.T) {
	f := open(t, rest.Options{})
	for _, bad := range []string{"0", "-1", "501", "x", "1.5"} {
		f.do("GET", "/api/v1/hot?limit="+bad, "").problem(t, 400, "invalid", "limit: want an integer between 1 and 500")
	}
	f.do("GET", "/api/v1/hot?limit=500", "").want(t, 200)
	f.do("GET", "/api/v1/hot?key=a", "").problem(t, 400, "invalid", "no parameter of this name")
	f.do("POST", "/api/v1/hot", "").problem(t, 405, "method", "POST")
	keys, err := server.NewKeys([]string{"k"})
	if err != nil {
		t.Fatal(err)
	}
	f = open(t, rest.Options{Gate: server.NewGate(server.GateOptions{Keys: keys, Logger: slog.New(slog.DiscardHandler)})})
	f.do("GET", "/api/v1/hot", "").problem(t, 401, "unauthorized", "API key")
	f.do("GET", "/api/v1/hot", "", "Authorization: Bearer k").want(t, 200)
}
