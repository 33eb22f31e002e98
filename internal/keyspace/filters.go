package keyspace

import (
	"errors"
	"slices"
	"strconv"

	"github.com/quipudb/quipu/internal/sketch"
)

// The commands on filters, as RedisBloom has them.

// What a filter is made for that nobody has reserved.
const (
	filterCapacity  = 100
	filterRate      = 0.01
	filterExpansion = 2
)

const (
	errNotFound   = "ERR not found"
	errItemExists = "ERR item exists"
	errFull       = "ERR non scaling filter is full"
	errRoom       = "ERR the filter has no room left: reserve a larger one"
)

// filterOptions are how a filter is to be made.
type filterOptions struct {
	rate      float64
	capacity  int64
	expansion int64
	fixed     bool // it does not grow
}

var filterDefaults = filterOptions{rate: filterRate, capacity: filterCapacity, expansion: filterExpansion}

// head returns what a filter is that is made so.
func (o filterOptions) head() (h head, wrong string) {
	expansion := int(o.expansion)
	if o.fixed {
		expansion = 0
	} else if o.expansion > sketch.FilterExpansionMax {
		return h, "ERR expansion is at most " + strconv.Itoa(sketch.FilterExpansionMax)
	}
	shape, err := sketch.FilterShapeFor(o.capacity, o.rate, expansion)
	if err == nil {
		h = head{kind: sketch.KindFilter, filter: shape}
		h.pieces, h.piece, err = shape.Chunks()
	}
	if err != nil {
		return h, "ERR could not create filter: it is too large"
	}
	return h, ""
}

// rate returns the error rate that an argument is.
func rate(arg []byte) (float64, bool) {
	f, err := strconv.ParseFloat(string(arg), 64)
	return f, err == nil
}

func bfReserve(s *Space, args [][]byte) Reply {
	if len(args) > 7 {
		return wrongArity(string(args[0]))
	}
	o := filterDefaults
	var ok1, ok2 bool
	o.rate, ok1 = rate(args[2])
	o.capacity, ok2 = Integer(args[3])
	switch {
	case !ok1:
		return failed("ERR bad error rate")
	case !(o.rate > 0 && o.rate < 1):
		return failed("ERR (0 < error rate range < 1)")
	case !ok2:
		return failed("ERR bad capacity")
	case o.capacity <= 0:
		return failed("ERR (capacity should be larger than 0)")
	}
	expands := false
	for i := 4; i < len(args); i++ {
		switch {
		case is(args[i], "NONSCALING"):
			o.fixed = true
		case is(args[i], "EXPANSION") && i+1 == len(args):
			return failed("ERR no expansion")
		case is(args[i], "EXPANSION"):
			i++
			expands = true
			if o.expansion, ok1 = Integer(args[i]); !ok1 {
				return failed("ERR bad expansion")
			}
		default:
			return failed(errSyntax)
		}
	}
	switch {
	case o.fixed && expands:
		return failed("ERR Nonscaling filters cannot expand")
	case o.expansion < 1:
		return failed("ERR expansion should be greater or equal to 1")
	}
	b, wrong := s.body(args[1], sketch.KindFilter, errNotFound)
	switch wrong {
	case "":
		return failed(errItemExists)
	case errNotFound:
	default:
		return failed(wrong)
	}
	h, wrong := o.head()
	if wrong != "" {
		return failed(wrong)
	}
	b.makeFilter(h)
	return ok()
}

// makeFilter makes a key a filter without items.
func (b *body) makeFilter(h head) {
	if b.make(h); h.pieces > 1 {
		return
	}
	asks, err := sketch.AppendFilterRequest(nil, h.piece, nil)
	if f, bad := sketch.NewFilter(h.piece); err == nil && bad == nil {
		b.become(0, becoming{asks: asks, next: string(f.Append(nil))})
	}
}

func bfAdd(s *Space, args [][]byte) Reply {
	all, wrong := s.fill(args[1], args[2:], &filterDefaults)
	if wrong != "" {
		return failed(wrong)
	}
	return all[0]
}

func bfMAdd(s *Space, args [][]byte) Reply {
	all, wrong := s.fill(args[1], args[2:], &filterDefaults)
	if wrong != "" {
		return failed(wrong)
	}
	return Reply{Kind: Array, All: all}
}

