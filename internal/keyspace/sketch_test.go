package keyspace_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/quipudb/quipu/internal/keyspace"
)

// shown returns a reply as text.
func shown(r keyspace.Reply) string {
	switch r.Kind {
	case keyspace.Null:
		return "nil"
	case keyspace.Number:
		return strconv.FormatInt(r.N, 10)
	case keyspace.Bool:
		return map[int64]string{0: "false", 1: "true"}[r.N]
	case keyspace.Double:
		return strconv.FormatFloat(r.F, 'g', -1, 64)
	case keyspace.Array, keyspace.Map:
		all := make([]string, len(r.All))
		for i := range r.All {
			all[i] = shown(r.All[i])
		}
		return "[" + strings.Join(all, " ") + "]"
	default:
		return r.Text
	}
}

// do executes a command as a step of its own.
func (w *world) do(t *testing.T, args ...string) string {
	t.Helper()
	s := w.space()
	r := s.Do(bytesOf(args))
	if err := s.Err(); err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	w.apply(t, s)
	return shown(r)
}

func newWorld() *world {
	return &world{now: 1_700_000_000_000, keys: map[string]keyspace.Value{}, pieces: map[string]string{}}
}

// TestSketchReplies checks replies and errors against those of the documentation of RedisBloom.
func TestSketchReplies(t *testing.T) {
	w := newWorld()
	const wrongType = "WRONGTYPE Operation against a key holding the wrong kind of value"
	for _, c := range []struct{ command, want string }{
		{"SET text hello", "OK"},
		{"SET count 5", "OK"},

		{"PFADD u", "1"},
		{"PFADD u", "0"},
		{"PFADD u a b a", "1"},
		{"PFADD u b", "0"},
		{"PFCOUNT u nobody", "2"},
		{"PFCOUNT nobody", "0"},
		{"PFMERGE v u nobody", "OK"},
		{"PFCOUNT v", "2"},
		{"TYPE u", "string"},
		{"PFADD text a", "WRONGTYPE Key is not a valid HyperLogLog string value."},
		{"PFADD count a", "WRONGTYPE Key is not a valid HyperLogLog string value."},
		{"PFCOUNT u text", "WRONGTYPE Key is not a valid HyperLogLog string value."},
		{"PFMERGE new count", "WRONGTYPE Key is not a valid HyperLogLog string value."},
		{"EXISTS new", "0"},
		{"GET u", wrongType},
		{"INCR u", "ERR value is not an integer or out of range"},
		{"APPEND u x", wrongType},
		{"GETSET u x", wrongType},
		{"SET u x GET", wrongType},
		{"INCRBYFLOAT u 1", wrongType},
		{"MGET u text", "[nil hello]"},
		{"SETNX u x", "0"},
		{"SET v 7", "OK"},
		{"INCR v", "8"},

		{"BF.RESERVE b 0.01 100", "OK"},
		{"BF.RESERVE b 0.01 100", "ERR item exists"},
		{"BF.RESERVE text 0.01 100", wrongType},
		{"BF.RESERVE x 2 100", "ERR (0 < error rate range < 1)"},
		{"BF.RESERVE x nan 100", "ERR (0 < error rate range < 1)"},
		{"BF.RESERVE x no 100", "ERR bad error rate"},
		{"BF.RESERVE x 0.1 no", "ERR bad capacity"},
		{"BF.RESERVE x 0.1 0", "ERR (capacity should be larger than 0)"},
		{"BF.RESERVE x 0.1 10 EXPANSION", "ERR no expansion"},
		{"BF.RESERVE x 0.1 10 EXPANSION no", "ERR bad expansion"},
		{"BF.RESERVE x 0.1 10 EXPANSION 0", "ERR expansion should be greater or equal to 1"},
		{"BF.RESERVE x 0.1 10 EXPANSION 2 NONSCALING", "ERR Nonscaling filters cannot expand"},
		{"BF.RESERVE x 0.1 9223372036854775807", "ERR could not create filter: it is too large"},
		{"BF.ADD b a", "true"},
		{"BF.ADD b a", "false"},
		{"BF.MADD b a c c d", "[false true false true]"},
		{"BF.EXISTS b a", "true"},
		{"BF.EXISTS b z", "false"},
		{"BF.MEXISTS b a z d", "[true false true]"},
		{"BF.EXISTS nobody a", "false"},
		{"BF.EXISTS u a", wrongType},
		{"BF.CARD b", "3"},
		{"BF.CARD nobody", "0"},
		{"BF.CARD u", wrongType},
		{"BF.INFO b ITEMS", "[Number of items inserted 3]"},
		{"BF.INFO b CAPACITY", "[Capacity 100]"},
		{"BF.INFO b BAD", "ERR Invalid information value"},
		{"BF.INFO nobody", "ERR not found"},
		{"BF.ADD text a", wrongType},
		{"BF.INSERT i CAPACITY 10 ERROR 0.1 NONSCALING ITEMS a b", "[true true]"},
		{"BF.INFO i EXPANSION", "[Expansion rate nil]"},
		{"BF.INSERT i NOCREATE ITEMS b c", "[false true]"},
		{"BF.INSERT nobody NOCREATE ITEMS b", "ERR not found"},
		{"BF.INSERT nobody CAPACITY 0 ITEMS b", "ERR Bad argument received"},
		{"BF.INSERT nobody CAPACITY x ITEMS b", "ERR Bad capacity"},
		{"BF.INSERT nobody WORD x ITEMS b", "ERR Unknown argument received"},
		{"BF.INSERT nobody CAPACITY 10 EXPANSION 2", "ERR wrong number of arguments for 'bf.insert' command"},
		{"TYPE b", "MBbloom--"},
		{"INCR b", wrongType},
		{"PFADD b x", wrongType},

		{"CMS.INITBYDIM c 200 5", "OK"},
		{"CMS.INITBYDIM c 200 5", "CMS: key already exists"},
		{"CMS.INITBYDIM x 0 5", "CMS: invalid width"},
		{"CMS.INITBYDIM x 5 no", "CMS: invalid depth"},
		{"CMS.INITBYPROB x 1 0.1", "CMS: invalid overestimation value"},
		{"CMS.INITBYPROB x 0.1 0", "CMS: invalid prob value"},
		{"CMS.INITBYPROB p 0.01 0.01", "OK"},
		{"CMS.INFO p", "[width 200 depth 7 count 0]"},
		{"CMS.INCRBY c a 5 b 2 a 1", "[5 2 6]"},
		{"CMS.INCRBY c a 0", "[6]"},
		{"CMS.INCRBY c a -1", "CMS: Number cannot be negative"},
		{"CMS.INCRBY c a x", "CMS: Cannot parse number"},
		{"CMS.INCRBY nobody a 1", "CMS: key does not exist"},
		{"CMS.INCRBY b a 1", wrongType},
		{"CMS.INCRBY c a 1 b", "ERR wrong number of arguments for 'cms.incrby' command"},
		{"CMS.QUERY c a b z", "[6 2 0]"},
		{"CMS.INFO c", "[width 200 depth 5 count 8]"},
		{"CMS.INITBYDIM d 200 5", "OK"},
		{"CMS.INCRBY d b 10", "[10]"},
		{"CMS.MERGE d 2 c d WEIGHTS 1 3", "OK"},
		{"CMS.QUERY d a b", "[6 32]"},
		{"CMS.MERGE d 1 c", "OK"},
		{"CMS.QUERY d a b", "[6 2]"},
		{"CMS.MERGE d 1 p", "CMS: width/depth is not equal"},
		{"CMS.MERGE d 0 c", "CMS: Number of keys must be positive"},
		{"CMS.MERGE d 2 c", "CMS: wrong number of keys"},
		{"CMS.MERGE d 1 c WEIGHTS", "CMS: wrong number of keys/weights"},
		{"CMS.MERGE d 1 c WEIGHTS x", "CMS: invalid weight value"},
		{"CMS.MERGE d 1 nobody", "CMS: key does not exist"},
		{"CMS.MERGE nobody 1 c", "CMS: key does not exist"},
		{"TYPE c", "CMSk-TYPE"},

		{"TOPK.RESERVE t 2", "OK"},
		{"TOPK.RESERVE t 2", "TopK: key already exists"},
		{"TOPK.RESERVE x 0", "TopK: invalid k"},
		{"TOPK.RESERVE x 5 0 7 0.9", "TopK: invalid width"},
		{"TOPK.RESERVE x 5 8 0 0.9", "TopK: invalid depth"},
		{"TOPK.RESERVE x 5 8 7 2", "TopK: invalid decay value. must be '<= 1' & '> 0'"},
		{"TOPK.RESERVE x 5 8 7", "ERR wrong number of arguments for 'topk.reserve' command"},
		{"TOPK.RESERVE y 5 8 7 0.9", "OK"},
		{"TOPK.ADD t a b a", "[nil nil nil]"},
		{"TOPK.INCRBY t c 5 b 1", "[b nil]"},
		{"TOPK.INCRBY t c 100001", "TopK: increment must be an integer greater or equal to 0                            and smaller or equal to 100,000"},
		{"TOPK.INCRBY t c", "ERR wrong number of arguments for 'topk.incrby' command"},
		{"TOPK.QUERY t c z", "[true false]"},
		{"TOPK.COUNT t a b c z", "[2 2 5 0]"},
		{"TOPK.LIST t BAD", "WITHCOUNT keyword expected"},
		{"TOPK.INFO t", "[k 2 width 64 depth 1 decay 1]"},
		{"TOPK.ADD nobody a", "TopK: key does not exist"},
		{"TOPK.LIST text", wrongType},
		{"TYPE t", "TopK-TYPE"},

		{"RENAME t s", "OK"},
		{"TOPK.COUNT s c", "[5]"},
		{"COPY s r", "1"},
		{"EXPIRE r 100", "1"},
		{"TOPK.ADD r c", "[nil]"},
		{"TTL r", "100"},
		{"TOPK.COUNT s c", "[5]"},
		{"DEL r s b", "3"},
		{"EXISTS r s b c", "1"},
	} {
		if got := w.do(t, strings.Fields(c.command)...); got != c.want {
			t.Errorf("%s: %s, want %s", c.command, got, c.want)
		}
	}
	if got := w.do(t, "TOPK.LIST", "y", "WITHCOUNT"); got != "[]" {
		t.Errorf("list %s of nothing", got)
	}
	if got := w.do(t, "TOPK.ADD", "y", strings.Repeat("x", 256)); got != "TopK: an item has at most 255 bytes" {
		t.Errorf("%s", got)
	}
}

