package clienttest

import (
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/go-redsync/redsync/v4"
	lockpool "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredis "github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/goredisstore.v9"
	"github.com/ulule/limiter/v3"
	limiterstore "github.com/ulule/limiter/v3/drivers/store/redis"
)

// These are libraries whose work is done by scripts.

func dialGoRedis(t *testing.T) *goredis.Client {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: addr})
	t.Cleanup(func() { _ = c.Close() })
	if err := c.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	return c
}

// admitted calls a limiter from several goroutines and returns how often it has allowed.
func admitted(t *testing.T, allow func() (bool, error)) int {
	t.Helper()
	var n atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 10 {
				ok, err := allow()
				if err != nil {
					t.Error(err)
				} else if ok {
					n.Add(1)
				}
			}
		})
	}
	all.Wait()
	return int(n.Load())
}

func TestRedisRate(t *testing.T) {
	ctx := t.Context()
	l := redis_rate.NewLimiter(dialGoRedis(t))
	limit := redis_rate.Limit{Rate: 10, Burst: 10, Period: time.Hour}
	if n := admitted(t, func() (bool, error) {
		r, err := l.Allow(ctx, "user", limit)
		return err == nil && r.Allowed == 1, err
	}); n != 10 {
		t.Errorf("%d were allowed, want 10", n)
	}
	r, err := l.AllowN(ctx, "other", limit, 4)
	if err != nil || r.Allowed != 4 || r.Remaining != 6 || r.RetryAfter != -1 || r.ResetAfter < 20*time.Minute {
		t.Errorf("AllowN: %+v, %v", r, err)
	}
	r, err = l.AllowAtMost(ctx, "other", limit, 100)
	if err != nil || r.Allowed != 6 || r.Remaining != 0 {
		t.Errorf("AllowAtMost: %+v, %v", r, err)
	}
	if err := l.Reset(ctx, "other"); err != nil {
		t.Error(err)
	}
	if r, err = l.Allow(ctx, "other", limit); err != nil || r.Allowed != 1 || r.Remaining != 9 {
		t.Errorf("after Reset: %+v, %v", r, err)
	}
}

func TestUluleLimiter(t *testing.T) {
	ctx := t.Context()
	c := dialGoRedis(t)
	store, err := limiterstore.NewStoreWithOptions(c, limiter.StoreOptions{Prefix: "ulule"})
	if err != nil {
		t.Fatal(err)
	}
	l := limiter.New(store, limiter.Rate{Period: time.Hour, Limit: 10})
	if n := admitted(t, func() (bool, error) {
		r, err := l.Get(ctx, "user")
		return !r.Reached, err
	}); n != 10 {
		t.Errorf("%d were allowed, want 10", n)
	}
	if err := c.ScriptFlush(ctx).Err(); err != nil { // It loads its scripts again.
		t.Fatal(err)
	}
	if r, err := l.Peek(ctx, "user"); err != nil || !r.Reached || r.Remaining != 0 || r.Limit != 10 {
		t.Errorf("Peek: %+v, %v", r, err)
	}
	if _, err := l.Reset(ctx, "user"); err != nil {
		t.Error(err)
	}
	if r, err := l.Increment(ctx, "user", 3); err != nil || r.Remaining != 7 {
		t.Errorf("Increment: %+v, %v", r, err)
	}
}

func TestThrottled(t *testing.T) {
	ctx := t.Context()
	store, err := goredisstore.NewCtx(dialGoRedis(t), "throttled:")
	if err != nil {
		t.Fatal(err)
	}
	l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerHour(10), MaxBurst: 9})
	if err != nil {
		t.Fatal(err)
	}
	l.SetMaxCASAttemptsLimit(1000)
	if n := admitted(t, func() (bool, error) {
		limited, _, err := l.RateLimitCtx(ctx, "user", 1)
		return !limited, err
	}); n != 10 {
		t.Errorf("%d were allowed, want 10", n)
	}
	limited, r, err := l.RateLimitCtx(ctx, "other", 3)
	if err != nil || limited || r.Remaining != 7 || r.Limit != 10 {
		t.Errorf("%v, %+v, %v", limited, r, err)
	}
}

func TestRedsync(t *testing.T) {
	ctx := t.Context()
	c := dialGoRedis(t)
	locks := redsync.New(lockpool.NewPool(c))
	inside, count := make(chan struct{}, 1), 0
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 5 {
				m := locks.NewMutex("lock", redsync.WithTries(10_000), redsync.WithRetryDelay(time.Millisecond))
				if err := m.LockContext(ctx); err != nil {
					t.Error(err)
					return
				}
				select {
				case inside <- struct{}{}:
				default:
					t.Error("two have the lock")
					return
				}
				count++
				<-inside
				if ok, err := m.ExtendContext(ctx); err != nil || !ok {
					t.Errorf("Extend: %v, %v", ok, err)
				}
				if ok, err := m.UnlockContext(ctx); err != nil || !ok {
					t.Errorf("Unlock: %v, %v", ok, err)
				}
			}
		})
	}
	all.Wait()
	if count != 20 {
		t.Errorf("%d have had it, want 20", count)
	}
	m, other := locks.NewMutex("lock"), locks.NewMutex("lock", redsync.WithTries(1))
	if err := m.LockContext(ctx); err != nil {
		t.Fatal(err)
	}
	var taken *redsync.ErrTaken
	if err := other.LockContext(ctx); !errors.As(err, &taken) {
		t.Errorf("a lock that is taken: %v", err)
	}
	if err := c.Set(ctx, "lock", "another's", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if ok, err := m.UnlockContext(ctx); ok {
		t.Errorf("gave back another's lock: %v", err)
	}
}

// The same of npm: rate-limit-redis, rate-limiter-flexible, redlock.
func TestNodeLimiters(t *testing.T) {
	program(t, "nodejs npm", "node", filepath.Join("testdata", "node", "limiters.mjs"), addr)
}

// bottleneck shares its limiters between processes by scripts on hashes and sorted sets, and tells by channels
// who may go on. It runs over ioredis and over node-redis 3, the last that it takes.
func TestBottleneck(t *testing.T) {
	program(t, "nodejs npm", "node", filepath.Join("testdata", "node", "bottleneck.mjs"), addr)
}
