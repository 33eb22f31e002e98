package advise

import (
	"fmt"
	"math"
	"strconv"
)

// A Figure is what was measured: the median of the rounds of one side of a
// benchmark, and where it is recorded.
type Figure struct {
	Value        float64
	Result       string // the file below bench/results, without its ending
	Side, Metric string
}

// The figures that advice is computed from. A test compares them with the files.
var (
	embeddedREST   = Figure{22_083, "rest", "quipu", operations}
	embeddedRESP   = Figure{505_541, "peers", "quipu-synced, incr-hot, depth 16", operations}
	embeddedDeep   = Figure{3_057_958, "peers", "quipu-synced, incr-hot, depth 256", operations}
	embeddedLess   = Figure{1_028_813, "peers", "quipu-written, incr-hot, depth 16", operations}
	embeddedGet    = Figure{1_289_075, "peers", "quipu-synced, get, depth 16", operations}
	embeddedGets   = Figure{5_457_799, "peers", "quipu-synced, get, depth 256", operations}
	keptGet        = Figure{1_332_445, "hot-read", "quipu", operations}
	embeddedBytes  = Figure{78.4, "memory-per-counter", "quipu", "bytes/counter, of 1,000,000"}
	clientStream   = Figure{2_115_475, "client", "stream, 8 keys", operations}
	postgresHot    = Figure{449_310, "postgres-hot", "quipu", operations}
	postgresCalls  = Figure{2.25, "postgres-hot", "quipu", storeCalls}
	postgresByHand = Figure{13_324, "postgres-hot", "100 rows, by hand", operations}
	redisHot       = Figure{800_734, "redis-hot", "quipu", operations}
	redisCalls     = Figure{0.671, "redis-hot", "quipu", storeCalls}
	redisByHand    = Figure{349_640, "redis-hot", "redis", operations}
	redisGet       = Figure{957_787, "peers", "redis-off, get, depth 16", operations}
)

const (
	operations = "operations/s"
	storeCalls = "store calls/1,000 increments"
)

// Figures returns all that advice is computed from.
func Figures() []Figure {
	return []Figure{
		embeddedREST, embeddedRESP, embeddedDeep, embeddedLess, embeddedGet, embeddedGets, keptGet, embeddedBytes, clientStream,
		postgresHot, postgresCalls, postgresByHand, redisHot, redisCalls, redisByHand, redisGet,
	}
}

// String returns the value, and the file that has it.
func (f Figure) String() string {
	return fmt.Sprintf("%s (bench/results/%s.md)", Number(f.Value), f.Result)
}

// Number writes a number for people: 1,234,567, or three digits of a small one.
func Number(v float64) string {
	if math.Abs(v) < 100 {
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	digits := strconv.FormatFloat(v, 'f', 0, 64)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// Count writes so many of something, named as one of them is: 1 read, 2 reads.
func Count(v float64, one string) string {
	if n := Number(v); n != "1" {
		return n + " " + one + "s"
	}
	return "1 " + one
}

// rate writes how often something happens in a second, as the beginning of a
// sentence: 1 read a second is, 2 reads a second are.
func rate(v float64, one string) string {
	if Number(v) == "1" {
		return Count(v, one) + " a second is"
	}
	return Count(v, one) + " a second are"
}
