package statsd_test

import (
	"bytes"
	"math"
	"math/big"
	"strconv"
	"strings"
	"testing"

	"github.com/quipudb/quipu/internal/statsd"
)

func TestParse(t *testing.T) {
	var m statsd.Metric
	parse := func(line string) {
		t.Helper()
		if err := m.Parse([]byte(line)); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
	}
	counts := func(line, name string, count int64, part float64, tags string) {
		t.Helper()
		parse(line)
		var have []string
		for _, tag := range m.Tags {
			have = append(have, string(tag.Name)+"="+string(tag.Value))
		}
		if m.Kind != statsd.Counter || string(m.Name) != name || m.Count != count || math.Abs(m.Part-part) > 1e-9 || strings.Join(have, " ") != tags {
			t.Errorf("%q: %+v with tags %q", line, m, have)
		}
	}
	counts("a:1|c", "a", 1, 0, "")
	counts("a.b-c:+5|c", "a.b-c", 5, 0, "")
	counts("a:-3|c|#env:prod,region:eu:west,plain,", "a", -3, 0, "env=prod region=eu:west plain=")
	counts("a:1|c|@0.1", "a", 10, 0, "")
	counts("a:3|c|@0.5|#x:y", "a", 6, 0, "x=y")
	counts("a:1|c|#x:y|@0.3", "a", 3, 1/0.3-3, "x=y")
	counts("a:2.5|c", "a", 2, 0.5, "")
	counts("a:-2.5|c", "a", -3, 0.5, "")
	counts("a:1:2:3.5:0.5|c", "a", 7, 0, "")
	counts("a:1e3|c", "a", 1000, 0, "")
	counts("a:9223372036854775807|c", "a", math.MaxInt64, 0, "")
	counts("a:-9223372036854775808|c", "a", math.MinInt64, 0, "")
	counts("a:9007199254740993|c|@1", "a", 9007199254740993, 0, "")
	counts("a:1|c|c:83c0a99c0a54c0c187f461c7980e9b57f3f6a8b0c918c8d93df19a9de6f3fe1d|e:it-false|", "a", 1, 0, "")
	if parse("a:1|c|T1656581400"); m.Time != 1656581400 {
		t.Errorf("%+v", m)
	}
	if parse("users:ana:b|s|#x:y"); m.Kind != statsd.Set || string(m.Item) != "ana:b" || len(m.Tags) != 1 {
		t.Errorf("%+v", m)
	}
	for _, line := range []string{"a:1|g", "a:-1|ms", "a:1|h|@0.5", "a:3|d|#x:y", "a:x|unknown", "_e{5,4}:title|text|p:low", "_sc|name|0"} {
		if parse(line); m.Kind != statsd.Other {
			t.Errorf("%q: %+v", line, m)
		}
	}
	refuses := func(line, want string) {
		t.Helper()
		if err := m.Parse([]byte(line)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", line, err, want)
		}
	}
	refuses("", "a name")
	refuses("a", "a name")
	refuses(":1|c", "a name")
	refuses("a:1", "a type")
	refuses("a:1|", "a type")
	refuses("a:|c", "a number")
	refuses("a:1:|c", "a number")
	refuses("a:one|c", "a number")
	refuses("a:nan|c", "a number")
	refuses("a:Inf|c", "a number")
	refuses("a:0x10|c", "a number")
	refuses("a:1_000|c", "a number")
	refuses("a:1e19|c", "64 bits")
	refuses("a:9223372036854775807:1|c", "64 bits")
	refuses("a:5e18|c|@0.5", "64 bits")
	refuses("a:1|c|@0", "sample rate")
	refuses("a:1|c|@1.1", "sample rate")
	refuses("a:1|c|@-1", "sample rate")
	refuses("a:1|c|@nan", "sample rate")
	refuses("a:1|c|@0.5|@0.5", "twice")
	refuses("a:1|c|#x|#y", "twice")
	refuses("a:1|c|T", "Unix seconds")
	refuses("a:1|c|T-5", "Unix seconds")
	refuses("a:|s", "an item")
	refuses("a:1|c|#"+strings.Repeat("t,", statsd.TagsMax+1), "too many tags")
}

func TestCut(t *testing.T) {
	var lines []string
	for rest := []byte("\n\na:1|c\r\n\nb:2|c\nc"); ; {
		var line []byte
		if line, rest = statsd.Cut(rest); line == nil {
			break
		}
		lines = append(lines, string(line))
	}
	if got := strings.Join(lines, " "); got != "a:1|c b:2|c c" {
		t.Errorf("lines %q", got)
	}
}

// FuzzParse checks that no line panics, that counters of plain integers are exact, and
// that what is returned are parts of the line.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"a:1|c", "a:1|c|@0.1|#x:y,z", "a:b|s", "a:1:2:-3|c|T5", "a:1.5|g", "_e{1,1}:a|b", "a:9223372036854775807:1|c", ":|@|#"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, datagram []byte) {
		var m statsd.Metric
		for rest := datagram; ; {
			var line []byte
			if line, rest = statsd.Cut(rest); line == nil {
				break
			}
			if bytes.ContainsRune(line, '\n') || len(line) == 0 {
				t.Fatalf("line %q", line)
			}
			if m.Parse(line) != nil || m.Kind == statsd.Other {
				continue
			}
			if len(m.Name) == 0 || m.Part < 0 || m.Part >= 1 || !bytes.HasPrefix(line, m.Name) || m.Time < 0 {
				t.Fatalf("%q: %+v", line, m)
			}
			values, _, _ := bytes.Cut(line[len(m.Name)+1:], []byte{'|'})
			if m.Kind == statsd.Set {
				if !bytes.Equal(values, m.Item) {
					t.Fatalf("%q: %+v", line, m)
				}
				continue
			}
			sum := new(big.Int)
			for one := range strings.SplitSeq(string(values), ":") {
				n, err := strconv.ParseInt(one, 10, 64)
				if err != nil {
					return
				}
				sum.Add(sum, big.NewInt(n))
			}
			if !bytes.ContainsRune(line, '@') && (!sum.IsInt64() || sum.Int64() != m.Count || m.Part != 0) {
				t.Fatalf("%q: %+v, want %v", line, m, sum)
			}
		}
	})
}

func BenchmarkParse(b *testing.B) {
	line := []byte("page.views:1|c|#country:DE,platform:web")
	var m statsd.Metric
	b.ReportAllocs()
	for b.Loop() {
		if err := m.Parse(line); err != nil {
			b.Fatal(err)
		}
	}
}