func bfInsert(s *Space, args [][]byte) Reply {
	o, create, items := filterDefaults, true, [][]byte(nil)
	var has bool
	for i := 2; i < len(args) && items == nil; i++ {
		word := args[i]
		switch {
		case is(word, "NOCREATE"):
			create = false
			continue
		case is(word, "NONSCALING"):
			o.fixed = true
			continue
		case i+1 == len(args):
			return wrongArity(string(args[0]))
		}
		i++
		switch {
		case is(word, "ITEMS"):
			items = args[i:]
		case is(word, "ERROR"):
			if o.rate, has = rate(args[i]); !has {
				return failed("ERR Bad error rate")
			}
		case is(word, "CAPACITY"):
			if o.capacity, has = Integer(args[i]); !has {
				return failed("ERR Bad capacity")
			}
		case is(word, "EXPANSION"):
			if o.expansion, has = Integer(args[i]); !has {
				return failed("ERR Bad expansion")
			}
		default:
			return failed("ERR Unknown argument received")
		}
	}
	switch {
	case len(items) == 0:
		return wrongArity(string(args[0]))
	case !(o.rate > 0 && o.rate < 1), o.capacity < 1, o.expansion < 1:
		return failed("ERR Bad argument received")
	}
	made := &o
	if !create {
		made = nil
	}
	all, wrong := s.fill(args[1], items, made)
	if wrong != "" {
		return failed(wrong)
	}
	return Reply{Kind: Array, All: all}
}

// fill adds items to a filter, and returns the reply to each. If there is none it is made, if options say how. When
// it is full, the last reply is an error, and nothing behind it is added.
func (s *Space) fill(key []byte, items [][]byte, o *filterOptions) (all []Reply, wrong string) {
	b, wrong := s.body(key, sketch.KindFilter, errNotFound)
	if wrong == errNotFound && o != nil {
		h, wrong := o.head()
		if wrong != "" {
			return nil, wrong
		}
		b.makeFilter(h)
	} else if wrong != "" {
		return nil, wrong
	}
	hashes := hashed(items)
	fresh, room, err := b.fillTogether(hashes)
	switch {
	case err != nil:
		return nil, "ERR " + err.Error()
	case !room:
		return b.fillApart(hashes), ""
	}
	for _, is := range fresh {
		all = append(all, truth(is))
	}
	return all, ""
}

func hashed[T string | []byte](items []T) []uint64 {
	hashes := make([]uint64, len(items))
	for i, item := range items {
		hashes[i] = sketch.Hash(string(item))
	}
	return hashes
}

// filter returns a piece as a filter.
func (b *body) filterAt(i int) (*sketch.Filter, error) {
	if state := b.state(i); state != "" {
		return sketch.ParseFilter(state)
	}
	return sketch.NewFilter(b.piece)
}

// byPiece returns which pieces have items, in the order in which the items name them.
func (b *body) byPiece(hashes []uint64) (indexes []int, at map[int][]uint64) {
	at = make(map[int][]uint64)
	for _, h := range hashes {
		i := b.pieceOf(h)
		if at[i] == nil {
			indexes = append(indexes, i)
		}
		at[i] = append(at[i], h)
	}
	return indexes, at
}

// fillTogether adds all items, those of each piece in the order that a request has them, and reports which are new. It
// reports false for room, and changes nothing, if there is none for one of them.
func (b *body) fillTogether(hashes []uint64) (fresh []bool, room bool, err error) {
	is, added := make(map[int]becoming), make(map[uint64]bool)
	indexes, at := b.byPiece(hashes)
	err = b.visit(indexes, func(i int) error {
		f, err := b.filterAt(i)
		if err != nil {
			return err
		}
		some := at[i]
		slices.Sort(some)
		some = slices.Compact(some)
		for _, h := range some {
			var room bool
			if added[h], room = f.Add(h); !room {
				return errNoRoom
			}
		}
		asks, err := sketch.AppendFilterRequest(nil, b.piece, some)
		if err != nil { // It is too long.
			asks = nil
		}
		is[i], err = b.next(i, asks, f.Append(nil))
		return err
	})
	if errors.Is(err, errNoRoom) {
		return nil, false, nil
	}
	if err != nil {
		return nil, true, err
	}
	for _, i := range indexes {
		b.become(i, is[i])
	}
	for _, h := range hashes {
		fresh = append(fresh, added[h])
		delete(added, h) // The next one is there already.
	}
	return fresh, true, nil
}

// errNoRoom says that a filter has no room for an item.
var errNoRoom = errors.New("keyspace: no room")

// fillApart adds items one after the other until one finds no room.
func (b *body) fillApart(hashes []uint64) (all []Reply) {
	filters := make(map[int]*sketch.Filter)
	indexes, _ := b.byPiece(hashes)
	b.load(indexes)
	for _, h := range hashes {
		i := b.pieceOf(h)
		f := filters[i]
		if f == nil {
			var err error
			if f, err = b.filterAt(i); err != nil {
				return append(all, failed("ERR "+err.Error()))
			}
			filters[i] = f
		}
		added, room := f.Add(h)
		if !room {
			why := errFull
			if b.filter.Expansion > 0 {
				why = errRoom
			}
			all = append(all, failed(why))
			break
		}
		all = append(all, truth(added))
	}
	is := make(map[int]becoming)
	for i, f := range filters {
		var err error
		if is[i], err = b.next(i, nil, f.Append(nil)); err != nil {
			return []Reply{failed("ERR " + err.Error())}
		}
	}
	for i := range is {
		b.become(i, is[i])
	}
	return all
}

