package spread

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// A printer prints the state of machines. What only tells things apart is printed by
// the order in which it comes: pointers, and the versions of cells.
type printer struct {
	b        []byte
	seen     map[uintptr]int
	versions map[uint64]int
}

// versionsFrom and versionsTo are between what the versions of a world are.
const (
	versionsFrom = 1 << 30 * 1_000_000
	versionsTo   = versionsFrom + 1<<30
)

func (p *printer) add(values ...any) {
	for _, v := range values {
		p.walk(reflect.ValueOf(v))
		p.b = append(p.b, ';')
	}
}

func (p *printer) walk(v reflect.Value) {
	switch v.Kind() {
	case reflect.Invalid, reflect.Func:
	case reflect.Bool:
		p.b = strconv.AppendBool(p.b, v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		p.b = strconv.AppendInt(p.b, v.Int(), 16)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		p.number(v.Uint())
	case reflect.String:
		p.b = append(p.b, v.String()...)
	case reflect.Interface:
		p.walk(v.Elem())
	case reflect.Pointer:
		p.pointer(v)
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			p.walk(v.Index(i))
			p.b = append(p.b, ',')
		}
	case reflect.Map:
		p.sorted(v)
	case reflect.Struct:
		p.fields(v)
	default:
		panic(fmt.Sprint("no way to print a ", v.Kind()))
	}
}

// number prints a version by its place among those printed, and no mix of several.
func (p *printer) number(n uint64) {
	switch {
	case n >= versionsFrom && n < versionsTo:
		at, ok := p.versions[n]
		if !ok {
			at = len(p.versions)
			p.versions[n] = at
		}
		p.b = strconv.AppendInt(append(p.b, 'v'), int64(at), 16)
	case n < OfShards:
		p.b = strconv.AppendUint(p.b, n, 16)
	}
}

func (p *printer) pointer(v reflect.Value) {
	if v.IsNil() {
		return
	}
	at, ok := p.seen[v.Pointer()]
	if !ok {
		at = len(p.seen)
		p.seen[v.Pointer()] = at
	}
	p.b = strconv.AppendInt(append(p.b, '#'), int64(at), 16)
	if !ok {
		p.walk(v.Elem())
	}
}

func (p *printer) sorted(v reflect.Value) {
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	for _, k := range keys {
		p.walk(k)
		p.b = append(p.b, ':')
		p.walk(v.MapIndex(k))
		p.b = append(p.b, ',')
	}
}

// fields prints a struct. What the servers know is printed by the world, and the
// rest says nothing of what comes next.
func (p *printer) fields(v reflect.Value) {
	switch t := v.Type(); {
	case t == reflect.TypeFor[core](), t == reflect.TypeFor[pace](), t == reflect.TypeFor[world](), t == reflect.TypeFor[actor](), t.PkgPath() == "time":
		return
	}
	for _, field := range v.Fields() {
		p.walk(field)
		p.b = append(p.b, ' ')
	}
}
