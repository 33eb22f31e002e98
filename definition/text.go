package definition

import (
	"strconv"
	"strings"
)

// String returns d as a YAML mapping on one line, without defaults, as files
// have it.
func (d Definition) String() string {
	parts := []string{"pattern: " + strconv.Quote(d.Pattern)}
	if len(d.Windows) > 0 {
		parts = append(parts, "windows: "+list(d.Windows))
	}
	if len(d.Dimensions) > 0 {
		parts = append(parts, "dimensions: "+list(d.Dimensions))
	}
	if d.Ledger.Record != Off {
		parts = append(parts, "ledger: "+d.Ledger.String())
	}
	if d.Late.Then != Count {
		parts = append(parts, "late: "+d.Late.String())
	}
	if d.Floor != nil {
		parts = append(parts, "floor: "+strconv.FormatInt(*d.Floor, 10))
	}
	if d.Ceiling != nil {
		parts = append(parts, "ceiling: "+strconv.FormatInt(*d.Ceiling, 10))
	}
	if len(d.Choices) > 0 {
		parts = append(parts, "choices: "+choices(d.Choices))
	}
	if d.Shards != 0 {
		parts = append(parts, "shards: "+strconv.Itoa(d.Shards))
	}
	if d.Once != (Once{}) {
		parts = append(parts, "once: "+d.Once.String())
	}
	if d.Unique != (Unique{}) {
		parts = append(parts, "unique: "+d.Unique.String())
	}
	if len(d.Tops) > 0 {
		parts = append(parts, "top: "+list(d.Tops))
	}
	if len(d.Limits) > 0 {
		parts = append(parts, "limits: "+list(d.Limits))
	}
	if d.Away != (Away{}) {
		parts = append(parts, "away: "+d.Away.String())
	}
	if d.Clients != 0 {
		parts = append(parts, "clients: "+strconv.FormatInt(d.Clients, 10))
	}
	if d.Reservations != nil {
		parts = append(parts, "reservations: "+d.Reservations.String())
	}
	return mapping(parts...)
}

// String returns w as a file has it.
func (w Window) String() string {
	parts := []string{"every: " + w.Every.String()}
	if w.Zone != "" {
		parts = append(parts, "zone: "+strconv.Quote(w.Zone))
	}
	return mapping(append(parts, "keep: "+w.Keep.String())...)
}

// String returns d as a file has it.
func (d Dimension) String() string {
	by := d.Name()
	if len(d.By) != 1 {
		by = "[" + strings.Join(d.By, ", ") + "]"
	}
	if d.Windows == nil && d.Limit == 0 {
		return by
	}
	parts := []string{"by: " + by}
	if d.Windows != nil {
		parts = append(parts, "windows: "+list(d.Windows))
	}
	if d.Limit != 0 {
		parts = append(parts, "limit: "+strconv.Itoa(d.Limit))
	}
	return mapping(parts...)
}

// String returns l as a file has it.
func (l Ledger) String() string {
	if l.Keep == 0 {
		return l.Record.String()
	}
	return mapping("record: "+l.Record.String(), "keep: "+l.Keep.String())
}

// String returns l as a file has it.
func (l Late) String() string {
	if l.After == 0 {
		return l.Then.String()
	}
	return mapping("after: "+l.After.String(), "then: "+l.Then.String())
}

func mapping(parts ...string) string { return "{" + strings.Join(parts, ", ") + "}" }

func list[T interface{ String() string }](items []T) string {
	texts := make([]string, len(items))
	for i, item := range items {
		texts[i] = item.String()
	}
	return "[" + strings.Join(texts, ", ") + "]"
}
