package pulse

import (
	"math"
	"slices"
	"time"

	"github.com/quipudb/quipu/internal/server"
)

// overview makes an overview of a reading, and of those before it. It is called with
// the lock held.
func (u *Pulse) overview(now *server.Reading) Overview {
	past := func(beats int) *server.Reading {
		if len(u.readings) == 0 {
			return now
		}
		return u.readings[max(0, len(u.readings)-beats)]
	}
	o := Overview{
		At: now.At.UTC(), Rates: ratesOf(past(rateBeats), now),
		Durability: Durability{LagMS: lagOf(past(rateBeats), now)},
		Memory:     Memory{Process: int64(now.Values["process_resident_memory_bytes"]), Limits: map[string]int64{}},
		Layouts: Layouts{
			Split: int64(now.Values["quipu_split_counters"]), Shards: int64(now.Values["quipu_shards"]), Most: int64(now.Values["quipu_shards_most"]),
		},
		Rollups: Rollups{Kept: int64(now.Values["quipu_rollups"]), AgeRatio: round(now.Values["quipu_rollup_age_ratio"])},
	}
	for part, limit := range now.Limits {
		o.Memory.Limits[part] = int64(limit)
	}
	o.Durability.Queue = whole(now, "quipu_node_queue_deltas")
	o.Durability.QueueMax = whole(now, "quipu_node_queue_deltas_max")
	o.Durability.Unsaved = whole(now, "quipu_memory_dirty_cells")
	o.Memory.Cells = whole(now, "quipu_memory_cells")
	if free := whole(now, "quipu_disk_free_bytes"); free != nil {
		o.Disk = &Disk{Bytes: int64(now.Values["quipu_disk_bytes"]), Free: *free, Full: now.Values["quipu_disk_full"] != 0}
	}
	if at := now.Values["quipu_verify_timestamp_seconds"]; at > 0 {
		o.Verified = &Verified{
			At:    time.UnixMilli(int64(at * 1000)).UTC(),
			Cells: int64(now.Values["quipu_verify_cells"]), Drift: int64(now.Values["quipu_verify_drift"]),
		}
	}
	return o
}

// server returns what the server is now.
func (u *Pulse) server() Server {
	s := u.base
	s.Status, s.Down = "ready", u.health.Down
	if err := u.health.Ready(); err != nil {
		s.Status, s.Detail = "unavailable", server.ReadDetail(err)
	} else if len(s.Down) > 0 {
		s.Status, s.Detail = "degraded", server.ReadDetail(u.health.Err)
	}
	return s
}

// doors returns what each door does. Those that are opened after the last reading are
// there too.
func (u *Pulse) doors() []Door {
	all := []Door{}
	if u.about.Doors == nil {
		return all
	}
	last := len(u.readings) - 1
	now, rates, times := u.readings[last], u.readings[max(0, last-rateBeats)], u.readings[max(0, last-timesBeats)]
	for _, a := range u.about.Doors() {
		d := Door{Name: a.Name, Address: a.Address}
		if r := now.Doors[a.Name]; r != nil {
			lately := r.Since(rates.Doors[a.Name])
			d.Calls, d.Errors = per(lately.Calls, rates, now), per(lately.Errors, rates, now)
			d.Connections = int64(r.Connections)
			took := r.Since(times.Doors[a.Name])
			if p50, ok := took.Quantile(0.5); ok {
				p99, _ := took.Quantile(0.99)
				d.P50, d.P99 = millis(p50), millis(p99)
			}
		}
		all = append(all, d)
	}
	slices.SortStableFunc(all, func(a, b Door) int { return order(a.Name) - order(b.Name) })
	return all
}

// order is where a door stands in a list.
func order(name string) int { return slices.Index([]string{"http", "resp", "rpc", "statsd"}, name) }

// ratesOf returns what was done a second between two readings.
func ratesOf(before, now *server.Reading) Rates {
	rate := func(names ...string) float64 {
		sum := 0.0
		for _, n := range names {
			sum += now.Values[n] - before.Values[n]
		}
		return per(sum, before, now)
	}
	r := Rates{
		Writes:   rate("quipu_writes_total"),
		Reads:    rate("quipu_store_reads_total", "quipu_reads_rollup_total", "quipu_reads_coalesced_total", "quipu_reads_recalled_total"),
		Refused:  rate("quipu_writes_refused_total"),
		Replayed: rate("quipu_writes_replayed_total"),
		Unknown:  rate("quipu_writes_unknown_total"),
		Full:     rate("quipu_writes_full_total"),
		Allowed:  rate("quipu_limits_allowed_total"),
		Denied:   rate("quipu_limits_refused_total"),
	}
	failed := 0.0
	for name, d := range now.Doors {
		lately := d.Since(before.Doors[name])
		failed += lately.Errors
	}
	r.Errors = per(failed, before, now)
	return r
}

// lagOf returns how long it took to make writes durable: a sync of the log, or a
// combined batch to a shared store. It is nil if there was none.
func lagOf(before, now *server.Reading) *float64 {
	for _, m := range []struct{ times, seconds string }{
		{"quipu_log_syncs_total", "quipu_log_sync_seconds_total"},
		{"quipu_node_flights_total", "quipu_node_flight_seconds_total"},
	} {
		if n := now.Values[m.times] - before.Values[m.times]; n > 0 {
			return new(round((now.Values[m.seconds] - before.Values[m.seconds]) / n * 1000))
		}
	}
	return nil
}

// whole returns a metric, or nil if there is none of that name.
func whole(r *server.Reading, name string) *int64 {
	v, ok := r.Values[name]
	if !ok {
		return nil
	}
	return new(int64(v))
}

// per returns how many a second n is between two readings.
func per(n float64, before, now *server.Reading) float64 {
	took := now.At.Sub(before.At).Seconds()
	if took <= 0 || n <= 0 {
		return 0
	}
	return round(n / took)
}

func millis(d time.Duration) *float64 { return new(round(float64(d) / float64(time.Millisecond))) }

// round rounds to hundredths: more digits than that are chance.
func round(v float64) float64 { return math.Round(v*100) / 100 }
