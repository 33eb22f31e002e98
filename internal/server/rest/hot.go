package rest

import (
	"math"
	"strconv"
	"time"

	"github.com/quipudb/quipu/internal/port"
)

// hotDefault is how many counters are replied if the caller does not say.
const hotDefault = 20

// hot replies the counters that are written to the most, of all namespaces.
func hot(c *call) error {
	limit := hotDefault
	if v := c.query.Get("limit"); v != "" {
		var err error
		limit, err = strconv.Atoi(v)
		if err != nil || limit < 1 || limit > port.HottestMax {
			return invalid("limit", "want an integer between 1 and "+strconv.Itoa(port.HottestMax)+", not "+strconv.Quote(v))
		}
	}
	if err := c.take(int64(limit) * entryBytes); err != nil {
		return err
	}
	c.out = append(c.out[:0], `{"counters":[`...)
	for i, h := range c.db.Port().Hottest(limit) {
		if i > 0 {
			c.out = append(c.out, ',')
		}
		c.out = appendHot(c.out, &h)
	}
	c.out = append(c.out, "]}\n"...)
	c.w.Header()["Cache-Control"] = cacheNever
	return c.reply()
}

// appendHot appends a hot counter. What is known only of one that is split, or
// whose total is kept, is left out of others.
func appendHot(b []byte, h *port.HotCounter) []byte {
	b = append(b, `{"namespace":`...)
	b = appendString(b, h.Namespace)
	b = append(b, `,"key":`...)
	b = appendString(b, h.Key)
	b = append(b, `,"rate":`...)
	b = appendRate(b, h.Rate)
	b = append(b, `,"shards":`...)
	b = strconv.AppendInt(b, int64(h.Shards), 10)
	b = append(b, `,"waiting_ratio":`...)
	b = appendRatio(b, h.Waiting)
	b = append(b, `,"retries_per_second":`...)
	b = appendRate(b, h.RetryRate)
	b = append(b, `,"value_ratio":`...)
	b = appendRatio(b, h.Asked)
	b = append(b, `,"decided_ratio":`...)
	b = appendRatio(b, h.Decided)
	if h.P99 > 0 {
		b = append(b, `,"p99_ms":`...)
		b = appendMS(b, h.P99)
	}
	if h.SlowestShard > 0 {
		b = append(b, `,"slowest_shard_p99_ms":`...)
		b = appendMS(b, h.SlowestShard)
	}
	if h.Shards > 1 && h.GrowthRate > 0 { // else it was not measured yet, or does not change
		b = append(b, `,"growth_rate":`...)
		b = appendRate(b, h.GrowthRate)
	}
	if h.HasRollup {
		b = append(b, `,"rollup_age_ms":`...)
		b = strconv.AppendInt(b, h.RollupAge.Milliseconds(), 10)
		b = append(b, `,"rollup_interval_ms":`...)
		b = strconv.AppendInt(b, h.RollupEvery.Milliseconds(), 10)
	}
	return append(b, '}')
}

// appendRatio appends a part of the whole, to a hundredth.
func appendRatio(b []byte, ratio float64) []byte {
	return strconv.AppendFloat(b, math.Round(ratio*100)/100, 'f', -1, 64)
}

// appendMS appends a time in milliseconds, to a hundredth.
func appendMS(b []byte, d time.Duration) []byte {
	return strconv.AppendFloat(b, math.Round(float64(d)/1e4)/100, 'f', -1, 64)
}

// appendRate appends a rate, to a tenth: more digits than that are chance.
func appendRate(b []byte, rate float64) []byte {
	return strconv.AppendFloat(b, math.Round(rate*10)/10, 'f', -1, 64)
}
