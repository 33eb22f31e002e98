package crash

import (
	"testing"

	"github.com/quipudb/quipu/store"
)

// TestLies tells a counter each story twice: as it may happen, and with a lie
// of the server's that it must notice.
func TestLies(t *testing.T) {
	f := func(name string, tell func(s *story)) {
		t.Helper()
		for _, lie := range []bool{false, true} {
			s := &story{counter: &counter{key: "k", durability: store.Written, rising: true}, lie: lie}
			tell(s)
			if (s.err != nil) != lie {
				t.Errorf("%s, lie %v: it says %v", name, lie, s.err)
			}
		}
	}
	f("an acknowledged write is missing", func(s *story) {
		s.acked(s.write(1), 0, 1)
		s.acked(s.write(2), 1, 2)
		s.restart(s.or(3, 1), 2)
	})
	f("a write counts twice", func(s *story) {
		s.acked(s.write(5), 0, 1)
		s.restart(s.or(5, 10), 1)
	})
	f("two writes get one value", func(s *story) {
		s.acked(s.write(5), 0, 1)
		s.acked(s.write(5), s.or(5, 0), 2)
		s.restart(10, 2)
	})
	f("two writes get one version", func(s *story) {
		s.acked(s.write(5), 0, 1)
		s.acked(s.write(5), 5, uint64(s.or(2, 1)))
		s.restart(10, 2)
	})
	f("a version goes back", func(s *story) {
		s.acked(s.write(5), 0, 9)
		s.restart(5, uint64(s.or(9, 8)))
	})
	f("a value that was read is undone", func(s *story) {
		s.sent(s.write(5))
		s.read(s.or(0, 5))
		s.restart(0, 0)
	})
	f("a read misses what was acknowledged", func(s *story) {
		s.acked(s.write(5), 0, 1)
		s.read(s.or(5, 4))
	})
	f("a read counts what was not sent", func(s *story) {
		s.acked(s.write(5), 0, 1)
		s.read(s.or(5, 6))
	})
	f("an unknown write counted, and its token is unknown", func(s *story) {
		w := s.write(5)
		s.sent(w)
		s.fates = map[*write]fate{w: {state: unknown}}
		s.restart(s.or(0, 5), uint64(s.or(0, 1)))
	})
	f("an unknown write did not count, and its token is applied", func(s *story) {
		w := s.write(5)
		s.sent(w)
		s.fates = map[*write]fate{w: {applied, result{true, 0, 5, 1}}}
		s.restart(s.or(5, 0), 1)
	})
	f("a write without a token counts twice", func(s *story) {
		w := s.write(5)
		w.token = ""
		s.sent(w)
		s.restart(s.or(5, 10), 1)
	})
	f("a write without a token counts negatively", func(s *story) {
		w := s.write(5)
		w.token = ""
		s.sent(w)
		s.restart(s.or(0, -5), 0)
	})
	f("a write of memory is lost, and its token is not", func(s *story) {
		s.counter.durability = store.Memory
		w := s.write(5)
		s.note(w, w.open(), answer{outcome: success, durability: store.Memory, result: result{true, 0, 5, 1}})
		s.fates = map[*write]fate{w: {state: unknown}}
		if s.lie {
			s.fates[w] = fate{applied, w.result}
		}
		s.restart(0, 0)
	})
	f("a write of memory that was settled as applied is lost", func(s *story) {
		s.counter.durability = store.Memory
		w := s.write(5)
		s.note(w, w.open(), answer{outcome: success, durability: store.Memory, result: result{true, 0, 5, 1}})
		s.err = w.noteSettle(fate{applied, w.result})
		s.restart(s.or(5, 0), uint64(s.or(1, 0)))
	})
	f("an acknowledgement is weaker than the policy", func(s *story) {
		durability := store.Written
		if s.lie {
			durability = store.Memory
		}
		w := s.write(5)
		s.note(w, w.open(), answer{outcome: success, durability: durability, result: result{true, 0, 5, 1}})
	})
	f("a repeat counts", func(s *story) {
		w := s.write(5)
		s.acked(w, 0, 1)
		s.note(w, w.open(), answer{outcome: success, replayed: !s.lie, durability: store.Synced, result: w.result})
	})
	f("a repeat returns another value", func(s *story) {
		w := s.write(5)
		s.acked(w, 0, 1)
		n := s.or(0, 5)
		s.note(w, w.open(), answer{outcome: success, replayed: true, durability: store.Synced, result: result{true, n, n + 5, 1}})
	})
	f("a repeat is refused", func(s *story) {
		w := s.write(5)
		s.acked(w, 0, 1)
		s.note(w, w.open(), answer{outcome: refusal, kind: map[bool]string{false: kindUnavailable, true: kindChanged}[s.lie]})
	})
	f("a first write is said to be a repeat", func(s *story) {
		w := s.write(5)
		s.note(w, w.open(), answer{outcome: success, replayed: s.lie, durability: store.Synced, result: result{true, 0, 5, 1}})
	})
	f("a settled write counts", func(s *story) {
		w := s.write(5)
		w.beginSettle()
		s.err = w.noteSettle(fate{state: settled})
		a := answer{outcome: refusal, kind: kindSettled}
		if s.lie {
			a = answer{outcome: success, durability: store.Synced, result: result{true, 0, 5, 1}}
		}
		s.note(w, w.open(), a)
	})
	f("an applied write is said to be settled", func(s *story) {
		w := s.write(5)
		s.acked(w, 0, 1)
		w.beginSettle()
		got := fate{applied, w.result}
		if s.lie {
			got = fate{state: settled}
		}
		s.err = w.noteSettle(got)
	})
	f("a write that was refused counts", func(s *story) {
		w := s.write(5)
		s.note(w, w.open(), answer{outcome: refusal, kind: kindUnavailable})
		s.restart(s.or(0, 5), uint64(s.or(0, 1)))
	})
	f("a reset takes what others count", func(s *story) {
		s.counter.rising, s.counter.deleted = false, true
		s.acked(s.write(5), 0, 1)
		w := s.write(0)
		w.verb = remove
		s.note(w, w.open(), answer{outcome: success, durability: store.Synced, result: result{true, s.or(5, 4), 0, 0}})
		s.restart(0, 0)
	})
}

// A story is what happens to one counter, told with or without a lie.
type story struct {
	counter *counter
	lie     bool
	fates   map[*write]fate
	err     error // the first thing that was not believed
}

// or returns the truth, or the lie.
func (s *story) or(truth, lie int64) int64 {
	if s.lie {
		return lie
	}
	return truth
}

func (s *story) believe(err error) {
	if s.err == nil {
		s.err = err
	}
}

// write returns a write of n that was never sent.
func (s *story) write(n int64) *write {
	w := &write{counter: s.counter, n: n, token: "t"}
	w.request = &request{writes: []*write{w}}
	return w
}

func (s *story) note(w *write, before state, a answer) { s.believe(w.note(before, a)) }

// sent has a write sent that is never answered.
func (s *story) sent(w *write) { s.note(w, w.open(), answer{}) }

// acked has a write acknowledged that met a value.
func (s *story) acked(w *write, before int64, version uint64) {
	s.note(w, w.open(), answer{outcome: success, durability: store.Written, result: result{true, before, before + w.n, version}})
}

// read has the counter read.
func (s *story) read(value int64) { s.believe(s.counter.saw(count{value: value}, s.counter.floor())) }

// restart has the counter found with a value after a crash.
func (s *story) restart(value int64, version uint64) {
	_, _, err := s.counter.reckon(count{value, version}, s.fates)
	s.believe(err)
}
