package draft

import (
	"encoding"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/quipudb/quipu/store"
)

// fields are what the members of a mapping are taken by.
type fields map[string]func(*yaml.Node) error

// members hands each member of a mapping to its field.
func members(n *yaml.Node, what string, fields fields) error {
	want := strings.Join(slices.Sorted(maps.Keys(fields)), ", ")
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("want %s: a mapping of %s", what, want)
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		take, known := fields[name.Value]
		switch {
		case !known:
			return at(name.Line, fmt.Errorf("unknown setting %q of %s: want %s", name.Value, what, want))
		case seen[name.Value]:
			return at(name.Line, fmt.Errorf("%s is given twice", name.Value))
		}
		seen[name.Value] = true
		if err := take(value); err != nil {
			return at(value.Line, fmt.Errorf("%s: %w", name.Value, err))
		}
	}
	return nil
}

// elements hands each element of a list to f.
func elements(n *yaml.Node, want string, f func(*yaml.Node) error) error {
	if n.Kind != yaml.SequenceNode {
		return fmt.Errorf("want %s", want)
	}
	for _, element := range n.Content {
		if err := f(element); err != nil {
			return at(element.Line, err)
		}
	}
	return nil
}

// text takes a plain value.
func text(n *yaml.Node, to *string) error {
	if n.Kind != yaml.ScalarNode {
		return errors.New("want a plain value")
	}
	*to = n.Value
	return nil
}

// parsed takes a plain value that to can read.
func parsed(n *yaml.Node, to encoding.TextUnmarshaler) error {
	var s string
	if err := text(n, &s); err != nil {
		return err
	}
	return to.UnmarshalText([]byte(s))
}

// at returns err with a line, unless it has one from deeper, and so nearer.
func at(line int, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	e, ok := errors.AsType[*store.Error](err)
	if !ok {
		e = store.Errorf(store.KindInvalid, "%w", err)
	}
	return &Error{line, e}
}
