package policy

import (
	"slices"
	"strings"
	"time"

	"github.com/quipudb/quipu/store"
)

// A Named is a preset: a policy without a pattern for a common kind of counter.
type Named struct {
	Name    string
	Promise string // what it promises, in a sentence
	Policy  Policy
}

// Presets returns all presets.
func Presets() []Named {
	return []Named{
		{
			"likes", "Every acknowledged like is durable; a read is a total of up to a second ago and what this server counted since.",
			Policy{Timing: Hybrid, Stale: 10 * time.Minute},
		},
		{
			"views", "With an embedded store, a power loss may take the last views; a read is a total of up to five seconds ago.",
			Policy{Durability: store.Written, Timing: Rollup, Interval: 5 * time.Second, Stale: time.Hour},
		},
		{
			"stock", "Exact and durable: one cell decides every write, and a read is exact or fails. None takes it below 0 once its definition has a floor of 0.",
			Policy{Single: true},
		},
		{
			"quota", "Exact: one cell decides every write; with an embedded store, a power loss may give back what was used last.",
			Policy{Single: true, Durability: store.Written},
		},
		{
			"visitors", "Durable; it counts visits, and with unique: who in its definition people too; a read is a total of up to five seconds ago.",
			Policy{Spread: SpreadWho, Timing: Rollup, Interval: 5 * time.Second, Stale: time.Hour},
		},
		{
			"metrics", "Cheap: a crash may lose the last moments, and a read is a total of up to ten seconds ago that may lack a part, and then says so.",
			Policy{Durability: store.Memory, Spread: SpreadTime, Timing: Rollup, Interval: 10 * time.Second, Stale: time.Hour, Partial: true},
		},
		{
			"best-effort", "Fastest: a crash may lose what was acknowledged, and a read may be a second old or lack a part, and then says so.",
			Policy{Durability: store.Memory, Timing: Rollup, Stale: time.Hour, Partial: true},
		},
		{
			"eventual", "Durable; a read is a total of up to a second ago, or of up to ten minutes ago while the store can't be reached.",
			Policy{Timing: Rollup, Stale: 10 * time.Minute},
		},
		{
			"accurate", "Durable; a read asks every shard, and is exact or fails.",
			Policy{Timing: FanIn},
		},
	}
}

// Preset returns the preset with a name.
func Preset(name string) (Policy, bool) {
	for _, p := range Presets() {
		if p.Name == name {
			return p.Policy, true
		}
	}
	return Policy{}, false
}

func presetNames() string {
	var names []string
	for _, p := range Presets() {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
