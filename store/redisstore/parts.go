package redisstore

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/quipudb/quipu/store"
)

// appendFloor appends what scripts take of the floor of a drawer.
func (d drawer) appendFloor(args []string) []string {
	shelf, epoch, ok := d.shelf()
	if !ok {
		return append(args, "", "")
	}
	return append(args, floorField(shelf), strconv.FormatUint(uint64(epoch), 10))
}

// ReadParts fills contents[i] with what parts[i] holds. Those of one partition are read
// at one moment; partitions are read side by side, from their masters.
func (s *Store) ReadParts(ctx context.Context, parts []store.PartCell, contents []store.Content) error {
	if err := store.CheckReadParts(parts, contents); err != nil {
		return err
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.calls.Done()
	type place struct {
		drawer
		field string
		at    int // in parts
	}
	homes := make(map[int][]place)
	for i, id := range parts {
		d, field := drawerOf(id.Cell, id.Part)
		home := store.PartitionOf(id.Cell, len(s.partitions))
		homes[home] = append(homes[home], place{d, field, i})
	}
	var asked []question
	var order []place
	for home, places := range homes {
		// Drawers together, as the script takes them.
		slices.SortStableFunc(places, func(a, b place) int {
			return cmp.Or(strings.Compare(a.namespace, b.namespace), strings.Compare(a.lead, b.lead))
		})
		order = append(order, places...)
		p := &s.partitions[home]
		c := call{partsScript, []string{p.head}, []string{s.now(), flag(s.options.Replicas > 0), ""}}
		for len(places) > 0 {
			d, n := places[0].drawer, 1
			for n < len(places) && places[n].drawer == d {
				n++
			}
			c.keys = append(c.keys, p.contents(d))
			c.args = append(d.appendFloor(c.args), strconv.Itoa(n))
			for _, place := range places[:n] {
				c.args = append(c.args, place.field)
			}
			places = places[n:]
		}
		c.args[2] = strconv.Itoa(len(c.keys) - 1)
		asked = append(asked, question{p, c})
	}
	replies, err := s.askTimed(ctx, asked)
	if err != nil {
		return err
	}
	texts := slices.Concat(replies...)
	if len(texts) != len(order) {
		return store.Errorf(store.KindCorrupt, "%d contents of %d parts", len(texts), len(order))
	}
	for i, text := range texts {
		if contents[order[i].at], err = parseContent(order[i].kind(), text); err != nil {
			return err
		}
	}
	return nil
}

// ScanParts returns up to n parts of a range of rows: drawer after drawer, and of each a
// page of every partition, merged.
func (s *Store) ScanParts(ctx context.Context, r store.Rows, n int) ([]store.PartEntry, error) {
	if n < 1 || n > store.ScanMax {
		return nil, store.Errorf(store.KindInvalid, "scan of %d parts: want 1 to %d", n, store.ScanMax)
	}
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.calls.Done()
	if r.To != "" && r.From >= r.To {
		return nil, nil // the range is empty
	}
	homes := s.homesOf(r)
	drawers, err := s.drawersOf(ctx, r, homes)
	if err != nil {
		return nil, err
	}
	var found []store.PartEntry
	for _, d := range drawers {
		some, err := s.scanDrawer(ctx, d, r, homes, n-len(found))
		if err != nil {
			return nil, err
		}
		if found = append(found, some...); len(found) == n {
			break
		}
	}
	return found, nil
}

// leadOf returns the lead of a row; ok is false if it has none.
func leadOf(row string) (lead string, ok bool) {
	if row == "" {
		return "", false
	}
	n := leadBytes(store.PartKind(row[0]))
	return row[:min(n, len(row))], len(row) >= n
}

// homesOf returns the partitions that have rows of a range: one, if it is of one cell.
func (s *Store) homesOf(r store.Rows) []*partition {
	c, from, ok := store.PartOfRow(r.Namespace, []byte(r.From))
	end, to, is := store.PartOfRow(r.Namespace, []byte(r.To))
	if ok && is && c == end && from[:leadBytes(from.Kind())] == to[:leadBytes(to.Kind())] {
		return []*partition{&s.partitions[store.PartitionOf(c, len(s.partitions))]}
	}
	all := make([]*partition, len(s.partitions))
	for i := range all {
		all[i] = &s.partitions[i]
	}
	return all
}

// drawersOf returns the drawers that may have rows of a range, in their order. Most
// ranges are of one.
func (s *Store) drawersOf(ctx context.Context, r store.Rows, homes []*partition) ([]drawer, error) {
	if lead, ok := leadOf(r.From); ok && r.To != "" && r.To <= after(lead) {
		return []drawer{{r.Namespace, lead}}, nil
	}
	first, _ := leadOf(r.From)
	from, to := "["+r.Namespace+"\xff"+first, "("+r.Namespace+"\xff\xff"
	if r.To != "" {
		last, _ := leadOf(r.To)
		to = "[" + r.Namespace + "\xff" + last
	}
	asked := make([]question, len(homes))
	for i, p := range homes {
		asked[i] = question{p, call{drawersScript, []string{p.head, p.drawers}, []string{from, to}}}
	}
	replies, err := s.ask(ctx, asked)
	if err != nil {
		return nil, err
	}
	leads := make(map[drawer]bool)
	for _, names := range replies {
		for _, name := range names {
			d, err := drawerNamed(name)
			if err != nil {
				return nil, err
			}
			leads[d] = true
		}
	}
	drawers := slices.SortedFunc(maps.Keys(leads), func(a, b drawer) int { return strings.Compare(a.lead, b.lead) })
	if r.Back {
		slices.Reverse(drawers)
	}
	return drawers, nil
}

// after returns what comes after all that begins with a lead.
func after(lead string) string {
	end := []byte(lead)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i]++; end[i] != 0 {
			return string(end[:i+1])
		}
	}
	return "" // no kind is ff
}

// scanDrawer returns up to n parts of a range that are in one drawer.
func (s *Store) scanDrawer(ctx context.Context, d drawer, r store.Rows, homes []*partition, n int) ([]store.PartEntry, error) {
	from, to := "-", "+"
	if rest, ok := strings.CutPrefix(r.From, d.lead); ok && rest != "" {
		from = "[" + rest
	}
	if rest, ok := strings.CutPrefix(r.To, d.lead); ok {
		to = "(" + rest
	}
	if r.Back {
		from, to = to, from
	}
	page := pageOf(n, len(homes))
	found, err := merge(homes, from, r.Back, n, func(short []*row[store.Content]) error {
		asked := make([]question, len(short))
		for i, of := range short {
			args := append(d.appendFloor([]string{s.now(), flag(s.options.Replicas > 0)}), of.from, to, strconv.Itoa(page), flag(r.Back))
			asked[i] = question{of.home, call{rowsScript, []string{of.home.head, of.home.contents(d), of.home.order(d)}, args}}
		}
		replies, err := s.ask(ctx, asked)
		if err != nil {
			return err
		}
		for i, texts := range replies {
			if err := short[i].take(texts, 2, func(texts []string) (store.Content, error) { return parseContent(d.kind(), texts[0]) }); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	entries := make([]store.PartEntry, len(found))
	for i, f := range found {
		if entries[i].PartCell, err = d.part(f.key); err != nil {
			return nil, err
		}
		entries[i].Content = f.value
	}
	return entries, nil
}
