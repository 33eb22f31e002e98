package history_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/ledger"
	"github.com/quipudb/quipu/store"
)

func (w *world) verify() store.Audit {
	w.t.Helper()
	var a store.Audit
	if err := w.reader().Verify(w.ctx(), &a); err != nil {
		w.t.Fatal(err)
	}
	return a
}

// Whatever is counted, by whichever definitions, adds up.
func TestVerify(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		d := three()
		d.Windows[0] = window("30m", "", 8*day) // of fewer epochs
		d.Tops = ranked().Tops
		w.define(d)
		w.drawHistory(t, 12)
		w.beside("k1", 5)
		if rapid.Bool().Draw(t, "defined again") {
			w.now += day
			switch rapid.IntRange(0, 4).Draw(t, "change") {
			case 0:
				d.Windows = append(d.Windows, window("1w", "Europe/Berlin", 1800*day))
			case 1:
				d.Windows[0].Keep *= 3
			case 2:
				d.Dimensions = append(d.Dimensions, definition.Dimension{By: []string{"platform"}})
			case 3:
				d.Ledger.Record = definition.Adjustments
			case 4:
				d.Tops[0].K, d.Tops[1].Name = 20, "others"
			}
			w.define(d)
			w.drawHistory(t, 12)
			w.beside("k1", 7)
		}
		if a := w.verify(); len(a.Drift) > 0 {
			t.Fatalf("%+v", a)
		}
	})
}