// TestPieces checks sketches that are larger than a part against exact counts.
func TestPieces(t *testing.T) {
	w := newWorld()
	r := rand.New(rand.NewPCG(1, 2))
	for _, command := range []string{"BF.RESERVE b 0.001 200000", "CMS.INITBYDIM c 20000 7", "CMS.INITBYDIM d 20000 7"} {
		if got := w.do(t, strings.Fields(command)...); got != "OK" {
			t.Fatalf("%s: %s", command, got)
		}
	}
	has, counts, sum := map[string]bool{}, map[string]int64{}, int64(0)
	for range 60 {
		fill, count := []string{"BF.MADD", "b"}, []string{"CMS.INCRBY", "c"}
		for range 50 {
			item, n := fmt.Sprint("item", r.IntN(2000)), int64(r.IntN(9))
			fill, count = append(fill, item), append(count, item, fmt.Sprint(n))
			counts[item] += n
			sum += n
			has[item] = true
		}
		if got := w.do(t, fill...); !strings.HasPrefix(got, "[") {
			t.Fatal(got)
		}
		if got := w.do(t, count...); !strings.HasPrefix(got, "[") {
			t.Fatal(got)
		}
	}
	if len(w.pieces) < 3 {
		t.Fatalf("%d pieces", len(w.pieces))
	}
	wrong := 0
	for i := range 2000 {
		item := fmt.Sprint("item", i)
		found := w.do(t, "BF.EXISTS", "b", item) == "true"
		if has[item] && !found {
			t.Fatalf("%s is missing", item)
		}
		if found != has[item] {
			wrong++
		}
		n, err := strconv.ParseInt(strings.Trim(w.do(t, "CMS.QUERY", "c", item), "[]"), 10, 64)
		if err != nil || n < counts[item] || n > counts[item]+sum/1000 {
			t.Fatalf("%s came %d times, want %d", item, n, counts[item])
		}
	}
	if n, _ := strconv.ParseInt(w.do(t, "BF.CARD", "b"), 10, 64); wrong > 10 || math.Abs(float64(n)-float64(len(has))) > 10 {
		t.Errorf("%d were found by mistake; %d items, want %d", wrong, n, len(has))
	}
	if got, want := w.do(t, "CMS.INFO", "c"), fmt.Sprintf("[width 20000 depth 7 count %d]", sum); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	w.do(t, "CMS.MERGE", "d", "2", "c", "c", "WEIGHTS", "1", "2")
	if got, want := w.do(t, "CMS.INFO", "d"), fmt.Sprintf("[width 20000 depth 7 count %d]", 3*sum); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, command := range []string{"RENAME b x", "COPY b x"} {
		if got := w.do(t, strings.Fields(command)...); got != "ERR the sketch is too large to be renamed or copied" {
			t.Errorf("%s: %s", command, got)
		}
	}
	w.do(t, "DEL", "b")
	w.do(t, "BF.RESERVE", "b", "0.001", "200000")
	if got := w.do(t, "BF.EXISTS", "b", "item1"); got != "false" {
		t.Errorf("a filter has what another had before it: %s", got)
	}
}

