package store_test

import (
	"reflect"
	"testing"

	"github.com/quipudb/quipu/store"
)

// needOf says for each field of what Apply takes which need it is. Those of 0 ask
// for nothing: whoever takes the delta or the batch serves them.
//
// If a test brings you here because you have added a field: give it a need, unless
// every fast path serves it already, and a law in package storetest.
var needOf = map[reflect.Type]map[string]store.Needs{
	reflect.TypeFor[store.Delta](): {
		"Cell": 0, "N": 0, "Writes": 0, "Lot": 0,
		"Guard":  0, // its fields are below
		"Op":     store.NeedOp,
		"Want":   store.NeedValue,
		"Expiry": store.NeedExpiry, "DeadlineMS": store.NeedExpiry,
		"Event": store.NeedRiders,
	},
	reflect.TypeFor[store.Event](): { // one that says nothing is an event
		"Part": store.NeedRiders | store.NeedPart,
		"Plan": store.NeedRiders, "Riders": store.NeedRiders | store.NeedMet, // of no operation
		"Is":        store.NeedRiders, // its fields are below
		"Bytes":     store.NeedRiders | store.NeedBytes,
		"NotBefore": store.NeedRiders | store.NeedClock, "NotAfter": store.NeedRiders | store.NeedClock,
	},
	reflect.TypeFor[store.Rider](): {
		"Part": store.NeedRiders, "N": store.NeedRiders, "Amount": store.NeedRiders,
		"Place": store.NeedRiders | store.NeedMet, // 2 is PlaceMet
		"Op":    store.NeedRiders | store.NeedMet,
		"When":  store.NeedRiders, "Is": store.NeedRiders, // their fields are below
		"Bound": store.NeedRiders | store.NeedMet,
		"Bytes": store.NeedRiders | store.NeedBytes,
	},
	reflect.TypeFor[store.Met](): {"Kind": store.NeedRiders | store.NeedMet, "N": store.NeedRiders | store.NeedMet},
	reflect.TypeFor[store.Guard](): {
		"Token": store.NeedToken, "Digest": store.NeedToken,
		"Match": store.NeedVersion, "Version": store.NeedVersion,
		"Laid": store.NeedLayout, "Layout": store.NeedLayout,
		"Exists": store.NeedExists,
		"Bound":  store.NeedBound,
	},
	reflect.TypeFor[store.Bound](): { // a bound that says nothing is a bound
		"Low": store.NeedBound, "High": store.NeedBound, "Saturate": store.NeedBound, "Inward": store.NeedBound,
	},
	reflect.TypeFor[store.Batch](): {
		"Partition": 0, "Durability": 0, "Apart": 0,
		"Deltas": 0, // their needs are the batch's
		"Writer": store.NeedMark, "Prev": store.NeedMark, "Seq": store.NeedMark,
		"If":    store.NeedIf,
		"Books": store.NeedFence, "Floors": store.NeedFence,
	},
}

// TestNeeds sets every field of what Apply takes, alone, and looks at what is
// needed then.
func TestNeeds(t *testing.T) {
	plain := func() *store.Delta { return &store.Delta{Op: store.OpAdd} }
	of := func(d *store.Delta) store.Needs {
		b := store.Batch{Deltas: []store.Delta{*plain(), *d, *plain()}}
		if of, in := d.Needs(), b.Needs(); of != in {
			t.Errorf("%+v needs %b, and %b in a batch", d, of, in)
		}
		return d.Needs()
	}
	if n := of(plain()); n != 0 {
		t.Fatalf("a plain add needs %b", n)
	}
	eachField(t, func() (reflect.Value, func() store.Needs) {
		d := plain()
		return reflect.ValueOf(d).Elem(), func() store.Needs { return of(d) }
	})
	eachField(t, func() (reflect.Value, func() store.Needs) {
		d := plain()
		return reflect.ValueOf(&d.Guard).Elem(), func() store.Needs { return of(d) }
	})
	eachField(t, func() (reflect.Value, func() store.Needs) {
		d := plain()
		d.Guard.Bound = &store.Bound{}
		return reflect.ValueOf(d.Guard.Bound).Elem(), func() store.Needs { return of(d) }
	})
	event := func(field func(*store.Event) any) {
		t.Helper()
		eachField(t, func() (reflect.Value, func() store.Needs) {
			d := plain()
			d.Event = &store.Event{}
			return reflect.ValueOf(field(d.Event)).Elem(), func() store.Needs { return of(d) }
		})
	}
	rider := func(e *store.Event) *store.Rider {
		e.Riders = []store.Rider{{Op: store.OpAdd}}
		return &e.Riders[0]
	}
	event(func(e *store.Event) any { return e })
	event(func(e *store.Event) any { return &e.Is })
	event(func(e *store.Event) any { return rider(e) })
	event(func(e *store.Event) any { return &rider(e).Is })
	event(func(e *store.Event) any { return &rider(e).When })
	eachField(t, func() (reflect.Value, func() store.Needs) {
		b := &store.Batch{}
		return reflect.ValueOf(b).Elem(), func() store.Needs {
			for i := range b.Deltas {
				b.Deltas[i].Op = store.OpAdd
			}
			return b.Needs()
		}
	})
}

// eachField sets one field after the other of what fresh returns.
func eachField(t *testing.T, fresh func() (reflect.Value, func() store.Needs)) {
	t.Helper()
	v, _ := fresh()
	for i, f := range reflect.VisibleFields(v.Type()) {
		name := v.Type().Name() + "." + f.Name
		want, known := needOf[v.Type()][f.Name]
		if !known {
			t.Errorf("%s has no need, and no law: see needOf", name)
			continue
		}
		v, needs := fresh()
		fill(v.Field(i))
		if got := needs(); got != want {
			t.Errorf("%s needs %b, want %b", name, got, want)
		}
	}
}

