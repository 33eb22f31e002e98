package history

import (
	"context"

	"github.com/quipudb/quipu/internal/ledger"
	"github.com/quipudb/quipu/internal/view"
	"github.com/quipudb/quipu/store"
)

// A Found line is one that is in the ledger of a counter.
type Found struct {
	ledger.Line
	Delta  int64            // by how much it has changed the counter, if DeltaKnown
	Known  bool             // whether that is known
	AtMS   int64            // when what it says happened
	Entry  store.PartFields // that has it
	Number uint16           // among the lines of the entry
}

// Find returns the line that the write with a token has left in the ledger of a counter. The
// fate of the token says where it is; if that is forgotten, the ledger is walked from its
// end. Writes with tokens are decided at the counter's home, so their lines are there.
func (r *Reader) Find(ctx context.Context, key, token string, fate *store.Fate) (f Found, ok bool, err error) {
	var views *view.Views
	if k := r.Known.Of(key); k != nil {
		views = k.Views
	}
	to := r.Now + hour
	if fate.State == store.TokenApplied {
		to = fate.AtMS + hour
	}
	m := merged{streams: r.streams(key, []store.Cell{r.cell(key)}, views, 0, to)}
	if version := fate.Result.Version; version != 0 {
		for _, s := range m.streams {
			s.mark.version, s.mark.line = version, ^uint16(0)
			s.from = fate.AtMS - clockSlack // It may have been decided on before its token was written down.
		}
	}
	if err := m.begin(ctx); err != nil {
		return f, false, err
	}
	for {
		e, n := m.line()
		if e == nil {
			return f, false, nil
		}
		if l := &e.Lines[n]; l.Token == token && l.Kind != ledger.Undo {
			f = Found{Line: *l, AtMS: l.AtMS, Entry: e.part, Number: uint16(n)}
			if f.Delta, f.Known = e.Delta(n); f.AtMS == 0 {
				f.AtMS = e.MS
			}
			return f, true, nil
		}
		if err := m.step(ctx); err != nil {
			return f, false, err
		}
	}
}
