package book

import (
	"fmt"

	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/calendar"
	"github.com/quipudb/quipu/store"
)

// limitZones adds the tables that limits of a calendar need. Such a table is replaced as that
// of a window is: so no quota is counted in two months at once.
func (b *Book) limitZones(p Proposal, zones map[string]*calendar.Zone) error {
	for _, d := range p.Definitions {
		for _, l := range d.Limits {
			if l.Zone == "" || zones[l.Zone] != nil {
				continue
			}
			old := b.Zones[l.Zone]
			fresh, err := p.Zone(l.Zone)
			switch {
			case old != nil && (err != nil || old.Agree(fresh) <= p.Now+Ahead):
				fresh = old
			case err != nil:
				return store.Errorf(store.KindInvalid, "pattern %q: limit %q: unknown time zone %q: %w", d.Pattern, l.Called(), l.Zone, err)
			}
			zones[l.Zone] = fresh
		}
	}
	return nil
}

// checkLimits returns an error if the table of a limit's zone is missing.
func (b *Book) checkLimits(d *definition.Definition) error {
	for _, l := range d.Limits {
		if l.Zone != "" && b.Zones[l.Zone] == nil {
			return store.Errorf(store.KindInvalid, "pattern %q: no table of %s", d.Pattern, l.Zone)
		}
	}
	return nil
}

// limitChanges says, for people, what becomes of the limits of an entry; old is nil if it is
// new.
func limitChanges(old, e *Entry) (texts []string) {
	was := &definition.Definition{}
	if old != nil {
		was = &old.Definition
	}
	is := &e.Definition
	had := map[string]definition.Limit{}
	for _, l := range was.Limits {
		had[l.Called()] = l
	}
	for _, l := range is.Limits {
		before, known := had[l.Called()]
		delete(had, l.Called())
		switch {
		case !known:
			texts = append(texts, fmt.Sprintf("limit %s begins now", l.Called()))
		case before != l:
			texts = append(texts, fmt.Sprintf("limit %s is %s, not %s: what was used stays used", l.Called(), l, before))
		}
	}
	for _, l := range was.Limits {
		if _, gone := had[l.Called()]; gone {
			texts = append(texts, fmt.Sprintf("limit %s ends", l.Called()))
		}
	}
	if is.Away != was.Away {
		texts = append(texts, fmt.Sprintf("away is %s, not %s", is.Away, was.Away))
	}
	if is.MaxClients() != was.MaxClients() {
		texts = append(texts, fmt.Sprintf("limits have up to %d clients, not %d", is.MaxClients(), was.MaxClients()))
	}
	return texts
}
