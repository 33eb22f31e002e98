// Package draft reads definitions in the form in which people write them: YAML,
// which includes JSON. Its errors name the line and say what is allowed there.
package draft

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/store"
)

// A Draft is a definition, and where it is for and from.
type Draft struct {
	Namespace  string // of its keys
	Definition definition.Definition
	Line       int // at which it begins
}

// An Error is an error at a line.
type Error struct {
	Line int
	Err  *store.Error
}

// Error returns the line and what is wrong.
func (e *Error) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Err.Detail) }

// Unwrap returns what is wrong.
func (e *Error) Unwrap() error { return e.Err }

// A Reader reads definitions.
type Reader struct {
	// Namespace is that of definitions that name none.
	Namespace string

	// Zone returns an error if there is no time zone of a name.
	Zone func(name string) error
}

// Parse returns the definitions of a text, which is a list of them. Each is valid by
// itself. An error is an *Error, unless the text is no YAML.
func (r Reader) Parse(text []byte) ([]Draft, error) {
	var doc, second yaml.Node
	documents := yaml.NewDecoder(bytes.NewReader(text))
	err := documents.Decode(&doc)
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	if err != nil {
		return nil, store.Errorf(store.KindInvalid, "%s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := documents.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, store.Errorf(store.KindInvalid, "want one YAML document, and nothing after it")
	}
	return r.Read(doc.Content[0])
}

// Read returns the definitions of a list in YAML.
func (r Reader) Read(list *yaml.Node) ([]Draft, error) {
	if list.Kind == yaml.ScalarNode && list.Tag == "!!null" {
		return nil, nil
	}
	var drafts []Draft
	err := elements(list, "a list of definitions", func(n *yaml.Node) error {
		d, err := r.draft(n)
		drafts = append(drafts, d)
		return err
	})
	return drafts, at(list.Line, err)
}

func (r Reader) draft(n *yaml.Node) (Draft, error) {
	d := Draft{Namespace: r.Namespace, Line: n.Line}
	err := members(n, "a definition", fields{
		"namespace": func(n *yaml.Node) error { return text(n, &d.Namespace) },
		"pattern":   func(n *yaml.Node) error { return text(n, &d.Definition.Pattern) },
		"windows": func(n *yaml.Node) error {
			return elements(n, "a list such as [{every: 1h, keep: 30d}]", func(n *yaml.Node) error {
				w, err := r.window(n)
				d.Definition.Windows = append(d.Definition.Windows, w)
				return err
			})
		},
		"dimensions": func(n *yaml.Node) error {
			return elements(n, "a list such as [country, [country, platform]]", func(n *yaml.Node) error {
				by, err := dimension(n)
				d.Definition.Dimensions = append(d.Definition.Dimensions, by)
				return err
			})
		},
		"ledger":  func(n *yaml.Node) error { return ledger(n, &d.Definition.Ledger) },
		"late":    func(n *yaml.Node) error { return late(n, &d.Definition.Late) },
		"floor":   func(n *yaml.Node) error { return integer(n, &d.Definition.Floor) },
		"ceiling": func(n *yaml.Node) error { return integer(n, &d.Definition.Ceiling) },
		"choices": func(n *yaml.Node) error {
			return elements(n, "a list of choices, such as [like, dislike]", func(n *yaml.Node) error {
				var name string
				err := text(n, &name)
				d.Definition.Choices = append(d.Definition.Choices, name)
				return err
			})
		},
		"shards":  func(n *yaml.Node) error { return shards(n, &d.Definition.Shards) },
		"once":    func(n *yaml.Node) error { return r.once(n, &d.Definition.Once) },
		"unique":  func(n *yaml.Node) error { return unique(n, &d.Definition.Unique) },
		"top":     func(n *yaml.Node) error { return tops(n, &d.Definition.Tops) },
		"limits":  func(n *yaml.Node) error { return r.limits(n, &d.Definition.Limits) },
		"away":    func(n *yaml.Node) error { return away(n, &d.Definition.Away) },
		"clients": func(n *yaml.Node) error { return amount(n, &d.Definition.Clients) },
		"reservations": func(n *yaml.Node) error {
			d.Definition.Reservations = new(definition.Reservations)
			return reservations(n, d.Definition.Reservations)
		},
	})
	if err == nil {
		err = store.CheckNamespace(d.Namespace)
	}
	if err == nil {
		err = d.Definition.Check()
	}
	return d, at(n.Line, err)
}

// integer takes an integer of 64 bits. It may be in quotes, as JSON for JavaScript has it.
func integer(n *yaml.Node, to **int64) error {
	v, err := strconv.ParseInt(n.Value, 10, 64)
	if err != nil || n.Kind != yaml.ScalarNode {
		return fmt.Errorf("%q: want an integer between %d and %d", n.Value, int64(math.MinInt64), int64(math.MaxInt64))
	}
	*to = &v
	return nil
}

// shards takes over how many cells users are laid.
func shards(n *yaml.Node, to *int) (err error) {
	if *to, err = strconv.Atoi(n.Value); err != nil || n.Kind != yaml.ScalarNode || n.Tag == "!!str" || *to < 1 || *to > definition.ShardsMax {
		return fmt.Errorf("%q: want a number from 1 to %d", n.Value, definition.ShardsMax)
	}
	return nil
}

func (r Reader) window(n *yaml.Node) (w definition.Window, err error) {
	err = members(n, "a window", fields{
		"every": func(n *yaml.Node) error { return parsed(n, &w.Every) },
		"zone":  func(n *yaml.Node) error { return r.zone(n, &w.Zone) },
		"keep":  func(n *yaml.Node) error { return parsed(n, &w.Keep) },
	})
	switch {
	case err != nil:
	case w.Every == definition.Width{}:
		err = errors.New("a window without every: want {every: 1h, keep: 30d}")
	case w.Keep == 0:
		err = errors.New("a window without keep: want {every: 1h, keep: 30d}")
	}
	return w, at(n.Line, err)
}

// zone takes the name of a time zone.
func (r Reader) zone(n *yaml.Node, to *string) error {
	if err := text(n, to); err != nil {
		return err
	}
	if *to == "UTC" { // which is what it means to name none
		*to = ""
		return nil
	}
	if err := r.Zone(*to); err != nil {
		return fmt.Errorf("%q: want the name of a time zone, such as Europe/Berlin: %w", *to, err)
	}
	return nil
}

// once takes a width, or a mapping of it and its zone.
func (r Reader) once(n *yaml.Node, to *definition.Once) error {
	if n.Kind != yaml.MappingNode {
		return parsed(n, &to.Every)
	}
	err := members(n, "once", fields{
		"every": func(n *yaml.Node) error { return parsed(n, &to.Every) },
		"zone":  func(n *yaml.Node) error { return r.zone(n, &to.Zone) },
		"keep": func(n *yaml.Node) error {
			if err := parsed(n, &to.Keep); err != nil || to.Keep != 0 {
				return err
			}
			return fmt.Errorf("%q: leave it out to remember users for a day", n.Value)
		},
		"approximate": func(n *yaml.Node) error { return parsed(n, &to.Approximate) },
		"users":       func(n *yaml.Node) error { return amount(n, &to.Users) },
	})
	if err == nil && to.Every == (definition.Width{}) {
		err = errors.New("once without every: want {every: 1d, zone: Europe/Berlin}, or 1d")
	}
	return at(n.Line, err)
}

// unique takes what is counted, or a mapping of it and of the error of an estimate.
func unique(n *yaml.Node, to *definition.Unique) error {
	if n.Kind != yaml.MappingNode {
		return text(n, &to.Of)
	}
	err := members(n, "unique", fields{
		"of":    func(n *yaml.Node) error { return text(n, &to.Of) },
		"error": func(n *yaml.Node) error { return parsed(n, &to.Error) },
	})
	if err == nil && to.Of == "" {
		err = errors.New("unique without of: want {of: who, error: 0.8%}, or who")
	}
	return at(n.Line, err)
}

// tops takes a top list, or a list of them.
func tops(n *yaml.Node, to *[]definition.Top) error {
	if n.Kind == yaml.MappingNode {
		n = &yaml.Node{Kind: yaml.SequenceNode, Line: n.Line, Content: []*yaml.Node{n}}
	}
	return elements(n, "a top list such as {name: countries, by: country, k: 100}, or a list of them", func(n *yaml.Node) error {
		var t definition.Top
		err := members(n, "a top list", fields{
			"name": func(n *yaml.Node) error { return text(n, &t.Name) },
			"by":   func(n *yaml.Node) error { return text(n, &t.By) },
			"k": func(n *yaml.Node) (err error) {
				if t.K, err = strconv.Atoi(n.Value); err != nil || n.Kind != yaml.ScalarNode || n.Tag == "!!str" || t.K < 1 || t.K > definition.TopMax {
					return fmt.Errorf("%q: want a number of items from 1 to %d", n.Value, definition.TopMax)
				}
				return nil
			},
		})
		if err == nil && (t.Name == "" || t.By == "") {
			err = errors.New("a top list without a name, or without by: want {name: countries, by: country}")
		}
		*to = append(*to, t)
		return at(n.Line, err)
	})
}

func dimension(n *yaml.Node) (d definition.Dimension, err error) {
	if n.Kind != yaml.MappingNode {
		return d, names(n, &d.By)
	}
	err = members(n, "a dimension", fields{
		"by": func(n *yaml.Node) error { return names(n, &d.By) },
		"windows": func(n *yaml.Node) error {
			d.Windows = []definition.Width{}
			return elements(n, "a list of widths, such as [1h, 1d], or [] for none", func(n *yaml.Node) error {
				var w definition.Width
				err := parsed(n, &w)
				d.Windows = append(d.Windows, w)
				return err
			})
		},
		"limit": func(n *yaml.Node) (err error) {
			d.Limit, err = strconv.Atoi(n.Value)
			if err != nil || n.Kind != yaml.ScalarNode || d.Limit < 1 || d.Limit > definition.ValuesMax {
				return fmt.Errorf("%q: want a number of values from 1 to %d", n.Value, definition.ValuesMax)
			}
			return nil
		},
	})
	return d, err
}

// names takes a name, or a list of names.
func names(n *yaml.Node, to *[]string) error {
	if n.Kind == yaml.ScalarNode {
		n = &yaml.Node{Kind: yaml.SequenceNode, Line: n.Line, Content: []*yaml.Node{n}}
	}
	return elements(n, "a name, or a list of names", func(n *yaml.Node) error {
		var name string
		err := text(n, &name)
		*to = append(*to, name)
		return err
	})
}

func ledger(n *yaml.Node, to *definition.Ledger) error {
	if n.Kind != yaml.MappingNode {
		return parsed(n, &to.Record)
	}
	return members(n, "a ledger", fields{
		"record": func(n *yaml.Node) error { return parsed(n, &to.Record) },
		"keep": func(n *yaml.Node) error {
			if err := parsed(n, &to.Keep); err != nil || to.Keep != 0 {
				return err
			}
			return fmt.Errorf("%q: leave it out to keep the ledger for ever", n.Value)
		},
	})
}

func late(n *yaml.Node, to *definition.Late) error {
	if n.Kind != yaml.MappingNode {
		return parsed(n, &to.Then)
	}
	return members(n, "late", fields{
		"then": func(n *yaml.Node) error { return parsed(n, &to.Then) },
		"after": func(n *yaml.Node) error {
			if err := parsed(n, &to.After); err != nil || to.After != 0 {
				return err
			}
			return fmt.Errorf("%q: leave it out to take what a window keeps", n.Value)
		},
	})
}

func reservations(n *yaml.Node, to *definition.Reservations) error {
	limit := func(to *int64) func(*yaml.Node) error {
		return func(n *yaml.Node) (err error) {
			*to, err = strconv.ParseInt(n.Value, 10, 64)
			if err != nil || n.Kind != yaml.ScalarNode || *to < 1 {
				return fmt.Errorf("%q: want a number from 1 on", n.Value)
			}
			return nil
		}
	}
	return members(n, "reservations", fields{
		"max": limit(&to.Max), "total": limit(&to.Total), "per_who": limit(&to.PerWho), "who_total": limit(&to.Who),
		"max_ttl": func(n *yaml.Node) error { return parsed(n, &to.MaxTTL) },
	})
}
