package definition

import (
	"fmt"
	"strconv"
)

// ByKey is the value of Top.By for a list of the keys of the pattern.
const ByKey = "key"

// The limits of top lists.
const (
	TopMax  = 1_000 // items that a list is asked for
	TopsMax = 8     // lists of a definition

	topDefault = 100
)

// A Top has the most frequent of something listed beside the events: for all time, and in each
// window that the definition has. It counts what is added; amounts below zero and corrections
// take nothing out of it.
type Top struct {
	// Name is what the list is called. Lists by key have different names in all of a namespace.
	Name string `json:"name"`

	// By is what is listed. With "key" these are the counters of the pattern, all in one list.
	// Otherwise it is the name of a value that events bring, and each counter has a list of
	// its own. It need not be a dimension: there is no limit to its values, and none is admitted.
	By string `json:"by"`

	// K is how many items are asked for. The default is 100.
	K int `json:"k,omitempty"`
}

// Items returns how many items the list is asked for.
func (t Top) Items() int {
	if t.K == 0 {
		return topDefault
	}
	return t.K
}

// String returns t as a file has it.
func (t Top) String() string {
	parts := []string{"name: " + t.Name, "by: " + t.By}
	if t.K != 0 {
		parts = append(parts, "k: "+strconv.Itoa(t.K))
	}
	return mapping(parts...)
}

func (d Definition) checkTops() error {
	if n := len(d.Tops); n > TopsMax {
		return fmt.Errorf("%d top lists: at most %d", n, TopsMax)
	}
	for i, t := range d.Tops {
		switch {
		case !nameOK(t.Name):
			return fmt.Errorf("top list %q: want a name: a letter, and then at most %d letters, digits, '_', '-' or '.'", t.Name, NameBytesMax-1)
		case !nameOK(t.By):
			return fmt.Errorf("top list %s: by %q: want key, or the name of a value of the events", t.Name, t.By)
		case t.K < 0 || t.K > TopMax:
			return fmt.Errorf("top list %s: k of %d: want 1 to %d", t.Name, t.K, TopMax)
		case len(d.Choices) > 0:
			return fmt.Errorf("top list %s and choices: a reaction adds no amount; leave out top", t.Name)
		}
		for _, other := range d.Tops[:i] {
			if other.Name == t.Name {
				return fmt.Errorf("top list %s is given twice", t.Name)
			}
		}
	}
	return nil
}
