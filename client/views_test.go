package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/client"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/store"
)

// define gives the keys that begin with v windows, a dimension and a ledger.
func define(t testing.TB, db *quipu.DB, windows ...string) {
	t.Helper()
	d := definition.Definition{
		Pattern: "v*", Dimensions: []definition.Dimension{{By: []string{"country"}, Limit: 5}}, Ledger: definition.Ledger{Record: definition.Adjustments},
	}
	for _, every := range windows {
		w, err := definition.ParseWidth(every)
		if err != nil {
			t.Fatal(err)
		}
		d.Windows = append(d.Windows, definition.Window{Every: w, Keep: definition.KeepMax / 10})
	}
	if _, err := db.Define(t.Context(), []definition.Definition{d}, quipu.DefineOptions{}); err != nil {
		t.Fatal(err)
	}
}

// Adds with a time and dimensions are counted in their windows and values, once, however
// they are combined.
func TestWriterFacts(t *testing.T) {
	for _, o := range []client.WriterOptions{{}, {Mode: client.Flush, Every: time.Hour}} {
		db := memory(quipu.Limits{}, 3)
		define(t, db, "1h", "1d")
		w := serve(t, db).writer(o)
		first := time.Date(2025, 10, 1, 8, 0, 0, 0, time.UTC)
		add := func(key string, n int64, opts ...call.WriteOption) {
			t.Helper()
			if err := w.Add(t.Context(), key, n, opts...); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 100 {
			at := first.Add(time.Duration(i) * time.Minute)
			add("v1", 1, call.At(at), call.Dim("country", []string{"DE", "PE"}[i%2]))
			add("v1", 2, call.At(at), call.Who("u"))
			add("plain", 1)
		}
		closeWriter(t, w)
		holds(t, db, "v1", 300)
		holds(t, db, "plain", 100)
		s, err := db.Range(t.Context(), "v1", quipu.RangeOptions{From: first, To: first.Add(2 * time.Hour), Step: width(t, "1h")})
		if err != nil || len(s.Points) != 2 || s.Points[0].Value != 180 || s.Points[1].Value != 120 {
			t.Errorf("range %+v, %v", s, err)
		}
		b, err := db.By(t.Context(), "v1", "country", quipu.ByOptions{})
		want := []quipu.DimensionValue{{Count: 200}, {Value: "DE", Count: 50}, {Value: "PE", Count: 50}}
		if err != nil || !slices.EqualFunc(b.Values, want, func(a, b quipu.DimensionValue) bool { return a.Value == b.Value && a.Count == b.Count }) {
			t.Errorf("by %+v, %v", b, err)
		}
	}
}

func width(t testing.TB, s string) definition.Width {
	t.Helper()
	w, err := definition.ParseWidth(s)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// An add that a definition does not allow is refused alone, with the reason.
func TestWriterIsToldWhy(t *testing.T) {
	db := memory(quipu.Limits{}, 1)
	d := definition.Definition{Pattern: "v*", Windows: []definition.Window{{Every: width(t, "1h"), Keep: definition.KeepMax / 100}}, Late: definition.Late{Then: definition.Refuse}}
	if _, err := db.Define(t.Context(), []definition.Definition{d}, quipu.DefineOptions{}); err != nil {
		t.Fatal(err)
	}
	w := serve(t, db).writer(client.WriterOptions{})
	for want, o := range map[string]call.WriteOption{
		`unknown dimension "country": the counter has none`:          call.Dim("country", "DE"),
		"the definition of its counter refuses events older than 1y": call.At(time.Unix(60, 0)),
	} {
		if err := w.Add(t.Context(), "v1", 1, o); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := w.Add(t.Context(), "v1", 1); err != nil {
		t.Error(err)
	}
	closeWriter(t, w)
	holds(t, db, "v1", 1)
}

// The definitions decide how many cells an add changes, and so how many adds a batch has
// room for. A Writer finds out, and nothing is lost or counted twice over it.
func TestWriterLearnsHowLargeBatchesAre(t *testing.T) {
	db := memory(quipu.Limits{}, 1)
	define(t, db, "1m", "1h", "1d")
	w := serve(t, db).writer(client.WriterOptions{Mode: client.Flush, Every: time.Hour, Keys: 1 << 20})
	const keys = 6000
	for round := range int64(2) {
		for i := range keys {
			if err := w.Add(t.Context(), fmt.Sprint("v", i), 1+round); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	closeWriter(t, w)
	st := w.Stats()
	if st.Refused != 0 || st.Deltas != 2*keys {
		t.Errorf("stats %+v", st)
	}
	for _, i := range []int{0, 1, keys / 2, keys - 1} {
		holds(t, db, fmt.Sprint("v", i), 3)
	}
	sum, err := db.Sum(t.Context(), "v", "")
	if err != nil || sum.Value != 3*keys {
		t.Errorf("sum %+v, %v", sum, err)
	}
}

// Everything that views answer comes over the wire as the DB has it.
func TestViewsOverTheWire(t *testing.T) {
	db := memory(quipu.Limits{}, 1)
	remote := serve(t, db).dial(client.Options{})
	ctx := context.Background()
	defs := []definition.Definition{{
		Pattern: "v*", Windows: []definition.Window{{Every: width(t, "1d"), Zone: "Europe/Berlin", Keep: definition.KeepMax / 10}},
		Dimensions: []definition.Dimension{{By: []string{"a"}, Windows: []definition.Width{}}, {By: []string{"a", "b"}, Limit: 7}},
		Ledger:     definition.Ledger{Record: definition.All, Keep: definition.KeepMax / 10},
	}}
	dry, err := remote.Define(ctx, defs, call.DefineOptions{DryRun: true})
	if err != nil || len(dry.Changes) == 0 {
		t.Fatalf("dry run %+v, %v", dry, err)
	}
	change, err := remote.Define(ctx, defs, call.DefineOptions{IfNone: true})
	if err != nil || change.ID != 1 || !slices.Equal(change.Changes, dry.Changes) {
		t.Fatalf("define %+v, %v", change, err)
	}
	far, err := remote.Definitions(ctx)
	near, nearErr := db.Definitions(ctx)
	if err != nil || nearErr != nil || fmt.Sprint(far.Definitions) != fmt.Sprint(near.Definitions) || fmt.Sprint(far.Views) != fmt.Sprint(near.Views) || !far.InForce.Equal(near.InForce) {
		t.Errorf("far %+v, %v; near %+v, %v", far, err, near, nearErr)
	}
	if b, err := remote.DefinitionOf(ctx, "w"); err != nil || len(b.Definitions) != 0 {
		t.Errorf("a key without one: %+v, %v", b, err)
	}

	at := time.Date(2025, 10, 1, 8, 0, 0, 0, time.UTC)
	if _, err := remote.Add(ctx, "v1", 5, call.Token("t"), call.At(at), call.Dim("a", "x"), call.Dim("b", ""), call.Who("u")); err != nil {
		t.Fatal(err)
	}
	if _, err := remote.AddBatch(ctx, []call.Event{{Key: "v1", Delta: 2, At: at, Dims: []call.Dimension{{Name: "a", Value: "y"}}}}); err != nil {
		t.Fatal(err)
	}
	if r, err := remote.Adjust(ctx, "v1", -1, call.Correction{Reason: "r", Actor: "ana"}, call.At(at), call.WantValue()); err != nil || r.Value != 6 {
		t.Errorf("adjust %+v, %v", r, err)
	}
	same(t, "range", func(db views) (any, error) {
		return db.Range(ctx, "v1", call.RangeOptions{From: at.Add(-48 * time.Hour), To: at.Add(48 * time.Hour)})
	}, db, remote)
	same(t, "by", func(db views) (any, error) { return db.By(ctx, "v1", "a", call.ByOptions{}) }, db, remote)
	same(t, "by both", func(db views) (any, error) {
		return db.By(ctx, "v1", "a,b", call.ByOptions{From: at.Add(-48 * time.Hour), Top: 1})
	}, db, remote)
	same(t, "ledger", func(db views) (any, error) { return db.Ledger(ctx, "v1", call.LedgerOptions{Limit: 2}) }, db, remote)
	if r, err := remote.Undo(ctx, "v1", "t", call.Correction{Reason: "r"}); err != nil || r.Applied != -5 {
		t.Errorf("undo %+v, %v", r, err)
	}
	for i, assign := range []func(...call.WriteOption) (call.Receipt, error){
		func(o ...call.WriteOption) (call.Receipt, error) { return remote.Set(ctx, "v1", 7, o...) },
		func(o ...call.WriteOption) (call.Receipt, error) { return remote.Reset(ctx, "v1", o...) },
		func(o ...call.WriteOption) (call.Receipt, error) { return remote.Delete(ctx, "v1", o...) },
	} {
		if _, err := assign(call.Because(call.Correction{Reason: "because", Actor: fmt.Sprint("ana ", i)})); err != nil {
			t.Error(err)
		}
		page, err := remote.Ledger(ctx, "v1", call.LedgerOptions{Limit: 1})
		if err != nil || page.Lines[0].Reason != "because" || page.Lines[0].Actor != fmt.Sprint("ana ", i) {
			t.Errorf("ledger %+v, %v", page, err)
		}
	}
	page, err := remote.Ledger(ctx, "v1", call.LedgerOptions{})
	if err != nil || len(page.Lines) != 7 {
		t.Errorf("ledger %+v, %v", page, err)
	}
	for _, l := range page.Lines {
		if l.Source != "rpc" {
			t.Errorf("a %s from %q", l.Kind, l.Source)
		}
	}
	if e, err := remote.Erase(ctx, "u", ""); err != nil || e.Lines != 1 || !e.Complete {
		t.Errorf("erase %+v, %v", e, err)
	}
}

// What a reply says of an event beyond its value comes over the wire.
func TestRepliesOfEvents(t *testing.T) {
	db := memory(quipu.Limits{TokensMax: 10}, 1)
	remote := serve(t, db).dial(client.Options{})
	ctx := context.Background()
	d := definition.Definition{Pattern: "v*", Windows: []definition.Window{{Every: width(t, "1h"), Keep: definition.KeepMax / 100}}, Late: definition.Late{Then: definition.Clamp}}
	if _, err := remote.Define(ctx, []definition.Definition{d}, call.DefineOptions{}); err != nil {
		t.Fatal(err)
	}
	if b, err := remote.Definitions(ctx); err != nil || b.Definitions[0].Late != d.Late {
		t.Errorf("%+v, %v", b, err)
	}
	if r, err := remote.Add(ctx, "v1", 1, call.At(time.UnixMilli(1))); err != nil || !r.Late {
		t.Errorf("a late event: %+v, %v", r, err)
	}
	for i, forgotten := range []bool{false, true} {
		_, err := remote.Add(ctx, "v1", -2, call.Floor(0), call.Token(fmt.Sprint(i)))
		if e, ok := errors.AsType[*call.BoundError](err); !ok || e.Forgotten != forgotten {
			t.Errorf("refusal %d: %v", i, err)
		}
	}
	if f, err := remote.Lookup(ctx, "v1", "0"); err != nil || f.State != store.TokenRefused {
		t.Errorf("a refused token: %+v, %v", f, err)
	}
}

// views are what a DB and a client have alike.
type views interface {
	Range(context.Context, string, call.RangeOptions) (call.Series, error)
	By(context.Context, string, string, call.ByOptions) (call.Breakdown, error)
	Ledger(context.Context, string, call.LedgerOptions) (call.LedgerPage, error)
}

// same checks that both give one answer, but for when they were asked.
func same(t *testing.T, what string, ask func(views) (any, error), near, far views) {
	t.Helper()
	a, errA := ask(near)
	b, errB := ask(far)
	if errA != nil || errB != nil || plain(a) != plain(b) {
		t.Errorf("%s: near %s, %v; far %s, %v", what, plain(a), errA, plain(b), errB)
	}
}

// plain returns an answer as text, with times as they are on the wire.
func plain(v any) string {
	switch v := v.(type) {
	case call.Series:
		v.AsOf, v.CompleteFrom = time.Time{}, v.CompleteFrom.UTC()
		for i := range v.Points {
			v.Points[i].From, v.Points[i].To = v.Points[i].From.UTC(), v.Points[i].To.UTC()
		}
		return fmt.Sprintf("%+v", v)
	case call.Breakdown:
		v.AsOf, v.CompleteFrom, v.From, v.To = time.Time{}, v.CompleteFrom.UTC(), v.From.UTC(), v.To.UTC()
		return fmt.Sprintf("%+v", v)
	case call.LedgerPage:
		v.CompleteFrom = v.CompleteFrom.UTC()
		for i := range v.Lines {
			v.Lines[i].At, v.Lines[i].Recorded = v.Lines[i].At.UTC(), v.Lines[i].Recorded.UTC()
		}
		return fmt.Sprintf("%+v", v)
	default:
		return fmt.Sprintf("%+v", v)
	}
}
