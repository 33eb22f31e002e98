package crash

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
)

const (
	counters    = 8   // who add to sketches
	counterMost = 150 // items of each in one set of sketches, so that all are counted exactly
)

// A counting is what one caller has asked of one set of sketches, and was told.
type counting struct {
	asked, told map[string]bool // items, and those that every sketch of the set has acknowledged
	sent, done  int64           // to the top list
}

// sketched has callers add items to sketches of each kind, small and in pieces, while servers are killed. Afterwards
// everything that was acknowledged is there, and nothing that was not asked for. After some items they go on with
// another set of sketches, in which everything is exact again.
func sketched(t *testing.T, binary string, rng *rand.Rand, store string, servers int) {
	s := newTroupe(t, binary, store, servers)
	c := s.dial(0)
	defer func() { _ = c.Close() }()
	sets := *cycles
	for set := range sets {
		for _, command := range []string{"CMS.INITBYDIM counts:%d 300 5", "CMS.INITBYDIM pieces:%d 4000 5", "BF.RESERVE large:%d 0.001 200000", "TOPK.RESERVE top:%d 10"} {
			if got, err := c.do(strings.Fields(fmt.Sprintf(command, set))...); err != nil || got != "+OK" {
				t.Fatalf(command+": %q, %v", set, got, err)
			}
		}
	}
	var all sync.WaitGroup
	noted := make([][]counting, counters) // by caller and set
	for i := range noted {
		noted[i] = make([]counting, sets)
		all.Go(func() { s.count(i, noted[i]) })
	}
	s.kill(rng)
	all.Wait()
	c = s.dial(0)
	items, sure := 0, 0
	for set := range sets {
		n, m := s.recount(c, set, noted)
		items, sure = items+n, sure+m
	}
	_ = c.Close()
	if sure == 0 {
		t.Error("nothing was acknowledged")
	}
	for _, p := range s.servers {
		if err := p.Drain(); err != nil {
			t.Error(err)
		}
	}
	if s.dir != "" {
		command(t, binary, "verify", "--data", s.dir)
	} else {
		addr, err := ready(t.Context(), launch(t, binary, "--http", "127.0.0.1:0", "--store", store))
		if err != nil {
			t.Fatal(err)
		}
		command(t, binary, "verify", "--addr", "http://"+addr)
	}
	t.Logf("%d kills: %d items, of which %d were acknowledged", *cycles, items, sure)
	if err := errors.Join(s.problems[:min(len(s.problems), 10)]...); err != nil {
		t.Error(err)
	}
}

// count adds items one after the other to the sketches of each set.
func (s *troupe) count(caller int, sets []counting) {
	c := s.dial(caller % len(s.servers))
	defer func() { _ = c.Close() }()
	for set := range sets {
		of := &sets[set]
		of.asked, of.told = map[string]bool{}, map[string]bool{}
		for i := 0; i < counterMost && !s.over.Load(); i++ {
			item, done := fmt.Sprintf("item-%d-%d", caller, i), true
			send := func(command string, args ...any) bool {
				got, err := c.do(strings.Fields(fmt.Sprintf(command, args...))...)
				switch {
				case err != nil: // It was killed, and may have counted.
					done = false
					_ = c.Close()
					c = s.dial(caller % len(s.servers))
				case strings.HasPrefix(got, "-"):
					s.problem(command+": %q", append(args, got)...)
				}
				return err == nil
			}
			of.asked[item] = true
			for _, command := range []string{"PFADD uniques:%d %s", "BF.ADD small:%d %s", "BF.ADD large:%d %s", "CMS.INCRBY counts:%d %s 1", "CMS.INCRBY pieces:%d %s 1"} {
				send(command, set, item)
			}
			of.sent++
			if send("TOPK.INCRBY top:%d caller-%d 1", set, caller) {
				of.done++
			}
			if done {
				of.told[item] = true
			}
		}
	}
}

// recount compares a set of sketches with what was asked and told, and returns how many items that were.
func (s *troupe) recount(c *stage, set int, noted [][]counting) (items, sure int) {
	for _, of := range noted {
		items, sure = items+len(of[set].asked), sure+len(of[set].told)
	}
	is := func(name, item string, least, most int64, command ...string) {
		if n, err := c.number(command...); err != nil || n < least || n > most {
			s.problem("%s:%d has %d of %s, %v; want %d to %d", name, set, n, item, err, least, most)
		}
	}
	key := func(name string) string { return fmt.Sprintf("%s:%d", name, set) }
	if items > 0 {
		is("uniques", "all", int64(sure), int64(items), "PFCOUNT", key("uniques"))
	}
	for i, of := range noted {
		for item := range of[set].asked {
			least := int64(0)
			if of[set].told[item] {
				least = 1
				is("small", item, 1, 1, "BF.EXISTS", key("small"), item)
				is("large", item, 1, 1, "BF.EXISTS", key("large"), item)
			}
			is("counts", item, least, int64(items), "CMS.QUERY", key("counts"), item)
			is("pieces", item, least, 1+int64(items)*3/100, "CMS.QUERY", key("pieces"), item)
		}
		if name := fmt.Sprintf("caller-%d", i); of[set].sent > 0 {
			is("top", name, of[set].done, of[set].sent, "TOPK.COUNT", key("top"), name)
		}
	}
	return items, sure
}
