package crash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
)

const (
	fans     = 16
	fanUsers = 12
)

var posts = []string{"post:plain", "post:viewed"}

// reacted has users like posts, change their minds and take it back while the server is
// killed. Afterwards each has what it chose last, and the counts are those of the users.
func reacted(t *testing.T, binary string, rng *rand.Rand) {
	s := &shop{t: t, rng: rng, binary: binary, dir: filepath.Join(t.TempDir(), "data")}
	p := s.start()
	ctx := t.Context()
	s.must(ctx, call{
		method: "PUT", path: "definitions", header: map[string]string{"If-Match": "*"},
		body: `{"definitions":[{"pattern":"post:viewed","choices":["like","dislike"],"windows":[{"every":"1m","keep":"2h"}],"ledger":"all"},{"pattern":"post:*","choices":["like","dislike"]}]}`,
	})
	var all sync.WaitGroup
	chosen := make([]map[string]string, fans)
	for i := range fans {
		rng := rand.New(rand.NewPCG(rng.Uint64(), uint64(i)))
		chosen[i] = map[string]string{}
		all.Go(func() { s.fan(ctx, i, chosen[i], rng) })
	}
	p = s.killed(p, rng)
	all.Wait()
	users, want := 0, map[string]map[string]int64{posts[0]: {}, posts[1]: {}}
	for _, mine := range chosen {
		for path, choice := range mine {
			var got struct{ Key, Choice string }
			if s.must(ctx, call{method: "GET", path: path}, &got); got.Choice != choice {
				s.problem(fmt.Errorf("%s is %q, and its user was told %q", path, got.Choice, choice))
			}
			if users++; choice != "" {
				want[got.Key][choice]++
			}
		}
	}
	for key, counts := range want {
		var got struct {
			Counts map[string]int64
			Users  int64
		}
		s.must(ctx, call{method: "GET", path: "reactions/" + key}, &got)
		if got.Counts["like"] != counts["like"] || got.Counts["dislike"] != counts["dislike"] || got.Users != counts["like"]+counts["dislike"] {
			s.problem(fmt.Errorf("%s has %v of %d users, want %v", key, got.Counts, got.Users, counts))
		}
	}
	if err := p.Drain(); err != nil {
		t.Fatal(err)
	}
	command(t, binary, "verify", "--data", s.dir)
	t.Logf("%d kills: %d users have reacted, %d reactions were sent again", *cycles, users, s.again.Load())
	if err := errors.Join(s.problems...); err != nil {
		t.Fatal(err)
	}
}

// fan has some users react, one after the other, and writes down what each has chosen.
func (s *shop) fan(ctx context.Context, fan int, chosen map[string]string, rng *rand.Rand) {
	for !s.over.Load() {
		path := fmt.Sprintf("reactions/%s/u%d-%d", posts[rng.IntN(len(posts))], fan, rng.IntN(fanUsers))
		choice := []string{"like", "dislike", ""}[rng.IntN(3)]
		q := call{method: "PUT", path: path, body: fmt.Sprintf(`{"choice":%q}`, choice)}
		if choice == "" {
			q = call{method: "DELETE", path: path}
		}
		if r := s.insist(ctx, q); r.status != http.StatusOK {
			s.problem(fmt.Errorf("%s %s: %d %s", q.method, path, r.status, r.body))
			return
		}
		chosen[path] = choice
	}
}
