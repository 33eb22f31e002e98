package rest

import (
	"strconv"
	"time"

	"github.com/quipudb/quipu"
	api "github.com/quipudb/quipu/call"
	"github.com/quipudb/quipu/store"
)

// The memory that calls on whole sketches take: the pieces that are looked at together, and for a merge all that is
// written. That of items is taken with the body.
const (
	sketchBytes = 2 << 20
	mergeBytes  = 8 << 20
)

// A shape is what a sketch is made for, as it is replied.
type shape struct {
	Kind         api.SketchKind `json:"kind"`
	Capacity     int64          `json:"capacity,omitempty"`
	Error        float64        `json:"error,omitempty"`
	Growth       int            `json:"growth,omitempty"`
	Fixed        bool           `json:"fixed,omitempty"`
	Width        int            `json:"width,omitempty"`
	Depth        int            `json:"depth,omitempty"`
	Conservative bool           `json:"conservative,omitempty"`
	K            int            `json:"k,omitempty"`
}

func shapeOf(s *api.Shape) shape {
	return shape{s.Kind, s.Capacity, s.Error, s.Growth, s.Fixed, s.Width, s.Depth, s.Conservative, s.K}
}

// A sketchItem is what a sketch knows of an item, as far as that means something to its kind.
type sketchItem struct {
	Item     string `json:"item"`
	Added    *bool  `json:"added,omitempty"`
	Found    *bool  `json:"found,omitempty"`
	Count    *int64 `json:"count,omitempty"`
	Lower    *int64 `json:"lower,omitempty"`
	Upper    *int64 `json:"upper,omitempty"`
	Listed   *bool  `json:"listed,omitempty"`
	Expelled string `json:"expelled,omitempty"`
}

// sketchItems returns what a sketch of a kind knows of items, which were added or only asked for.
func sketchItems(kind api.SketchKind, items []api.SketchItem, added bool) []sketchItem {
	out := make([]sketchItem, len(items))
	for i := range items {
		from, to := &items[i], &out[i]
		to.Item = from.Item
		switch kind {
		case api.SketchFilter:
			if to.Found = &from.Found; added {
				to.Added = &from.Added
			}
		case api.SketchTop:
			to.Count, to.Lower, to.Upper, to.Listed, to.Expelled = &from.Count, &from.Lower, &from.Upper, &from.Listed, from.Expelled
		case api.SketchFrequencies:
			to.Count, to.Lower, to.Upper = &from.Count, &from.Lower, &from.Upper
		default: // It is no sketch any more.
		}
	}
	return out
}

// confidence returns with which probability lower bounds are right, if a kind has that.
func confidence(kind api.SketchKind, is float64) *float64 {
	if kind != api.SketchFrequencies {
		return nil
	}
	return &is
}

// makeSketch makes an absent key a sketch.
func makeSketch(c *call) error {
	raw, err := c.body(bodyBytesMax)
	if err != nil {
		return err
	}
	want, opts, err := decodeShape(raw)
	if err != nil {
		return err
	}
	if token, err := c.token(); err != nil || token != "" {
		return invalid(tokenHeader, "a sketch is made once anyhow: leave it out")
	}
	made, err := c.db.MakeSketch(c.ctx, c.args.key, want, opts...)
	if err != nil {
		return err
	}
	return c.json(struct {
		Key  string `json:"key"`
		Made bool   `json:"made"`
	}{c.args.key, made})
}

// sketchOptions adds what the headers ask of a write to a sketch.
func (c *call) sketchOptions(opts []quipu.WriteOption) ([]quipu.WriteOption, error) {
	if _, guarded, _ := c.precondition(); guarded {
		return nil, invalid("If-Match", "a sketch is not changed by its version")
	}
	token, err := c.token()
	if token != "" {
		opts = append(opts, quipu.Token(token))
	}
	return opts, err
}

// addItems adds items to a sketch.
func addItems(c *call) error {
	raw, err := c.body(batchBytesMax)
	if err != nil {
		return err
	}
	items, opts, err := decodeSketchItems(raw)
	if err == nil {
		opts, err = c.sketchOptions(opts)
	}
	if err != nil {
		return err
	}
	a, err := c.db.AddItems(c.ctx, c.args.key, items, opts...)
	if err != nil {
		return err
	}
	if a.Replayed {
		c.w.Header()["Idempotent-Replayed"] = replayedTrue
	}
	return c.json(struct {
		Key        string         `json:"key"`
		Kind       api.SketchKind `json:"kind,omitempty"`
		Items      []sketchItem   `json:"items"`
		Confidence *float64       `json:"confidence,omitempty"`
		Replayed   bool           `json:"replayed"`
		Durability string         `json:"durability"`
	}{a.Key, a.Kind, sketchItems(a.Kind, a.Items, true), confidence(a.Kind, a.Confidence), a.Replayed, a.Durability.String()})
}

