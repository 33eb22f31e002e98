package spread

import (
	"cmp"
	"crypto/sha256"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

var order = flag.String("order", "", "the only order to play, as it was told")

// explore plays a scene in every order.
func explore(t *testing.T, s *scene) {
	t.Helper()
	if *order != "" {
		var path []int
		for word := range strings.SplitSeq(*order, ".") {
			n, err := strconv.Atoi(word)
			if err != nil {
				t.Fatal(err)
			}
			path = append(path, n)
		}
		report(t, s, path)
		return
	}
	seen := map[[sha256.Size]byte]bool{}
	ends := 0
	var path []int
	var visit func(w *world)
	visit = func(w *world) {
		key := sha256.Sum256(w.print())
		if seen[key] && w.wrong == "" {
			return
		}
		seen[key] = true
		choices := w.choices()
		if len(choices) == 0 {
			ends++
			w.tidy()
		}
		if w.wrong != "" || len(path) > 1000 {
			report(t, s, path)
		}
		for n, c := range choices {
			if n > 0 {
				w = replay(s, path, false)
			}
			path = append(path, n)
			w.play(c)
			visit(w)
			path = path[:len(path)-1]
		}
	}
	visit(newWorld(s, false))
	t.Logf("%d states, %d ends", len(seen), ends)
}

// replay plays an order again.
func replay(s *scene, path []int, loud bool) *world {
	w := newWorld(s, loud)
	for _, n := range path {
		w.play(w.choices()[n])
	}
	return w
}

// report tells of an order that went wrong.
func report(t *testing.T, s *scene, path []int) {
	t.Helper()
	w := replay(s, path, true)
	if len(w.choices()) == 0 {
		w.tidy()
	}
	t.Fatalf("%s\n\t%s\nreplay: go test ./internal/spread -run '^%s$' -args -order=%s", cmp.Or(w.wrong, "nothing is wrong"),
		strings.Join(w.trace, "\n\t"), t.Name(), strings.ReplaceAll(strings.Trim(fmt.Sprint(path), "[]"), " ", "."))
}

// print returns the state, equal for states that can't be told apart.
func (w *world) print() []byte {
	p := printer{seen: map[uintptr]int{}, versions: map[uint64]int{}}
	p.add(w.state(), w.partsOf())
	p.add(w.truth, w.exists, w.lossy, w.once, w.fault, w.book)
	if w.scene.bound > 0 {
		p.add(w.left, w.last)
	}
	for _, s := range w.actors {
		p.add(s.dead)
		if !s.dead {
			p.add(s.known.counters, s.known.refused, s.gen, s.id)
			p.b = fmt.Append(p.b, s.known.others)
		}
	}
	for _, r := range w.rows {
		if r.by.dead || r.m == nil {
			continue
		}
		p.add(r.name, len(r.acts), r.m, r.applied, r.fresh)
		if len(r.acts) > 0 && r.acts[0].reads {
			p.add(r.low, r.top)
		}
		for _, s := range r.steps {
			p.add(s.made, s.delivered)
			if s.made || s.delivered {
				for _, n := range s.which {
					if r.calls[s.call].read != nil {
						p.add(r.got[s.call].values[n])
					} else {
						p.add(r.got[s.call].replies[n], r.errs[s.call][n])
					}
				}
				p.add(r.got[s.call].err)
			}
		}
	}
	return p.b
}