// fill makes v another value than its zero, and than that of a plain add.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString("x")
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Struct: // its fields are looked at by themselves
	default:
		v.Set(reflect.ValueOf(2).Convert(v.Type()))
	}
}

// TestNeedsOfPlans looks at what riders ask for, alone and in a plan.
func TestNeedsOfPlans(t *testing.T) {
	f := func(r store.Rider, want store.Needs) {
		t.Helper()
		p, err := store.NewPlan(r)
		if err != nil {
			t.Fatal(err)
		}
		want |= store.NeedRiders
		for _, e := range []*store.Event{{Plan: p}, {Riders: []store.Rider{r}}} {
			d := store.Delta{Op: store.OpAdd, Event: e}
			if got := d.Needs(); got != want || d.NeedsWhole() != (want&store.NeedMet != 0) {
				t.Errorf("%+v needs %b, want %b; the whole counter: %t", r, got, want, d.NeedsWhole())
			}
		}
	}
	window, lines, book := store.PartFields{Kind: store.PartWindow}.Part(), store.PartFields{Kind: store.PartEntries}.Part(), store.PartFields{Kind: store.PartBook}.Part()
	sketch := store.PartFields{Kind: store.PartSketch}.Part()
	f(store.Rider{Part: window, Op: store.OpAdd, N: 2}, 0)
	f(store.Rider{Part: window, Op: store.OpAdd, Amount: store.AmountApplied}, 0)
	f(store.Rider{Part: window, Op: store.OpAdd, Amount: store.AmountWas, When: store.Met{Kind: store.MetBook, N: 3}}, store.NeedBook)
	f(store.Rider{Part: book, Op: store.OpMax, N: 3}, store.NeedBook)
	f(store.Rider{Part: lines, Op: store.OpPut, Place: store.PlaceVersion}, store.NeedBytes)
	f(store.Rider{Part: sketch, Op: store.OpMerge}, store.NeedBytes)
	f(store.Rider{Part: sketch, Op: store.OpMerge, Is: store.Met{Kind: store.MetNot}}, store.NeedBytes|store.NeedMet)
	f(store.Rider{Part: window, Op: store.OpMax, N: 3}, store.NeedMet)
	f(store.Rider{Part: window, Op: store.OpAdd, When: store.Met{Kind: store.MetEqual}}, store.NeedMet)
	f(store.Rider{Part: window, Op: store.OpAdd, Is: store.Met{Kind: store.MetNot}, When: store.Met{Kind: store.MetBook}}, store.NeedMet|store.NeedBook)
	f(store.Rider{Part: window, Op: store.OpGet, Is: store.Met{Kind: store.MetEqual, N: 1}}, store.NeedMet)
}

// TestNeedsAllocate checks that asking costs nothing but time.
func TestNeedsAllocate(t *testing.T) {
	b := store.Batch{Deltas: make([]store.Delta, 10)}
	if n := testing.AllocsPerRun(100, func() { b.Needs() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestNeedsWhole(t *testing.T) {
	f := func(want bool, change func(*store.Delta)) {
		t.Helper()
		d := store.Delta{Op: store.OpAdd, N: store.AddMax}
		change(&d)
		if got := d.NeedsWhole(); got != want {
			t.Errorf("%+v needs the whole counter: %t, want %t", d, got, want)
		}
		d.Guard.Laid = true
		if d.NeedsWhole() {
			t.Errorf("%+v names the layout, and needs the whole counter", d)
		}
	}
	f(false, func(*store.Delta) {})
	f(false, func(d *store.Delta) { d.N = -store.AddMax })
	f(false, func(d *store.Delta) { d.Guard.Token, d.Guard.Digest = "t", 7 })
	f(false, func(d *store.Delta) { d.Op = store.OpSettle; d.Guard.Token = "t" })
	f(false, func(d *store.Delta) { d.Op = store.OpRetire })
	f(false, func(d *store.Delta) { d.Writes, d.Lot = 2, 3 })
	f(true, func(d *store.Delta) { d.N++ })
	f(true, func(d *store.Delta) { d.N = -store.AddMax - 1 })
	f(true, func(d *store.Delta) { d.Want = true })
	f(true, func(d *store.Delta) { d.Expiry = store.ExpiryClear })
	f(true, func(d *store.Delta) { d.Guard.Match = true })
	f(true, func(d *store.Delta) { d.Guard.Exists = store.ExistsNot })
	f(true, func(d *store.Delta) { d.Guard.Bound = &store.Bound{} })
	f(true, func(d *store.Delta) { d.Event = &store.Event{Part: store.PartFields{Kind: store.PartWidth}.Part()} })
	for _, op := range []store.Op{store.OpSet, store.OpDelete, store.OpExpire, store.OpGet, store.OpLayout, 0, store.OpMerge, store.OpMerge + 1} {
		f(true, func(d *store.Delta) { d.Op = op })
	}
}

// BenchmarkNeeds measures what a fast path pays to know that it may be taken.
func BenchmarkNeeds(b *testing.B) {
	d := store.Delta{Cell: store.Cell{Namespace: "default", Key: "counter:video:00000042"}, Op: store.OpAdd, N: 1}
	for b.Loop() {
		if d.Needs() != 0 {
			b.Fatal("it is plain")
		}
	}
}