func bfExists(s *Space, args [][]byte) Reply {
	all, wrong := s.find(args[1], args[2:])
	if wrong != "" {
		return failed(wrong)
	}
	return all[0]
}

func bfMExists(s *Space, args [][]byte) Reply {
	all, wrong := s.find(args[1], args[2:])
	if wrong != "" {
		return failed(wrong)
	}
	return Reply{Kind: Array, All: all}
}

// find looks for items. A filter that does not exist has none.
func (s *Space) find(key []byte, items [][]byte) (all []Reply, wrong string) {
	b, wrong := s.body(key, sketch.KindFilter, errNotFound)
	if wrong != "" && wrong != errNotFound {
		return nil, wrong
	}
	found := make([]bool, len(items))
	if wrong == "" {
		found, _ = b.found(hashed(items), func(string) error { return nil }) // The Space keeps why a piece could not be loaded.
	}
	for _, is := range found {
		all = append(all, truth(is))
	}
	return all, ""
}

// found reports which items a filter has, and calls look for each piece that was asked, unless nothing has come to it.
func (b *body) found(hashes []uint64, look func(state string) error) ([]bool, error) {
	has := make(map[uint64]bool, len(hashes))
	indexes, at := b.byPiece(hashes)
	err := b.visit(indexes, func(i int) error {
		state := b.state(i)
		if state == "" {
			return nil
		}
		for _, h := range at[i] {
			has[h] = sketch.FilterHas(state, h)
		}
		return look(state)
	})
	found := make([]bool, len(hashes))
	for i, h := range hashes {
		found[i] = has[h]
	}
	return found, err
}

// A FilterInfo tells of the filter that a key holds.
type FilterInfo struct {
	Capacity, Items int64
	Bytes, Parts    int64
	Expansion       int64 // 0 if it does not grow
	Rate            float64
	Error           float64 // the part of other items that is found now
	Full            bool    // a piece is
	Exact           bool    // Items is
}

// filterInfo tells of a filter.
func (b *body) filterInfo() (info FilterInfo) {
	info.Expansion, info.Rate = int64(b.filter.Expansion), b.filter.Rate()
	info.Parts, info.Exact = 1, true
	b.each(func(state string) {
		f, err := sketch.ParseFilter(state)
		if err != nil {
			return
		}
		one := f.Info()
		info.Items += one.Items
		info.Bytes += int64(one.Bytes)
		info.Capacity += int64(one.Capacity)
		info.Parts = max(info.Parts, int64(one.Parts))
		info.Error += one.Error / float64(b.pieces) // Other items are in each piece as often as in any.
		info.Full, info.Exact = info.Full || one.Full, info.Exact && one.Exact
	})
	if b.pieces > 1 {
		info.Capacity = max(info.Capacity, int64(b.filter.Capacity))
	}
	return info
}

func bfInfo(s *Space, args [][]byte) Reply {
	if len(args) > 3 {
		return wrongArity(string(args[0]))
	}
	b, wrong := s.body(args[1], sketch.KindFilter, errNotFound)
	if wrong != "" {
		return failed(wrong)
	}
	info := b.filterInfo()
	expansion := number(info.Expansion)
	if info.Expansion == 0 {
		expansion = Reply{}
	}
	all := []struct {
		word, name string
		value      Reply
	}{
		{"CAPACITY", "Capacity", number(info.Capacity)},
		{"SIZE", "Size", number(info.Bytes)},
		{"FILTERS", "Number of filters", number(info.Parts)},
		{"ITEMS", "Number of items inserted", number(info.Items)},
		{"EXPANSION", "Expansion rate", expansion},
	}
	r := Reply{Kind: Map}
	for _, f := range all {
		if len(args) == 3 && is(args[2], f.word) {
			return Reply{Kind: Map, N: 1, All: []Reply{{Kind: Status, Text: f.name}, f.value}}
		}
		r.All = append(r.All, Reply{Kind: Status, Text: f.name}, f.value)
	}
	if len(args) == 3 {
		return failed("ERR Invalid information value")
	}
	return r
}

func bfCard(s *Space, args [][]byte) Reply {
	b, wrong := s.body(args[1], sketch.KindFilter, errNotFound)
	switch wrong {
	case "":
		return number(b.filterInfo().Items)
	case errNotFound:
		return number(0)
	default:
		return failed(wrong)
	}
}
