package call_test

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/store"
)

func TestTerms(t *testing.T) {
	at := time.UnixMilli(1234)
	got, err := call.WriteTermsOf([]call.WriteOption{
		call.IfVersion(0), call.At(at), call.Token("t"), call.WantValue(), call.Who(""), call.Floor(-1), call.Ceiling(0), call.Saturate(), call.TTL(7),
		call.Dim("country", "DE"), call.Dim("platform", ""),
	}, true)
	want := call.WriteTerms{
		Token: "t", AtMS: 1234, WantValue: true, HasToken: true, HasWho: true, HasAt: true, HasVersion: true,
		Floor: -1, HasFloor: true, HasCeiling: true, Saturate: true, TTL: 7, HasTTL: true, Dims: []call.Dimension{{Name: "country", Value: "DE"}, {Name: "platform"}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("terms %+v, %v", got, err)
	}
	if got, err := call.WriteTermsOf(nil, false); err != nil || !reflect.DeepEqual(got, call.WriteTerms{}) {
		t.Errorf("terms of nothing: %+v, %v", got, err)
	}
	for _, bad := range [][]call.WriteOption{{{}}, {call.Who("a"), call.Who("b")}, {call.WantValue(), call.WantValue()}, {call.Dim("a", "b"), call.Dim("a", "c")}} {
		if _, err := call.WriteTermsOf(bad, true); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("terms of %+v: %v", bad, err)
		}
	}
	for _, o := range []call.WriteOption{call.Who("a"), call.At(at), call.Floor(1), call.Ceiling(1), call.Saturate(), call.TTL(1), call.Dim("a", "b")} {
		if _, err := call.WriteTermsOf([]call.WriteOption{o}, false); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("terms of %+v for a Set: %v", o, err)
		}
	}
	why := call.Because(call.Correction{Reason: "r", Actor: "a"})
	if got, err := call.WriteTermsOf([]call.WriteOption{why}, false); err != nil || !got.HasBecause || got.Because != (call.Correction{Reason: "r", Actor: "a"}) {
		t.Errorf("terms of a reason: %+v, %v", got, err)
	}
	if _, err := call.WriteTermsOf([]call.WriteOption{why}, true); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a reason for an Add: %v", err)
	}
	if _, err := call.WriteTermsOf([]call.WriteOption{why, why}, false); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("two reasons: %v", err)
	}
	need, err := call.ReadTermsOf([]call.ReadOption{
		call.MaxStaleness(5), call.MaxStaleness(3), call.MaxStaleness(4), call.MaxError(2), call.MaxError(-1),
		call.Session("s1"), call.Exact(), call.Session("s2"),
	})
	if err != nil || !need.Exact || !need.HasStaleness || need.MaxStaleness != 3 || !need.HasError || need.MaxError != -1 || len(need.Sessions) != 2 {
		t.Errorf("terms %+v, %v", need, err)
	}
	if _, err := call.ReadTermsOf([]call.ReadOption{{}}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("terms of no option: %v", err)
	}
}
