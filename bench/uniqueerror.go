package main

import (
	"bufio"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"

	"github.com/quipudb/quipu/internal/load/chart"
	"github.com/quipudb/quipu/internal/load/redisproc"
	"github.com/quipudb/quipu/internal/sketch"
	"github.com/quipudb/quipu/internal/sketch/arrive"
)

const uniqueErrorAbout = "The error with which different items are counted, over independent runs of 1 to 100 million items: sketches of uniques of the default precision, and `PFCOUNT` of a real Redis. " +
	"Up to a million, both get the same items by name, each by its own hash. Beyond that, the items that change a sketch are drawn, with the moment at which they come. Redis is handed the registers that " +
	"its items make: at the beginning a key that PFADD has made must count the same. Error is the root of the mean square of the relative error."

// The measurements of each number of items.
const (
	uniqueRMSE   = "error %"
	uniqueBias   = "bias %"
	uniqueTheory = "quipu, in theory"
	pfcount      = "Redis PFCOUNT"

	redisPrecision = 14
	redisBytes     = 12304 // of a dense HyperLogLog in Redis: registers and head
	quipuBytes     = 4 + 1<<sketch.PrecisionDefault
	uniqueFrom     = 1_000_000
)

// uniqueCounts are the numbers of items: the last ones are drawn.
func uniqueCounts() (added, drawn []float64) {
	added = []float64{
		1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 1200, 1365, 1366, 1400, 1500, 1700, 2000, 2500, 3000, 5000, 7000,
		1e4, 1.5e4, 2e4, 3e4, 4e4, 5e4, 7e4, 1e5, 2e5, 5e5, uniqueFrom,
	}
	return added, []float64{2e6, 5e6, 1e7, 2e7, 5e7, 1e8}
}

func uniqueError(s *session) (err error) {
	s.rounds = 1 // of all runs
	redis, err := redisproc.Start(s.ctx, s.dir, "--appendonly", "no")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, redis.Stop()) }()
	conn, err := (&net.Dialer{}).DialContext(s.ctx, "tcp", redis.Addr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	peer := &redisCounter{out: bufio.NewWriterSize(conn, 1<<20), in: bufio.NewReader(conn)}
	if err := peer.check(); err != nil {
		return err
	}
	added, drawn := uniqueCounts()
	if s.quick {
		added, drawn = []float64{1, 1365, 1366, 5000}, []float64{1e6, 1e8}
	}
	counts := append(append([]float64(nil), added...), drawn...)
	runs := pick(s, 4000, 10)
	ours, theirs := newErrors(counts), newErrors(counts)
	for run := range runs {
		if err := s.ctx.Err(); err != nil {
			return err
		}
		if run%100 == 0 {
			_, _ = fmt.Fprintf(s.out, "%s: run %d of %d\n", s.Figure, run, runs)
		}
		if err := peer.run(run, added, drawn, ours, theirs); err != nil {
			return err
		}
	}
	s.note("%d runs, of which run i has the items `i:0`, `i:1` and so on, and beyond %s items the random numbers of PCG(1, i).", runs, number(added[len(added)-1]))
	s.note("Up to %d items a sketch of precision %d lists them: it is exact. Its registers take %d bytes, those of Redis %d, heads included.",
		sketch.UniquesListed(sketch.PrecisionDefault), sketch.PrecisionDefault, quipuBytes, redisBytes)
	s.note("%s, `redis-server --save '' --appendonly no`.", redis.Version)
	s.drawErrors(counts, ours, theirs)
	return nil
}

// errorsOf are the relative errors of one side, for each number of items.
type errorsOf struct{ counts, sum, square, n []float64 }

func newErrors(counts []float64) *errorsOf {
	made := func() []float64 { return make([]float64, len(counts)) }
	return &errorsOf{counts, made(), made(), made()}
}

func (e *errorsOf) note(i int, estimate float64) {
	d := estimate/e.counts[i] - 1
	e.sum[i] += d
	e.square[i] += d * d
	e.n[i]++
}

func (e *errorsOf) rmse(i int) float64 { return math.Sqrt(e.square[i] / e.n[i]) }
func (e *errorsOf) bias(i int) float64 { return e.sum[i] / e.n[i] }

