package collection

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
)

// A Sorted is a sorted set: members by their scores, and those of one score by their bytes. The zero Sorted is
// empty. It is not safe for concurrent use.
type Sorted struct {
	all    []Member
	scores map[string]float64
}

// A Member is one of a sorted set. Its score is a number; that of -0 is 0.
type Member struct {
	Name  string
	Score float64
}

func compare(a, b Member) int {
	return cmp.Or(cmp.Compare(a.Score, b.Score), cmp.Compare(a.Name, b.Name))
}

// ParseSorted returns the sorted set that some bytes are.
func ParseSorted(state string) (*Sorted, error) {
	s := &Sorted{scores: make(map[string]float64)}
	r := open(state, KindSorted)
	for r.more() {
		m := Member{Score: r.score(), Name: r.text()}
		_, twice := s.scores[m.Name]
		if r.wrong || twice || len(s.all) > 0 && compare(s.all[len(s.all)-1], m) >= 0 {
			return nil, ErrBytes
		}
		s.all, s.scores[m.Name] = append(s.all, m), m.Score
	}
	if r.wrong {
		return nil, ErrBytes
	}
	return s, nil
}

// All returns the members in their order. They are the set's own.
func (s *Sorted) All() []Member { return s.all }

// Len returns how many members there are.
func (s *Sorted) Len() int { return len(s.all) }

// Score returns the score of a member.
func (s *Sorted) Score(name string) (score float64, ok bool) {
	score, ok = s.scores[name]
	return score, ok
}

// Rank returns how many members come before one.
func (s *Sorted) Rank(name string) (rank int, ok bool) {
	score, ok := s.scores[name]
	if !ok {
		return 0, false
	}
	return slices.BinarySearchFunc(s.all, Member{name, score}, compare)
}

// Set gives a member a score, and reports whether it is a new one.
func (s *Sorted) Set(name string, score float64) (fresh bool) {
	if score == 0 {
		score = 0 // not -0
	}
	fresh = !s.Delete(name)
	if s.scores == nil {
		s.scores = make(map[string]float64)
	}
	m := Member{name, score}
	at, _ := slices.BinarySearchFunc(s.all, m, compare)
	s.all, s.scores[name] = slices.Insert(s.all, at, m), score
	return fresh
}

// Delete takes a member away, and reports whether it was there.
func (s *Sorted) Delete(name string) bool {
	at, has := s.Rank(name)
	if has {
		s.all = slices.Delete(s.all, at, at+1)
		delete(s.scores, name)
	}
	return has
}

// Cut takes the members from one rank up to, and without, another away.
func (s *Sorted) Cut(from, to int) {
	for _, m := range s.all[from:to] {
		delete(s.scores, m.Name)
	}
	s.all = slices.Delete(s.all, from, to)
}

// Append appends the bytes of a set that is not empty.
func (s *Sorted) Append(b []byte) []byte {
	b = append(b, byte(KindSorted), version)
	for _, m := range s.all {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(m.Score))
		b = appendText(b, m.Name)
	}
	return b
}
