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
	for _, token := range []string{"5:plainplain", "5:plainblind", "4:gonedecided", "1:asettled"} {
		show("hget", "t:n", token)
	}
	show("llen", "q:n")
	show("zscore", "due", "1:nuntil")
	show("sismember", "names", "n")
	for _, w := range []store.Writer{adds, decided} {
		show("hget", "marks", fmt.Sprint(w))
		show("hstrlen", "marks", fmt.Sprint(w)) // a space at its end is not shown
	}
	for _, field := range []string{"now", "version", "removed", "floor", "deltas", "sum_high", "sum_low", "check_high", "check_low"} {
		show("hget", "head", field)
	}
	storetest.Golden(t, filepath.Join("testdata", "values.golden"), *rewrite, pieces)
}