// drawErrors judges and draws the errors of both sides.
func (s *session) drawErrors(counts []float64, ours, theirs *errorsOf) {
	t := table{Title: "Error and bias in percent"}
	t.head("items", "quipu: error", "in theory", "bias", pfcount+": error", "bias")
	type line = []chart.Point
	var error1, theory, error2, bias1, bias2, seam1, seam2 line
	var worst, worstBias, mean1, mean2 float64
	for i, n := range counts {
		want := 0.0
		if n > float64(sketch.UniquesListed(sketch.PrecisionDefault)) {
			want = sketch.UniqueError(sketch.PrecisionDefault, n)
			worst = max(worst, ours.rmse(i)/want)
			worstBias = max(worstBias, math.Abs(ours.bias(i))/ours.rmse(i))
		}
		at := math.Log10(n)
		add := func(l *line, x, y float64) { *l = append(*l, chart.Point{X: x, Y: 100 * y}) }
		add(&error1, at, ours.rmse(i))
		add(&theory, at, want)
		add(&error2, at, theirs.rmse(i))
		add(&bias1, at, ours.bias(i))
		add(&bias2, at, theirs.bias(i))
		if n >= 500 && n <= 5000 {
			add(&seam1, n, ours.rmse(i))
			add(&seam2, n, theirs.rmse(i))
		}
		t.rows = append(t.rows, []string{
			number(n), percent(ours.rmse(i)), percent(want), percent(ours.bias(i)), percent(theirs.rmse(i)), percent(theirs.bias(i)),
		})
		s.record("quipu, "+number(n)+" items", uniqueRMSE, 100*ours.rmse(i))
		s.record("quipu, "+number(n)+" items", uniqueBias, 100*ours.bias(i))
		s.record(pfcount+", "+number(n)+" items", uniqueRMSE, 100*theirs.rmse(i))
		s.record(pfcount+", "+number(n)+" items", uniqueBias, 100*theirs.bias(i))
		if n >= uniqueFrom {
			mean1 += ours.square[i]
			mean2 += theirs.square[i]
		}
	}
	s.atMost("largest error over that of theory", worst, 1.05)
	s.atMost("largest bias over the error", worstBias, 0.1)
	// The bytes that an error takes go with the inverse of its square.
	s.atMost("bytes over those of Redis for the same error, from a million items on", mean1/mean2*quipuBytes/redisBytes, 0.76)
	s.Tables = []table{t, s.targetTable()}
	var decades []chart.Tick
	for i := range 9 {
		decades = append(decades, chart.Tick{At: float64(i), Label: "10^" + strconv.Itoa(i)})
	}
	s.Panels = []chart.Panel{
		{Title: "Error", X: "different items", Y: "percent", Ticks: decades, Lines: []chart.Line{{Name: "quipu", Points: error1}, {Name: uniqueTheory, Points: theory}, {Name: pfcount, Points: error2}}},
		{Title: "Bias", X: "different items", Y: "percent", Ticks: decades, Lines: []chart.Line{{Name: "quipu", Points: bias1}, {Name: pfcount, Points: bias2}}},
		{Title: "Error where the list of items becomes registers", X: "different items", Y: "percent", Lines: []chart.Line{{Name: "quipu", Points: seam1}, {Name: pfcount, Points: seam2}}},
	}
}

func percent(share float64) string { return fmt.Sprintf("%.3f", 100*share) }

// targetTable has the targets, for reports that show tables.
func (s *session) targetTable() table {
	t := table{Title: "Targets"}
	t.head("target", "", "measured", "")
	for _, target := range s.Targets {
		met := "met"
		if !target.Met {
			met = "**missed**"
		}
		t.rows = append(t.rows, []string{target.What, number(target.Want), number(target.Measured), met})
	}
	return t
}

// A redisCounter has a real Redis count registers of HyperLogLog that are made here.
type redisCounter struct {
	out       *bufio.Writer
	in        *bufio.Reader
	registers [1 << redisPrecision]byte
	packed    [redisBytes]byte
	sketch    *sketch.Unique
	later     [2][][]uint64
	line      []byte
}

// run counts the items of one run.
func (r *redisCounter) run(run int, added, drawn []float64, ours, theirs *errorsOf) error {
	r.sketch = sketch.NewUnique(sketch.PrecisionDefault)
	clear(r.registers[:])
	asked := 0
	count := func() {
		ours.note(asked, r.sketch.Estimate().Value)
		r.ask()
		asked++
	}
	prefix := strconv.AppendInt(nil, int64(run), 10)
	prefix = append(prefix, ':')
	n := 0
	for _, to := range added {
		for ; n < int(to); n++ {
			r.line = strconv.AppendInt(append(r.line[:0], prefix...), int64(n), 10)
			r.sketch.Add(sketch.Hash(string(r.line)))
			r.add(murmur(r.line))
		}
		count()
	}
	rnd := rand.New(rand.NewPCG(1, uint64(run)))
	last := added[len(added)-1]
	r.later[0] = arrive.Later(rnd.ExpFloat64, sketch.PrecisionDefault, last, drawn, r.later[0])
	r.later[1] = arrive.Later(rnd.ExpFloat64, redisPrecision, last, drawn, r.later[1])
	for i := range drawn {
		for _, hash := range r.later[0][i] {
			r.sketch.Add(hash)
		}
		for _, hash := range r.later[1][i] {
			// Redis takes the register from the other end, and looks at 50 bits.
			r.add(bits.Reverse64(hash))
		}
		count()
	}
	if err := r.out.Flush(); err != nil {
		return err
	}
	for i := range asked {
		estimate, err := r.reply()
		if err != nil {
			return err
		}
		theirs.note(i, float64(estimate))
	}
	return nil
}