// TestFullFilter checks that a filter that does not grow refuses what has no room, and keeps what came before.
func TestFullFilter(t *testing.T) {
	w := newWorld()
	w.do(t, "BF.RESERVE", "b", "0.1", "3", "NONSCALING")
	args := []string{"BF.MADD", "b"}
	for i := range 500 {
		args = append(args, fmt.Sprint(i))
	}
	got := w.do(t, args...)
	before, _, full := strings.Cut(got, " ERR non scaling filter is full]")
	if !full || !strings.HasPrefix(before, "[true true true") {
		t.Fatalf("%s", got)
	}
	n := strings.Count(before, " ") + 1
	if card := w.do(t, "BF.CARD", "b"); card != fmt.Sprint(strings.Count(before, "true")) {
		t.Errorf("%s items after %s", card, before)
	}
	for i := range n {
		if w.do(t, "BF.EXISTS", "b", fmt.Sprint(i)) != "true" {
			t.Errorf("%d is missing", i)
		}
	}
	if got := w.do(t, "BF.MADD", "b", "0", "1"); got != "[false false]" {
		t.Errorf("%s", got)
	}
}

// TestUnreadPieces has commands meet sketches whose pieces can't be read, as when another server changes the key
// meanwhile: the step fails, and does nothing else.
func TestUnreadPieces(t *testing.T) {
	w := newWorld()
	w.do(t, "BF.RESERVE", "b", "0.001", "200000")
	w.do(t, "CMS.INITBYDIM", "c", "20000", "7")
	unread := errors.New("unread")
	for _, command := range []string{
		"BF.ADD b a", "BF.MADD b a b", "BF.INSERT b ITEMS a b", "BF.INSERT b NOCREATE ITEMS a", "BF.EXISTS b a", "BF.MEXISTS b a b", "BF.INFO b", "BF.INFO b ITEMS", "BF.CARD b",
		"CMS.INCRBY c a 1", "CMS.QUERY c a", "CMS.MERGE c 1 c", "CMS.INFO c",
	} {
		s := w.space()
		s.Pieces = func(string, string, []int) ([]string, error) { return nil, unread }
		for range 2 { // What follows meets it too.
			s.Do(bytesOf(strings.Fields(command)))
		}
		if !errors.Is(s.Err(), unread) {
			t.Errorf("%s: %v", command, s.Err())
		}
	}
}
