package protocol_test

import (
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/protocol"
)

// What is sent comes out as it went in.
func TestDefinitions(t *testing.T) {
	hour, err := definition.ParseWidth("1h")
	if err != nil {
		t.Fatal(err)
	}
	month, err := definition.ParseWidth("1mo")
	if err != nil {
		t.Fatal(err)
	}
	keep := definition.KeepMax / 10
	for _, d := range []definition.Definition{
		{Pattern: "a*"},
		{Pattern: "b", Windows: []definition.Window{{Every: hour, Keep: keep}, {Every: month, Zone: "Europe/Berlin", Keep: keep}}},
		{Pattern: "c", Dimensions: []definition.Dimension{
			{By: []string{"x"}}, {By: []string{"y"}, Windows: []definition.Width{}}, {By: []string{"x", "y"}, Windows: []definition.Width{hour}, Limit: 7},
		}},
		{Pattern: "d", Ledger: definition.Ledger{Record: definition.Adjustments}},
		{Pattern: "e", Ledger: definition.Ledger{Record: definition.All, Keep: keep}},
		{Pattern: "r", Reservations: &definition.Reservations{}},
		{Pattern: "s", Reservations: &definition.Reservations{Max: 1, Total: 2, PerWho: 3, Who: 4, MaxTTL: definition.Keep(time.Hour)}},
		{Pattern: "u", Unique: definition.Unique{Of: "who"}},
		{Pattern: "v", Unique: definition.Unique{Of: "who", Error: 8100}},
		{Pattern: "h", Floor: new(int64(0))},
		{Pattern: "i", Ceiling: new(int64(math.MaxInt64)), Floor: new(int64(math.MinInt64))},
		{Pattern: "f", Late: definition.Late{Then: definition.Refuse}},
		{Pattern: "g", Late: definition.Late{Then: definition.Clamp, After: keep}},
	} {
		if got, err := protocol.DecodeDefinition(protocol.EncodeDefinition(&d)); err != nil || !reflect.DeepEqual(got, d) {
			t.Errorf("%s comes out as %s, %v", d, got, err)
		}
	}
	for _, change := range []func(d *definition.Definition){
		func(d *definition.Definition) { d.Windows = []definition.Window{{Keep: keep}} },
		func(d *definition.Definition) {
			d.Dimensions = []definition.Dimension{{By: []string{"x"}, Windows: []definition.Width{{}}}}
		},
	} {
		var d definition.Definition
		change(&d)
		if got, err := protocol.DecodeDefinition(protocol.EncodeDefinition(&d)); err == nil {
			t.Errorf("%s comes out as %s", d, got)
		}
	}
}

func TestTimesAndDims(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_123)
	if got := protocol.DecodeTime(protocol.EncodeTime(at)); !got.Equal(at) {
		t.Errorf("%v comes out as %v", at, got)
	}
	if got := protocol.EncodeTime(time.Time{}); got != nil || !protocol.DecodeTime(got).IsZero() {
		t.Errorf("no time is %d", *got)
	}
	if got := protocol.DecodeTime(new(int64)); got.UnixMilli() != 0 || got.IsZero() {
		t.Errorf("1970 is %v", got)
	}
	dims := []call.Dimension{{Name: "a", Value: ""}, {Name: "b", Value: "x"}}
	if got := protocol.DecodeDims(protocol.EncodeDims(dims)); !reflect.DeepEqual(got, dims) {
		t.Errorf("dims come out as %v", got)
	}
	if got := protocol.DecodeDims(protocol.EncodeDims(nil)); got != nil {
		t.Errorf("none are %v", got)
	}
}
