package metamorph

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/store"
)

// A skewed is a store whose time is told wrongly to one of those who use it.
type skewed struct {
	store.Store
	store.Auditor
	by time.Duration
}

// NowMS returns a time that is wrong.
func (s skewed) NowMS(store.Cell) int64 { return time.Now().Add(s.by).UnixMilli() }

// skew has servers whose clocks differ by two days count events that name no time. Each is
// in one window, of one value and in one line, whoever reads them. Between a definition and
// the next they rest: for a second, so that all read it, or until floors are raised.
func skew(t *testing.T, back *backing, rest time.Duration) {
	const day = 24 * time.Hour
	var dbs []*quipu.DB
	for _, by := range []time.Duration{0, -day, day} {
		s := must[store.Store](t)(back.use(t.Context()))
		db := quipu.New(skewed{s, s.(store.Auditor), by}, quipu.Options{Policies: []quipu.Policy{{Pattern: "*", Shards: 2}}})
		defer func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		}()
		dbs = append(dbs, db)
	}
	const keep = definition.Keep(60 * time.Hour) // Some more than the clocks differ.
	minutes, hours := definition.Window{Every: width("1m"), Keep: keep}, definition.Window{Every: width("1h"), Keep: keep}
	days := definition.Window{Every: width("1d"), Zone: "America/Lima", Keep: definition.Keep(600 * day)}
	ctx, total := t.Context(), int64(0)
	for i, windows := range [][]definition.Window{{hours, minutes}, {hours, days}} {
		must[quipu.Change](t)(dbs[0].Define(ctx, []definition.Definition{{
			Pattern: "*", Windows: windows, Dimensions: []definition.Dimension{{By: []string{"country"}}}, Ledger: definition.Ledger{Record: definition.All},
		}}, quipu.DefineOptions{}))
		for j := range 30 {
			n := int64(1 + j%4)
			opts := []quipu.WriteOption{quipu.Dim("country", lands[j%len(lands)]), quipu.Who(whos[j%len(whos)])}
			if j%3 == 0 {
				opts = append(opts, quipu.Token(fmt.Sprint(i, "/", j)))
			}
			for again := range 1 + len(opts)/3 { // with a token it is sent twice, through two servers
				r := must[quipu.Receipt](t)(dbs[(j+again)%len(dbs)].Add(ctx, "a", n, opts...))
				if r.Replayed != (again > 0) {
					t.Errorf("add %d of %d, attempt %d: %+v", j, i, again, r)
				}
			}
			total += n
		}
		pause(ctx, rest)
		for _, db := range dbs {
			now := time.Now()
			from, to := now.Add(-30*time.Hour), now.Add(30*time.Hour)
			read := must[quipu.Count](t)(db.Read(ctx, "a", quipu.Exact()))
			series := must[quipu.Series](t)(db.Range(ctx, "a", quipu.RangeOptions{From: from, To: to, Step: width("1h")}))
			ever := must[quipu.Breakdown](t)(db.By(ctx, "a", "country", quipu.ByOptions{}))
			since := must[quipu.Breakdown](t)(db.By(ctx, "a", "country", quipu.ByOptions{From: from, To: to}))
			lines := must[[]string](t)(ledgerOf(ctx, db, "a"))
			if read.Value != total || series.Sum != total || ever.Sum != total || since.Sum != total || len(lines) != 30*(i+1) {
				t.Errorf("definitions %d: %d windows %d values %d %d, %d lines; want %d", i, read.Value, series.Sum, ever.Sum, since.Sum, len(lines), total)
			}
			if a := must[quipu.Audit](t)(db.Verify(ctx)); len(a.Drift) > 0 {
				t.Errorf("drift: %+v", a.Drift)
			}
		}
	}
}

func TestSkewInMemory(t *testing.T) {
	for _, partitions := range []int{1, 8} {
		synctest.Test(t, func(t *testing.T) { skew(t, inMemory(partitions), 2*time.Minute) })
	}
}

func TestSkewPostgres(t *testing.T) { skew(t, overPostgres(t), 1100*time.Millisecond) }
