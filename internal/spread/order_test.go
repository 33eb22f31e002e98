package spread

import (
	"flag"
	"fmt"
	"testing"
)

var whole = flag.Bool("whole", false, "interrupt servers twice as often where that is bounded")

// shortBound is how often servers are interrupted in a short run.
const shortBound = 1

// Servers act on one counter, and each may rest between any two of its steps while
// the others go on. Whatever the order, the cells add up to what was applied, a
// reader is told what the counter was meanwhile, a caller is told what became of his
// write, and nothing is left behind.
func TestOrders(t *testing.T) {
	f := func(name string, s scene) {
		for _, partitions := range []int{1, 3} {
			if partitions < s.least || partitions > 1 && s.sole {
				continue
			}
			if s.partitions = partitions; *whole {
				s.bound *= 2
			}
			if testing.Short() && (s.bound == 0 || s.bound > shortBound) {
				s.bound = shortBound
			}
			t.Run(fmt.Sprintf("%s/%d", name, partitions), func(t *testing.T) { explore(t, &s) })
		}
	}
	type acts = []act
	f("split and life", scene{parts: []acts{{splits(3)}, {splits(2), add(1), gathers}}})
	f("grow and fold", scene{before: acts{splits(2), add(1)}, parts: []acts{{splits(3), add(1)}, {gathers, splits(2), add(2)}}})
	f("fold and ask", scene{before: acts{splits(3), add(1)}, parts: []acts{{gathers, splits(2)}, {add(1), asks, splits(2), add(3)}}})
	f("read and life", scene{bound: 3, before: acts{splits(2), add(1)}, parts: []acts{{reading, reading}, {add(1), add(-2), gathers, add(-2), splits(3), add(3), addTo(2, 4)}}})
	f("fold and fold", scene{before: acts{splits(3), add(1)}, parts: []acts{{gathers, splits(2)}, {gathers, add(1), splits(2)}}})
	f("once", scene{parts: []acts{{tokened, reading, tokened}, {splits(2), add(1), gathers}}})
	f("set", scene{before: acts{splits(2), add(1)}, parts: []acts{{sets(50), add(1)}, {add(2), splits(2), add(3)}}})
	f("delete", scene{before: acts{splits(2), add(1)}, parts: []acts{{deletes, add(1)}, {add(2), splits(2), add(3)}}})
	f("far", scene{parts: []acts{{splits(2)}, {sets(far), reading, add(4), perhaps(add(4)), reading}}})
	// One partition loses all or nothing.
	f("lost, read and split", scene{least: 3, bound: 2, before: acts{splits(3), add(1), losing}, parts: []acts{{reading, gathers, add(-2)}, {splits(4), gathers}}})
	f("lost, split and fold", scene{least: 3, before: acts{splits(3), add(1), losing}, parts: []acts{{splits(4), add(-2)}, {splits(3), add(-2), gathers}}})
	f("split and split", scene{parts: []acts{{splits(2), splits(2), add(1)}, {splits(3), splits(3), add(2)}}})
	f("grow late", scene{bound: 2, before: acts{splits(2), add(1)}, parts: []acts{{splits(3)}, {splits(4), gathers}, {reading, add(1), add(2), add(3)}}})
	f("three", scene{bound: 2, parts: []acts{{splits(2), add(1)}, {splits(3), add(2), gathers}, {asks, reading, tokened}}})
	f("three that fold", scene{bound: 2, before: acts{splits(3), add(1)}, parts: []acts{{gathers, add(1)}, {asks, splits(2)}, {reading, add(2), reading}}})
	f("split, and a fault", scene{bound: 2, fault: anyFault, parts: []acts{{splits(3), add(1)}, {splits(2), addTo(2, 2), gathers}}})
	f("fold, and a fault", scene{bound: 2, fault: anyFault, before: acts{splits(3), add(1)}, parts: []acts{{gathers, add(1)}, {add(2), asks}}})
	f("read, and a fault", scene{bound: 2, fault: anyFault, before: acts{splits(3), add(1)}, parts: []acts{{reading, add(1), reading}, {add(2), add(-2), gathers}}})
	f("set, and a fault", scene{bound: 2, fault: anyFault, before: acts{splits(2), add(1)}, parts: []acts{{sets(50), add(1)}, {tokened, tokened, deletes}}})
	f("one server, and a fault", scene{sole: true, bound: 2, fault: silent | away, before: acts{splits(2), add(1)}, parts: []acts{{gathers, add(1)}, {asks}}})
	f("one server", scene{sole: true, before: acts{splits(2), add(1)}, parts: []acts{{reading}, {gathers, splits(2)}}})
	// Each book that is published brings a view.
	f("views, fold", scene{before: acts{splits(2), add(1)}, parts: []acts{{publishing, add(1)}, {gathers, add(2)}}})
	f("views, fold and fold", scene{bound: 3, before: acts{splits(2), add(1)}, parts: []acts{{publishing, gathers}, {gathers}, {gathers, add(2)}}})
	f("views, two books", scene{bound: 3, before: acts{splits(2), add(1)}, parts: []acts{{publishing, gathers, publishing, add(1)}, {gathers, add(2)}}})
	f("views, heard", scene{before: acts{splits(2), add(1)}, parts: []acts{{announcing, telling, add(-3), raising}, {gathers, add(2)}}})
	f("views, split", scene{before: acts{publishing}, parts: []acts{{splits(3), add(1), gathers}, {knowing, splits(2), widening, add(2)}}})
	f("views, ask", scene{before: acts{publishing}, parts: []acts{{splits(2), add(1)}, {knowing, asks, asks}}})
	f("views, shards", scene{bound: 3, before: acts{splits(3), add(1)}, parts: []acts{{publishing, widening, add(1), addTo(2, 2)}, {knowing, widening, add(3), gathers}}})
	f("views, set", scene{bound: 3, before: acts{splits(2), add(1)}, parts: []acts{{publishing, sets(50), add(1)}, {widening, add(2), asks, deletes}}})
	f("views, and a fault", scene{bound: 2, fault: anyFault, before: acts{splits(2), add(1)}, parts: []acts{{publishing, gathers, add(1)}, {gathers, splits(2), add(2)}}})
	f("one server that folds", scene{sole: true, before: acts{splits(2), add(1)}, parts: []acts{{reading, reading, splits(2)}, {gathers}}})
}
