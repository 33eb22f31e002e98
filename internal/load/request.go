package load

import "strings"

// KeyZero is the first key, and that of Hot. Those of redis-benchmark have the
// same names.
const KeyZero = "key:000000000000"

// setValue is what Set sets.
const setValue = "1"

// requests are ready to be sent, but for the number of the key.
type requests struct{ incr, add, get, set, throttle template }

// A template is a request for the first key. One that has a name of its own has no
// number, and is the only one.
type template struct {
	text []byte
	end  int // of the key
}

func newTemplate(text string) template {
	return template{[]byte(text), strings.Index(text, KeyZero) + len(KeyZero)}
}

// request appends a request.
func (r *requests) request(b []byte, op Op, key uint64) []byte {
	var t template
	switch op {
	case Add:
		t = r.add
	case Get:
		t = r.get
	case Set:
		t = r.set
	case Throttle:
		t = r.throttle
	default:
		t = r.incr
	}
	from := len(b)
	b = append(b, t.text...)
	for i := from + t.end - 1; key > 0; i-- { // over the zeros
		b[i] = byte('0' + key%10)
		key /= 10
	}
	return b
}