// add takes an item into the registers, as PFADD does.
func (r *redisCounter) add(hash uint64) {
	register := hash & (1<<redisPrecision - 1)
	zeros := bits.TrailingZeros64(hash>>redisPrecision|1<<(64-redisPrecision)) + 1
	r.registers[register] = max(r.registers[register], byte(zeros))
}

// ask sends the registers, and asks for their count.
func (r *redisCounter) ask() {
	p := append(r.packed[:0], "HYLL\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80"...) // dense, and no count that is kept
	for i := 0; i < len(r.registers); i += 4 {
		four := r.registers[i : i+4]
		word := uint32(four[0]) | uint32(four[1])<<6 | uint32(four[2])<<12 | uint32(four[3])<<18
		p = append(p, byte(word), byte(word>>8), byte(word>>16))
	}
	_, _ = fmt.Fprintf(r.out, "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n", len(p))
	_, _ = r.out.Write(p) // Flush tells of errors
	_, _ = r.out.WriteString("\r\n*2\r\n$7\r\nPFCOUNT\r\n$1\r\nk\r\n")
}

// reply reads the answers to ask.
func (r *redisCounter) reply() (int, error) {
	if ok, err := r.in.ReadString('\n'); err != nil || ok != "+OK\r\n" {
		return 0, fmt.Errorf("set registers: %q, %w", ok, err)
	}
	line, err := r.in.ReadString('\n')
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, ":")))
	if err != nil {
		return 0, fmt.Errorf("count registers: %q", line)
	}
	return n, nil
}

// check compares registers that are made here with a key of PFADD.
func (r *redisCounter) check() error {
	for _, n := range []int{100, 1000, 50_000} {
		clear(r.registers[:])
		_, _ = r.out.WriteString("*2\r\n$3\r\nDEL\r\n$1\r\np\r\n")
		for i := range n {
			r.line = strconv.AppendInt(append(r.line[:0], "item:"...), int64(i), 10)
			r.add(murmur(r.line))
			_, _ = fmt.Fprintf(r.out, "*3\r\n$5\r\nPFADD\r\n$1\r\np\r\n$%d\r\n%s\r\n", len(r.line), r.line)
		}
		_, _ = r.out.WriteString("*2\r\n$7\r\nPFCOUNT\r\n$1\r\np\r\n")
		r.ask()
		if err := r.out.Flush(); err != nil {
			return err
		}
		var theirs string
		for range n + 2 {
			line, err := r.in.ReadString('\n')
			if err != nil {
				return err
			}
			theirs = strings.TrimSpace(strings.TrimPrefix(line, ":"))
		}
		ours, err := r.reply()
		if err != nil {
			return err
		}
		if theirs != strconv.Itoa(ours) {
			return fmt.Errorf("%d items: Redis counts %s of its own, and %d of the registers that are made here", n, theirs, ours)
		}
	}
	return nil
}

// murmur is the hash of Redis's HyperLogLog: MurmurHash64A with its seed.
func murmur(item []byte) uint64 {
	const m, seed = 0xc6a4a7935bd1e995, 0xadc83b19
	mix := func(k uint64) uint64 {
		k *= m
		return (k ^ k>>47) * m
	}
	h := seed ^ uint64(len(item))*m
	for ; len(item) >= 8; item = item[8:] {
		k := uint64(item[0]) | uint64(item[1])<<8 | uint64(item[2])<<16 | uint64(item[3])<<24 |
			uint64(item[4])<<32 | uint64(item[5])<<40 | uint64(item[6])<<48 | uint64(item[7])<<56
		h = (h ^ mix(k)) * m
	}
	if len(item) > 0 {
		for i, c := range item {
			h ^= uint64(c) << (8 * i)
		}
		h *= m
	}
	h = (h ^ h>>47) * m
	return h ^ h>>47
}