// TestVerifyFinds spoils one part of a counter among others, and looks for it.
func TestVerifyFinds(t *testing.T) {
	f := func(kind store.PartKind, name string, want ...string) {
		t.Helper()
		w := newWorld(t)
		w.define(three())
		for i := range 5 {
			w.add(fmt.Sprint("k", i), i%(shardsMax+1), add(int64(i+1)), call.Dimension{Name: "country", Value: "DE"})
		}
		if a := w.verify(); len(a.Drift) > 0 || len(a.Unproved) > 0 || a.Cells < 5*9 {
			t.Fatalf("before: %+v", a)
		}
		w.spoil("k3", kind, name)
		var got []string
		for _, d := range w.verify().Drift {
			if !strings.HasPrefix(d.What, `counter "k3" of namespace "ns": `) || d.Have == d.Want {
				t.Errorf("%+v", d)
			}
			got = append(got, strings.TrimPrefix(d.What, `counter "k3" of namespace "ns": `))
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	const total = ", and what is outside of it: the total"
	const noonText, dayText = "2026-10-26T12:00:00Z", "2026-10-25T23:00:00Z"
	f(store.PartWindow, "1m", "dimension country windows of 1m in the window from "+noonText+": windows of 1m", "windows of 1m in the window from "+noonText+": windows of 1h", "windows of 1m"+total)
	f(store.PartWindow, "1d", "dimension country windows of 1d in Europe/Berlin in the window from "+dayText+": windows of 1d in Europe/Berlin",
		"dimension country,platform windows of 1d in Europe/Berlin in the window from "+dayText+": windows of 1d in Europe/Berlin",
		"windows of 1d in Europe/Berlin"+total, "windows of 1h in the window from "+dayText+": windows of 1d in Europe/Berlin")
	f(store.PartWindowDim, "1h", "dimension country windows of 1h in the window from "+noonText+": windows of 1h", "dimension country windows of 1h"+total)
	f(store.PartDim, "country", "dimension country"+total)
	f(store.PartOutside, "1h", "windows of 1h"+total)
	f(store.PartEntries, "", "ledger of all"+total)
	f(store.PartAdmitted, "country", "dimension country: values that were admitted")
	f(0, "", "dimension country"+total, "dimension country windows of 1d in Europe/Berlin"+total, "dimension country windows of 1h"+total, "dimension country windows of 1m"+total,
		"dimension country,platform"+total, "dimension country,platform windows of 1d in Europe/Berlin"+total, "ledger of all"+total,
		"windows of 1d in Europe/Berlin"+total, "windows of 1h"+total, "windows of 1m"+total)
}

// spoil changes one part of a counter alone, of the view that has a name; kind 0 is the
// counter's own value.
func (w *world) spoil(key string, kind store.PartKind, name string) {
	w.t.Helper()
	d := store.Delta{Op: store.OpAdd, N: 1, Event: &store.Event{}}
	if kind != 0 {
		e := w.books.Known("ns").Of(key)
		for _, s := range e.All() {
			if kind != store.PartOutside && kind != store.PartAdmitted && s.Kind != kind {
				continue
			}
			if name != "" && s.Grid.Width.String() != name && (s.Kind != store.PartDim || e.Entry.Definition.Dimensions[s.Dimension].Name() != name) {
				continue
			}
			f := store.PartFields{Kind: kind, View: s.View.ID}
			if kind&store.PartRetained != 0 && s.Grid.Width != (definition.Width{}) {
				f.Position = s.Grid.At(w.now).From
				f.Epoch = store.EpochAt(f.Position, time.Duration(s.View.Epoch))
			}
			if kind == store.PartWindowDim || kind == store.PartDim || kind == store.PartAdmitted {
				f.Name = "DE"
			}
			if kind == store.PartEntries {
				f, _ = e.Line(w.now, false)
				f.Position = 1
				line, err := (&ledger.Entry{Lines: []ledger.Line{add(1)}}).Append(nil)
				if err != nil {
					w.t.Fatal(err)
				}
				d.Op, d.N, d.Event.Bytes = store.OpPut, 0, line
			}
			d.Event.Part = f.Part()
			break
		}
	}
	w.apply(key, 0, d)
}

// TestRecount spoils a part, or the total, and has it repaired and written down.
func TestRecount(t *testing.T) {
	f := func(kind store.PartKind, name string, total int64, record definition.Record) {
		t.Helper()
		w := newWorld(t)
		d := three()
		if d.Ledger.Record = record; record == definition.Off {
			d.Ledger.Keep = 0
		}
		w.define(d)
		w.add("k3", 0, add(5), call.Dimension{Name: "country", Value: "DE"})
		w.spoil("k3", kind, name)
		if len(w.verify().Drift) == 0 {
			t.Fatal("nothing is wrong")
		}
		r := w.reader()
		r.Store = w.store // The counter is one cell.
		done, err := r.Recount(w.ctx(), "k3", call.Correction{Reason: "flipped", Actor: "ann"})
		if err != nil || done.After != total || len(done.Repaired) == 0 || len(done.Left) != 0 {
			t.Errorf("%+v, %v", done, err)
		}
		if a := w.verify(); len(a.Drift) != 0 {
			t.Errorf("%+v", a)
		}
		p, err := r.Ledger(w.ctx(), "k3", call.LedgerOptions{Actor: "ann"})
		if err != nil || len(p.Lines) != 1 || p.Lines[0].Reason != "recount: flipped" || p.Lines[0].Delta != done.After-done.Before || p.Lines[0].Kind != "adjust" {
			t.Errorf("%+v, %v", p, err)
		}
		if done, err = r.Recount(w.ctx(), "k3", call.Correction{Reason: "again"}); err != nil || len(done.Repaired) != 0 {
			t.Errorf("again: %+v, %v", done, err)
		}
	}
	for _, record := range []definition.Record{definition.Off, definition.Adjustments, definition.All} {
		f(0, "", 5, record) // the total was 6
		f(store.PartDim, "country", 5, record)
		f(store.PartOutside, "1h", 5, record)
	}
	f(store.PartEntries, "", 5, definition.All)
}

// Windows that differ stay as they are, and so does what was admitted.
func TestRecountLeaves(t *testing.T) {
	w := newWorld(t)
	w.define(three())
	w.add("k3", 0, add(5))
	w.spoil("k3", store.PartWindow, "1h")
	r := w.reader()
	r.Store = w.store
	done, err := r.Recount(w.ctx(), "k3", call.Correction{Reason: "x"})
	if err != nil || len(done.Left) == 0 || done.After != 5 || len(done.Repaired) != 1 {
		t.Errorf("%+v, %v", done, err)
	}
	if done, err = r.Recount(w.ctx(), "k3", call.Correction{Reason: "x"}); err != nil || len(done.Left) == 0 || len(done.Repaired) != 0 {
		t.Errorf("again: %+v, %v", done, err)
	}
	w.add("k4", 0, add(5))
	w.spoil("k4", store.PartAdmitted, "country")
	if done, err = r.Recount(w.ctx(), "k4", call.Correction{Reason: "x"}); err != nil || len(done.Left) != 1 || len(done.Repaired) != 0 {
		t.Errorf("a value too many: %+v, %v", done, err)
	}
	if _, err := r.Recount(w.ctx(), "x", call.Correction{Reason: "x"}); err == nil {
		t.Error("it has no views")
	}
}
