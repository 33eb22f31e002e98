package draft

import (
	"errors"
	"fmt"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/quipudb/quipu/definition"
)

// limits takes a list of limits.
func (r Reader) limits(n *yaml.Node, to *[]definition.Limit) error {
	return elements(n, "a list such as [{rate: 10, per: 1s}]", func(n *yaml.Node) error {
		l, err := r.limit(n)
		*to = append(*to, l)
		return err
	})
}

func (r Reader) limit(n *yaml.Node) (l definition.Limit, err error) {
	err = members(n, "a limit", fields{
		"name":      func(n *yaml.Node) error { return text(n, &l.Name) },
		"algorithm": func(n *yaml.Node) error { return parsed(n, &l.Algorithm) },
		"rate":      func(n *yaml.Node) error { return amount(n, &l.Rate) },
		"per":       func(n *yaml.Node) error { return parsed(n, &l.Per) },
		"burst":     func(n *yaml.Node) error { return amount(n, &l.Burst) },
		"zone": func(n *yaml.Node) error {
			if err := text(n, &l.Zone); err != nil {
				return err
			}
			if l.Zone == "UTC" { // which is what it means to name none
				l.Zone = ""
				return nil
			}
			if err := r.Zone(l.Zone); err != nil {
				return fmt.Errorf("%q: want the name of a time zone, such as Europe/Berlin: %w", l.Zone, err)
			}
			return nil
		},
	})
	switch {
	case err != nil:
	case l.Rate == 0:
		err = errors.New("a limit without rate: want {rate: 10, per: 1s}")
	case l.Per == definition.Width{}:
		err = errors.New("a limit without per: want {rate: 10, per: 1s}")
	}
	return l, at(n.Line, err)
}

// amount takes a number above 0.
func amount(n *yaml.Node, to *int64) (err error) {
	if *to, err = strconv.ParseInt(n.Value, 10, 64); err != nil || n.Kind != yaml.ScalarNode || *to < 1 || *to > definition.LimitAmountMax {
		return fmt.Errorf("%q: want a number from 1 to %d", n.Value, int64(definition.LimitAmountMax))
	}
	return nil
}

func away(n *yaml.Node, to *definition.Away) error {
	if n.Kind != yaml.MappingNode {
		return parsed(n, &to.Then)
	}
	return members(n, "away", fields{
		"then": func(n *yaml.Node) error { return parsed(n, &to.Then) },
		"servers": func(n *yaml.Node) (err error) {
			if to.Servers, err = strconv.Atoi(n.Value); err != nil || n.Kind != yaml.ScalarNode || to.Servers < 1 || to.Servers > definition.ServersMax {
				return fmt.Errorf("%q: want a number of servers from 1 to %d", n.Value, definition.ServersMax)
			}
			return nil
		},
	})
}
