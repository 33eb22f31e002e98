package clienttest

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"
)

// TestGoRedisSketches calls the typed methods of go-redis on sketches.
func TestGoRedisSketches(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprint(protocol), func(t *testing.T) {
			c := goredis.NewClient(&goredis.Options{Addr: addr, Protocol: protocol})
			defer func() { _ = c.Close() }()
			goRedisSketches(t, t.Context(), c)
		})
	}
}

func goRedisSketches(t *testing.T, ctx context.Context, c *goredis.Client) {
	t.Helper()
	f := func(got any, err error, want any) {
		t.Helper()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%#v, %v; want %#v", got, err, want)
		}
	}
	fails := func(err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	c.FlushAll(ctx)

	add, err := c.PFAdd(ctx, "u", "a", "b", "a").Result()
	f(add, err, int64(1))
	add, err = c.PFAdd(ctx, "u", "b").Result()
	f(add, err, int64(0))
	c.PFAdd(ctx, "v", "b", "c")
	count, err := c.PFCount(ctx, "u", "v", "none").Result()
	f(count, err, int64(3))
	done, err := c.PFMerge(ctx, "w", "u", "v").Result()
	f(done, err, "OK")
	count, err = c.PFCount(ctx, "w").Result()
	f(count, err, int64(3))
	fails(c.Get(ctx, "u").Err(), "WRONGTYPE")

	done, err = c.BFReserve(ctx, "b", 0.01, 1000).Result()
	f(done, err, "OK")
	fails(c.BFReserve(ctx, "b", 0.01, 1000).Err(), "ERR item exists")
	done, err = c.BFReserveExpansion(ctx, "e", 0.01, 1000, 4).Result()
	f(done, err, "OK")
	done, err = c.BFReserveNonScaling(ctx, "n", 0.01, 1000).Result()
	f(done, err, "OK")
	is, err := c.BFAdd(ctx, "b", "x").Result()
	f(is, err, true)
	is, err = c.BFAdd(ctx, "b", "x").Result()
	f(is, err, false)
	all, err := c.BFMAdd(ctx, "b", "x", "y").Result()
	f(all, err, []bool{false, true})
	is, err = c.BFExists(ctx, "b", "y").Result()
	f(is, err, true)
	all, err = c.BFMExists(ctx, "b", "y", "z").Result()
	f(all, err, []bool{true, false})
	all, err = c.BFInsert(ctx, "i", &goredis.BFInsertOptions{Capacity: 50, Error: 0.1, Expansion: 3}, "x", "y").Result()
	f(all, err, []bool{true, true})
	info, err := c.BFInfo(ctx, "i").Result()
	f([]int64{info.Capacity, info.Filters, info.ItemsInserted, info.ExpansionRate}, err, []int64{50, 1, 2, 3})
	info, err = c.BFInfoCapacity(ctx, "b").Result()
	f(info.Capacity, err, int64(1000))
	info, err = c.BFInfoItems(ctx, "b").Result()
	f(info.ItemsInserted, err, int64(2))
	count, err = c.BFCard(ctx, "b").Result()
	f(count, err, int64(2))
	done, err = c.Type(ctx, "b").Result()
	f(done, err, "MBbloom--")

	done, err = c.CMSInitByDim(ctx, "c", 2000, 7).Result()
	f(done, err, "OK")
	done, err = c.CMSInitByProb(ctx, "p", 0.001, 0.01).Result()
	f(done, err, "OK")
	counts, err := c.CMSIncrBy(ctx, "c", "x", 5, "y", 1).Result()
	f(counts, err, []int64{5, 1})
	counts, err = c.CMSQuery(ctx, "c", "y", "x", "z").Result()
	f(counts, err, []int64{1, 5, 0})
	done, err = c.CMSMergeWithWeight(ctx, "p", map[string]int64{"c": 2, "p": 1}).Result()
	f(done, err, "OK")
	counts, err = c.CMSQuery(ctx, "p", "x").Result()
	f(counts, err, []int64{10})
	sizes, err := c.CMSInfo(ctx, "c").Result()
	f(sizes, err, goredis.CMSInfo{Width: 2000, Depth: 7, Count: 6})
	fails(c.CMSQuery(ctx, "none", "x").Err(), "CMS: key does not exist")

	done, err = c.TopKReserve(ctx, "t", 2).Result()
	f(done, err, "OK")
	done, err = c.TopKReserveWithOptions(ctx, "o", 3, 50, 5, 0.9).Result()
	f(done, err, "OK")
	if _, err = c.TopKAdd(ctx, "t", "x", "y", "x").Result(); err != nil {
		t.Error(err)
	}
	out, err := c.TopKIncrBy(ctx, "t", "z", 9).Result()
	f(out, err, []string{"y"})
	all, err = c.TopKQuery(ctx, "t", "x", "y").Result()
	f(all, err, []bool{true, false})
	counts, err = c.TopKCount(ctx, "t", "x", "y", "z").Result()
	f(counts, err, []int64{2, 1, 9})
	list, err := c.TopKList(ctx, "t").Result()
	f(list, err, []string{"z", "x"})
	listed, err := c.TopKListWithCount(ctx, "t").Result()
	f(listed, err, map[string]int64{"z": 9, "x": 2})
	top, err := c.TopKInfo(ctx, "t").Result()
	f(top.K, err, int64(2))

	var piped *goredis.IntCmd
	if _, err := c.TxPipelined(ctx, func(p goredis.Pipeliner) error {
		p.PFAdd(ctx, "m", "a", "b")
		piped = p.PFCount(ctx, "m")
		return nil
	}); err != nil {
		t.Error(err)
	}
	f(piped.Val(), piped.Err(), int64(2))
}
