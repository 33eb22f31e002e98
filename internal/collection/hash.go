package collection

import "iter"

// A Hash is fields with their values, in the order in which the fields came. The zero Hash is empty. It is
// not safe for concurrent use.
type Hash struct {
	fields []field
	at     map[string]int
}

type field struct {
	name, value string
	gone        bool
}

// ParseHash returns the hash that some bytes are.
func ParseHash(state string) (*Hash, error) {
	h := &Hash{}
	r := open(state, KindHash)
	for r.more() {
		if name, value := r.text(), r.text(); !h.Set(name, value) {
			return nil, ErrBytes
		}
	}
	if r.wrong {
		return nil, ErrBytes
	}
	return h, nil
}

// Len returns how many fields there are.
func (h *Hash) Len() int { return len(h.at) }

// Get returns the value of a field.
func (h *Hash) Get(name string) (value string, ok bool) {
	i, ok := h.at[name]
	if !ok {
		return "", false
	}
	return h.fields[i].value, true
}

// Set gives a field a value, and reports whether it is a new one.
func (h *Hash) Set(name, value string) (fresh bool) {
	if i, has := h.at[name]; has {
		h.fields[i].value = value
		return false
	}
	if h.at == nil {
		h.at = make(map[string]int)
	}
	h.at[name] = len(h.fields)
	h.fields = append(h.fields, field{name: name, value: value})
	return true
}

// Delete takes a field away, and reports whether it was there.
func (h *Hash) Delete(name string) bool {
	i, has := h.at[name]
	if has {
		delete(h.at, name)
		h.fields[i].gone = true
	}
	return has
}

// All returns the fields and their values.
func (h *Hash) All() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, f := range h.fields {
			if !f.gone && !yield(f.name, f.value) {
				return
			}
		}
	}
}

// Append appends the bytes of a hash that is not empty.
func (h *Hash) Append(b []byte) []byte {
	b = append(b, byte(KindHash), version)
	for name, value := range h.All() {
		b = appendText(appendText(b, name), value)
	}
	return b
}