// askItems replies what a sketch knows of items.
func askItems(c *call) error {
	raw, err := c.body(batchBytesMax)
	if err != nil {
		return err
	}
	names, err := decodeItems(raw)
	if err != nil {
		return err
	}
	a, err := c.db.AskItems(c.ctx, c.args.key, names...)
	if err != nil {
		return err
	}
	var rate *float64
	if a.Kind == api.SketchFilter {
		rate = &a.Error
	}
	return c.json(struct {
		Key        string         `json:"key"`
		Kind       api.SketchKind `json:"kind"`
		Items      []sketchItem   `json:"items"`
		Exact      bool           `json:"exact"`
		Error      *float64       `json:"error,omitempty"`
		Confidence *float64       `json:"confidence,omitempty"`
		AsOf       time.Time      `json:"as_of"`
	}{a.Key, a.Kind, sketchItems(a.Kind, a.Items, false), a.Exact, rate, confidence(a.Kind, a.Confidence), a.AsOf.UTC()})
}

// A told is what is known of a sketch.
type told struct {
	Key       string        `json:"key"`
	Shape     shape         `json:"shape"`
	Total     int64         `json:"total"`
	Exact     bool          `json:"exact"`
	Bytes     int64         `json:"bytes"`
	Error     *float64      `json:"error,omitempty"`
	Capacity  *int64        `json:"capacity,omitempty"`
	Full      *bool         `json:"full,omitempty"`
	Epsilon   *float64      `json:"epsilon,omitempty"`
	Confident *float64      `json:"confidence,omitempty"`
	Items     *[]sketchItem `json:"items,omitempty"`
	Rest      *int64        `json:"rest,omitempty"`
	Uniques   *estimate     `json:"uniques,omitempty"`
	ExpiresAt *time.Time    `json:"expires_at,omitempty"`
	AsOf      time.Time     `json:"as_of"`
}

// sketchOf replies what is known of a sketch.
func sketchOf(c *call) error {
	k, err := c.count("k")
	if err == nil {
		err = c.take(sketchBytes)
	}
	if err != nil {
		return err
	}
	s, err := c.db.Sketch(c.ctx, c.args.key, k)
	if err != nil {
		return err
	}
	out := told{Key: s.Key, Shape: shapeOf(&s.Shape), Total: s.Total, Exact: s.Exact, Bytes: s.Bytes, ExpiresAt: given(s.ExpiresAt), AsOf: s.AsOf.UTC()}
	switch s.Shape.Kind {
	case api.SketchFilter:
		out.Error, out.Capacity, out.Full = &s.Error, &s.Capacity, &s.Full
	case api.SketchFrequencies:
		out.Epsilon, out.Confident = &s.Epsilon, &s.Confidence
	case api.SketchTop:
		out.Items, out.Rest = new(sketchItems(s.Shape.Kind, s.Items, false)), &s.Rest
	default:
		out.Uniques = new(estimateOf(s.Uniques))
	}
	return c.json(out)
}

// mergeSketches makes a key what other sketches are together.
func mergeSketches(c *call) error {
	raw, err := c.body(bodyBytesMax)
	if err != nil {
		return err
	}
	from, opts, err := decodeSources(raw)
	if err == nil {
		opts, err = c.sketchOptions(opts)
	}
	if err != nil {
		return err
	}
	if err := c.permitKeys(1+len(from), func(i int) string {
		if i == 0 {
			return c.args.key
		}
		return from[i-1].Key
	}); err != nil {
		return err
	}
	taken, err := c.h.budget.Take(c.ctx, mergeBytes)
	if err != nil {
		return err
	}
	defer c.h.budget.Give(taken)
	replayed, err := c.db.MergeSketches(c.ctx, c.args.key, from, opts...)
	if err != nil {
		return err
	}
	if replayed {
		c.w.Header()["Idempotent-Replayed"] = replayedTrue
	}
	return c.json(struct {
		Key      string `json:"key"`
		Replayed bool   `json:"replayed"`
	}{c.args.key, replayed})
}

