package resp_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/quipudb/quipu/internal/load/redisproc"
	"github.com/quipudb/quipu/internal/server/resp"
)

// Every field of INFO is one of Redis's, in the same section, or says that it is not;
// and INFO without a name has the sections that are not long.
func TestSameInfoAsRedis(t *testing.T) {
	p := newPair(t, open(t, resp.Options{}).addr, redisproc.For(t).Addr)
	for _, words := range []string{"INCR a", "SET b 1 EX 100", "SET c 2 PX 300000", "SELECT 3", "INCR a", "NOSUCH", "INCR"} {
		p.both(words)
	}
	for _, words := range []string{"INFO", "INFO all", "INFO default", "INFO everything", "INFO server CPU", "INFO commandstats", "INFO keyspace", "INFO nosuch"} {
		ours, redis := p.both(words)
		got, want := sectionsOf(ours), sectionsOf(redis)
		for name, fields := range got {
			if want[name] == nil {
				t.Errorf("%s: section %q is not Redis's", words, name)
			}
			for field := range fields {
				if _, known := want[name][field]; !known && !strings.HasPrefix(field, "quipu_") && !strings.HasPrefix(field, "cmdstat_") {
					t.Errorf("%s: field %q of section %q is not Redis's", words, field, name)
				}
			}
		}
	}
	ours, redis := p.both("INFO keyspace")
	ttl := regexp.MustCompile(`avg_ttl=\d+`)
	if got, want := ttl.ReplaceAllString(ours, ""), ttl.ReplaceAllString(redis, ""); got[strings.Index(got, "#"):] != want[strings.Index(want, "#"):] {
		t.Errorf("INFO keyspace: %q, Redis %q", ours, redis)
	}
	if average := sectionsOf(ours)["Keyspace"]["db0"]; !regexp.MustCompile(`avg_ttl=(19\d{4}|200000)$`).MatchString(average) {
		t.Errorf("INFO keyspace: %q, which is not about 200 s", average)
	}
}

// sectionsOf returns the fields of what INFO replies.
func sectionsOf(info string) map[string]map[string]string {
	all := map[string]map[string]string{}
	var section map[string]string
	for line := range strings.SplitSeq(info, "\r\n") {
		if name, ok := strings.CutPrefix(line, "# "); ok {
			section = map[string]string{}
			all[name] = section
		} else if field, value, ok := strings.Cut(line, ":"); ok {
			section[field] = value
		}
	}
	return all
}

// INFO and CONFIG tell what the store does, not what Redis would.
func TestInfoOfStores(t *testing.T) {
	f := func(d *door, want map[string]string) {
		t.Helper()
		c := dial(t, d.addr)
		fields := sectionsOf(c.line("INFO persistence"))["Persistence"]
		for name, value := range want {
			if got := fields[name]; got != value && !strings.Contains(name, "append") {
				t.Errorf("%s:%s, want %s, of %v", name, got, value, slices.Sorted(maps.Keys(fields)))
			}
		}
		for _, name := range []string{"appendonly", "appendfsync"} {
			c.expect("CONFIG GET "+name, "*2\r\n"+bulk(name)+bulk(want[name]))
		}
	}
	f(openEmbedded(t), map[string]string{"aof_enabled": "1", "quipu_store": "embedded", "quipu_durability": "synced", "appendonly": "yes", "appendfsync": "always"})
	f(open(t, resp.Options{}), map[string]string{"aof_enabled": "0", "quipu_store": "memory", "quipu_durability": "memory", "appendonly": "no", "appendfsync": "no"})
}
