package pulse

import "time"

// An Overview is how a server fares. Rates are those of the last seconds.
type Overview struct {
	At         time.Time  `json:"at"`
	Server     Server     `json:"server"`
	Rates      Rates      `json:"rates"`
	Doors      []Door     `json:"doors"`
	Durability Durability `json:"durability"`
	Memory     Memory     `json:"memory"`
	Disk       *Disk      `json:"disk,omitempty"` // of an embedded store
	Layouts    Layouts    `json:"layouts"`
	Rollups    Rollups    `json:"rollups"`
	Verified   *Verified  `json:"verified,omitempty"` // the last verify, if there was one
	Hot        []Hot      `json:"hot"`
	History    *History   `json:"history,omitempty"`
}

// A Server is what a server is, and whether it can serve.
type Server struct {
	Version    string    `json:"version"`
	Store      string    `json:"store"`
	Durability string    `json:"durability"`
	Shared     bool      `json:"shared"`
	ReadOnly   bool      `json:"read_only"`
	Started    time.Time `json:"started_at"`
	Status     string    `json:"status"` // ready, degraded or unavailable
	Detail     string    `json:"detail,omitempty"`
	Partitions int       `json:"partitions"`
	Down       []int     `json:"down,omitempty"`
}

// Rates are what a server does, a second.
type Rates struct {
	Writes   float64 `json:"writes"`
	Reads    float64 `json:"reads"`
	Refused  float64 `json:"refused"`
	Replayed float64 `json:"replayed"`
	Unknown  float64 `json:"unknown"`
	Full     float64 `json:"full"`
	Errors   float64 `json:"errors"` // calls that failed, and not by their callers' fault
	Allowed  float64 `json:"limits_allowed"`
	Denied   float64 `json:"limits_refused"`
}

// A Door is what one door does.
type Door struct {
	Name        string   `json:"name"`
	Address     string   `json:"address"`
	Calls       float64  `json:"calls_per_second"`
	Errors      float64  `json:"errors_per_second"`
	P50         *float64 `json:"p50_ms,omitempty"` // not there if there were no calls
	P99         *float64 `json:"p99_ms,omitempty"`
	Connections int64    `json:"connections"`
}

// Durability is how long writes wait to be durable.
type Durability struct {
	LagMS    *float64 `json:"lag_ms,omitempty"` // not there if nothing was written
	Queue    *int64   `json:"queue,omitempty"`
	QueueMax *int64   `json:"queue_max,omitempty"`
	Unsaved  *int64   `json:"unsaved_cells,omitempty"`
}

// Memory is what a server holds.
type Memory struct {
	Process int64            `json:"process_bytes"`
	Limits  map[string]int64 `json:"limits"`
	Cells   *int64           `json:"cells,omitempty"`
}

// A Disk is that of an embedded store.
type Disk struct {
	Bytes int64 `json:"bytes"`
	Free  int64 `json:"free_bytes"`
	Full  bool  `json:"full"`
}

// Layouts are the counters that are split.
type Layouts struct {
	Split  int64 `json:"split_counters"`
	Shards int64 `json:"shards"`
	Most   int64 `json:"shards_most"`
}

// Rollups are the totals that are kept for readers.
type Rollups struct {
	Kept     int64   `json:"kept"`
	AgeRatio float64 `json:"age_ratio"`
}

// A Verified is what a verify has found.
type Verified struct {
	At    time.Time `json:"at"`
	Cells int64     `json:"cells"`
	Drift int64     `json:"drift"`
}

// A Hot is one of the counters that are written to the most.
type Hot struct {
	Namespace string    `json:"namespace"`
	Key       string    `json:"key"`
	Rate      float64   `json:"rate"`
	Shards    int       `json:"shards"`
	P99       *float64  `json:"p99_ms,omitempty"`
	RollupAge *int64    `json:"rollup_age_ms,omitempty"`
	Rates     []float64 `json:"rates,omitempty"` // of the last minute, a second each
}

// A History is what the last minutes were, the oldest second first.
type History struct {
	StepMS int64      `json:"step_ms"`
	Writes []float64  `json:"writes"`
	Reads  []float64  `json:"reads"`
	Errors []float64  `json:"errors"`
	LagMS  []*float64 `json:"lag_ms"` // null where nothing was written
}
