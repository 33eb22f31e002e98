// Package protocol converts between the types of calls and the messages of
// quipupb, for the server and the client.
package protocol

import (
	"cmp"
	"slices"
	"time"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/definition"
	pb "github.com/quipudb/quipu/quipupb"
)

// EncodeTime returns a moment in Unix milliseconds: absent if it is the zero time.
func EncodeTime(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	return new(t.UnixMilli())
}

// DecodeTime returns a moment; one that is absent is the zero time.
func DecodeTime(ms *int64) time.Time {
	if ms == nil {
		return time.Time{}
	}
	return time.UnixMilli(*ms)
}

// EncodeDims returns values by the names of their dimensions.
func EncodeDims(dims []call.Dimension) map[string]string {
	if len(dims) == 0 {
		return nil
	}
	m := make(map[string]string, len(dims))
	for _, d := range dims {
		m[d.Name] = d.Value
	}
	return m
}

// DecodeDims returns dimensions in the order of their names.
func DecodeDims(m map[string]string) []call.Dimension {
	if len(m) == 0 {
		return nil
	}
	dims := make([]call.Dimension, 0, len(m))
	for name, value := range m {
		dims = append(dims, call.Dimension{Name: name, Value: value})
	}
	slices.SortFunc(dims, func(a, b call.Dimension) int { return cmp.Compare(a.Name, b.Name) })
	return dims
}

// EncodeKeep returns how long something is kept; "" is for ever.
func EncodeKeep(k definition.Keep) string {
	if k == 0 {
		return ""
	}
	return k.String()
}

// DecodeKeep returns what EncodeKeep was given.
func DecodeKeep(text string) (definition.Keep, error) {
	if text == "" {
		return 0, nil
	}
	return definition.ParseKeep(text)
}

// EncodeDefinition returns a definition as it is sent.
func EncodeDefinition(d *definition.Definition) *pb.Definition {
	out := &pb.Definition{
		Pattern: d.Pattern, Record: d.Ledger.Record.String(), Keep: EncodeKeep(d.Ledger.Keep), LateAfter: EncodeKeep(d.Late.After),
		Floor: d.Floor, Ceiling: d.Ceiling,
	}
	if d.Late.Then != definition.Count {
		out.Late = d.Late.Then.String()
	}
	if r := d.Reservations; r != nil {
		out.Reservations = &pb.Definition_Reservations{Max: r.Max, Total: r.Total, PerWho: r.PerWho, WhoTotal: r.Who, MaxTtl: EncodeKeep(r.MaxTTL)}
	}
	for _, w := range d.Windows {
		out.Windows = append(out.Windows, &pb.Definition_Window{Every: w.Every.String(), Zone: w.Zone, Keep: w.Keep.String()})
	}
	for _, by := range d.Dimensions {
		dim := &pb.Definition_Dimension{By: by.By, Some: by.Windows != nil, Limit: int32(by.Limit)}
		for _, w := range by.Windows {
			dim.Windows = append(dim.Windows, w.String())
		}
		out.Dimensions = append(out.Dimensions, dim)
	}
	out.Choices, out.Shards = d.Choices, int32(d.Shards)
	if o := d.Once; o != (definition.Once{}) {
		out.Once = &pb.Definition_Window{Every: o.Every.String(), Zone: o.Zone, Keep: EncodeKeep(o.Keep)}
		if out.OnceUsers = o.Users; o.Approximate != 0 {
			out.OnceApproximate = o.Approximate.String()
		}
	}
	if out.Unique = d.Unique.Of; d.Unique.Error != 0 {
		out.UniqueError = d.Unique.Error.String()
	}
	for _, t := range d.Tops {
		out.Top = append(out.Top, &pb.DefinedTop{Name: t.Name, By: t.By, K: int32(t.K)})
	}
	out.Limits, out.Clients = EncodeLimits(d.Limits), d.Clients
	out.Away, out.AwayServers = EncodeAway(d.Away)
	return out
}

// DecodeDefinition returns the definition that was sent. It may be none that is valid.
func DecodeDefinition(d *pb.Definition) (out definition.Definition, err error) {
	out.Pattern, out.Floor, out.Ceiling = d.Pattern, d.Floor, d.Ceiling
	for _, w := range d.Windows {
		one := definition.Window{Zone: w.Zone}
		if one.Every, err = definition.ParseWidth(w.Every); err != nil {
			return out, err
		}
		if one.Keep, err = definition.ParseKeep(w.Keep); err != nil {
			return out, err
		}
		out.Windows = append(out.Windows, one)
	}
	for _, dim := range d.Dimensions {
		by := definition.Dimension{By: dim.By, Limit: int(dim.Limit)}
		if dim.Some {
			by.Windows = make([]definition.Width, len(dim.Windows))
		}
		for i := range by.Windows {
			if by.Windows[i], err = definition.ParseWidth(dim.Windows[i]); err != nil {
				return out, err
			}
		}
		out.Dimensions = append(out.Dimensions, by)
	}
	if r := d.Reservations; r != nil {
		out.Reservations = &definition.Reservations{Max: r.Max, Total: r.Total, PerWho: r.PerWho, Who: r.WhoTotal}
		if out.Reservations.MaxTTL, err = DecodeKeep(r.MaxTtl); err != nil {
			return out, err
		}
	}
	if d.Record != "" {
		if err := out.Ledger.Record.UnmarshalText([]byte(d.Record)); err != nil {
			return out, err
		}
	}
	if d.Late != "" {
		if err := out.Late.Then.UnmarshalText([]byte(d.Late)); err != nil {
			return out, err
		}
	}
	out.Choices, out.Shards = d.Choices, int(d.Shards)
	if o := d.Once; o != nil {
		out.Once.Zone = o.Zone
		if out.Once.Every, err = definition.ParseWidth(o.Every); err != nil {
			return out, err
		}
		if out.Once.Keep, err = DecodeKeep(o.Keep); err != nil {
			return out, err
		}
		if out.Once.Users = d.OnceUsers; d.OnceApproximate != "" {
			if err = out.Once.Approximate.UnmarshalText([]byte(d.OnceApproximate)); err != nil {
				return out, err
			}
		}
	}
	if out.Limits, err = DecodeLimits(d.Limits); err != nil {
		return out, err
	}
	out.Clients = d.Clients
	for _, t := range d.Top {
		out.Tops = append(out.Tops, definition.Top{Name: t.GetName(), By: t.GetBy(), K: int(t.GetK())})
	}
	if out.Unique.Of = d.Unique; d.UniqueError != "" {
		if err = out.Unique.Error.UnmarshalText([]byte(d.UniqueError)); err != nil {
			return out, err
		}
	}
	if out.Away, err = DecodeAway(d.Away, d.AwayServers); err != nil {
		return out, err
	}
	if out.Ledger.Keep, err = DecodeKeep(d.Keep); err == nil {
		out.Late.After, err = DecodeKeep(d.LateAfter)
	}
	return out, err
}