// decodeShape reads {"kind":"filter","capacity":1000,…,"ttl":"1d"}, of which the kind must be there.
func decodeShape(body []byte) (s api.Shape, opts []quipu.WriteOption, err error) {
	d := decoder{b: body}
	d.begin('{', "body")
	var seen uint
	for n := 0; d.more('}', n, "body"); n++ {
		switch d.member("body", &seen, "kind", "capacity", "error", "growth", "fixed", "epsilon", "confidence", "width", "depth", "conservative", "k", "ttl") {
		case 0:
			s.Kind = api.SketchKind(d.text("kind"))
		case 1:
			s.Capacity = d.integer("capacity")
		case 2:
			s.Error = d.number("error")
		case 3:
			s.Growth = d.small("growth")
		case 4:
			s.Fixed = d.truth("fixed")
		case 5:
			s.Epsilon = d.number("epsilon")
		case 6:
			s.Confidence = d.number("confidence")
		case 7:
			s.Width = d.small("width")
		case 8:
			s.Depth = d.small("depth")
		case 9:
			s.Conservative = d.truth("conservative")
		case 10:
			s.K = d.small("k")
		case 11:
			opts = append(opts, quipu.TTL(d.lifetime()))
		}
	}
	if d.err == nil && seen&1 == 0 {
		d.fail(d.i, "kind", `it is missing; want {"kind":"filter","capacity":1000} or another kind: frequencies, top`)
	}
	return s, opts, d.end()
}

// small reads an integer of 32 bits other than 0, which stands for what is not there.
func (d *decoder) small(field string) int {
	d.space()
	at := d.i
	n := d.integer(field)
	switch {
	case int64(int32(n)) != n:
		d.fail(at, field, "want a smaller number")
		return 0
	case n == 0:
		d.fail(at, field, "want an integer other than 0")
	}
	return int(n)
}

// number reads a number other than 0, which stands for what is not there. It may have a
// fraction and an exponent; one that is too close to 0 is 0.
func (d *decoder) number(field string) float64 {
	d.space()
	at := d.i
	i := at
	for i < len(d.b) && isOfNumber(d.b[i]) {
		i++
	}
	text := string(d.b[at:i])
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || !isNumber(text) {
		d.fail(at, field, "want a number such as 0.01")
		return 0
	}
	if f == 0 {
		d.fail(at, field, "want a number above 0, such as 0.01")
		return 0
	}
	d.i = i
	return f
}

// decodeSketchItems reads {"items":["ana",{"item":"bob","n":3},…],"ttl":"1d"}.
func decodeSketchItems(body []byte) (items []api.Item, opts []quipu.WriteOption, err error) {
	opts, err = decodeEach(body, "items", `want {"items":["ana",{"item":"bob","n":3}]}`, api.ItemsMax, func(d *decoder) {
		var item api.Item
		if d.space(); d.i < len(d.b) && d.b[d.i] == '"' {
			item.Item = d.text("items")
		} else {
			item.Item, item.N = d.pair("items", "item", "n")
		}
		items = append(items, item)
	})
	return items, opts, err
}

// decodeSources reads {"from":["monday",{"key":"tuesday","weight":2},…],"ttl":"1d"}.
func decodeSources(body []byte) (from []api.SketchSource, opts []quipu.WriteOption, err error) {
	opts, err = decodeEach(body, "from", `want {"from":["monday",{"key":"tuesday","weight":2}]}`, api.MergeMax, func(d *decoder) {
		var f api.SketchSource
		if d.space(); d.i < len(d.b) && d.b[d.i] == '"' {
			f.Key = d.text("from")
		} else {
			f.Key, f.Weight = d.pair("from", "key", "weight")
		}
		from = append(from, f)
	})
	return from, opts, err
}

// decodeEach reads {"name":[…],"ttl":…}, of which the first must be there, and calls each for its elements.
func decodeEach(body []byte, name, want string, most int, each func(d *decoder)) (opts []quipu.WriteOption, err error) {
	d := decoder{b: body}
	d.begin('{', "body")
	var seen uint
	for n := 0; d.more('}', n, "body"); n++ {
		switch d.member("body", &seen, name, "ttl") {
		case 0:
			d.begin('[', name)
			for i := 0; d.more(']', i, name); i++ {
				if i == most {
					d.refuse(store.KindTooLarge, d.i, name, "more than "+strconv.Itoa(most))
					break
				}
				each(&d)
			}
		case 1:
			opts = append(opts, quipu.TTL(d.lifetime()))
		}
	}
	if d.err == nil && seen&1 == 0 {
		d.fail(d.i, "body", want)
	}
	return opts, d.end()
}

// pair reads an object of a text, which must be there, and an integer other than 0, which stands for what is not.
func (d *decoder) pair(field, first, second string) (text string, n int64) {
	d.begin('{', field)
	var seen uint
	for i := 0; d.more('}', i, field); i++ {
		switch d.member(field, &seen, first, second) {
		case 0:
			text = d.text(first)
		case 1:
			at := d.i
			if n = d.integer(second); n == 0 && d.err == nil {
				d.fail(at, second, "want an integer other than 0")
			}
		}
	}
	if d.err == nil && seen&1 == 0 {
		d.fail(d.i, field, first+" is missing")
	}
	return text, n
}
