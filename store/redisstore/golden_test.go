package redisstore_test

import (
	"flag"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quipudb/quipu/store"
	"github.com/quipudb/quipu/store/redisstore"
	"github.com/quipudb/quipu/store/storetest"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// TestGolden compares what a history leaves in Redis with testdata, written by the
// scripts as well as from here.
func TestGolden(t *testing.T) {
	p, now := prefix(), time.UnixMilli(1_700_000_000_000)
	k := kit{t, open(t, "redis://"+single.Addr, redisstore.Options{Prefix: p, Partitions: 1, Now: func() time.Time { return now }})}
	blind := func(d store.Delta) store.Delta {
		d.Want = false
		return d
	}
	k.reply(k.batch(add("plain", 5), once(add("plain", -7), "plain"), once(blind(add("plain", 1)), "blind")))
	k.reply(k.batch(
		store.Delta{Cell: cell("until"), Op: store.OpSet, N: math.MaxInt64, Expiry: store.ExpirySet, DeadlineMS: now.UnixMilli() + 1},
		store.Delta{Cell: cell("laid"), Op: store.OpLayout, N: 1<<40 + 1, Guard: store.Guard{Laid: true}},
		once(store.Delta{Cell: cell("gone"), Op: store.OpDelete, Want: true}, "decided"), settle("settled"),
	))
	k.reply(store.Batch{Deltas: []store.Delta{{Op: store.OpRetire, N: int64(k.enlist())}}})
	adds, decided := k.enlist(), k.enlist()
	k.reply(k.numbered(adds, 0, 1<<33, add("plain", 1), blind(add("new", 2)), add("plain", 300)))
	k.reply(k.numbered(decided, 0, 1, add("plain", math.MaxInt64), store.Delta{Cell: cell("until"), Op: store.OpGet, Want: true}, add("plain", -1)))
	values := store.PartFields{Kind: store.PartWindowDim, View: 258, Epoch: 1<<28 + 5, Position: -1, Name: "é"}.Part()
	event := with(once(add("event", 3), "event"), rides(held, 4), rides(values, -5), line("text"))
	member := led(once(store.Delta{Cell: cell("event"), Op: store.OpSet, N: 1, Want: true, Guard: store.Guard{Exists: store.ExistsMust}}, "refused"), member("eve"))
	k.reply(store.Batch{
		Books: []store.Book{{Namespace: "n", ID: 9}}, Deltas: []store.Delta{event, member},
		Floors: []store.Floor{{Namespace: "n", Kind: store.PartWindow, View: 258, Epoch: 1<<28 + 4}},
	})

	var pieces []storetest.Piece
	show := func(name string, args ...string) {
		t.Helper()
		args[0] = p + ":{0}:" + args[0]
		pieces = append(pieces, storetest.Piece{
			Name:  name + " " + strings.TrimPrefix(strings.Join(args, " "), p+":{0}:"),
			Bytes: []byte(command(t, single, append([]string{name}, args...)...)),
		})
	}
	for _, key := range []string{"plain", "until", "laid", "new"} {
		show("hget", "v:n", key)
		show("hget", "s:n", key)
		show("zscore", "i:n", key)
	}
	for _, token := range []string{"5:plainplain", "5:plainblind", "4:gonedecided", "1:asettled", "5:eventevent", "5:eventrefused"} {
		show("hget", "t:n", token)
	}
	show("llen", "q:n")
	show("zscore", "due", "1:nuntil")
	show("sismember", "names", "n")
	for _, w := range []store.Writer{adds, decided} {
		show("hget", "marks", fmt.Sprint(w))
		show("hstrlen", "marks", fmt.Sprint(w)) // a space at its end is not shown
	}
	for _, field := range []string{"now", "version", "removed", "floor", "deltas", "sum_high", "sum_low", "check_high", "check_low", "b:n", "f:810102:n", "r:n"} {
		show("hget", "head", field)
	}
	// Names of parts have bytes that no argument can have.
	all := "local a = {} for i, x in ipairs(redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2))) do a[i] = string.gsub(x, '.', function(c) return string.format('%02x', string.byte(c)) end) end return a"
	for _, of := range [][]string{
		{"p:08:n", "hgetall"},
		{"o:08:n", "zrange", "0", "-1"},
		{"p:82010210000005:n", "hgetall"},
		{"o:82010210000005:n", "zrange", "0", "-1"},
		{"p:83000100000007:n", "hgetall"},
		{"drawers", "zrange", "0", "-1"},
		{"tally", "hkeys"},
		{"tally", "hvals"},
	} {
		pieces = append(pieces, storetest.Piece{
			Name:  "hex of " + of[1] + " " + of[0],
			Bytes: []byte(command(t, single, append([]string{"eval", all, "1", p + ":{0}:" + of[0]}, of[1:]...)...)),
		})
	}
	storetest.Golden(t, filepath.Join("testdata", "values.golden"), *rewrite, pieces)
}
