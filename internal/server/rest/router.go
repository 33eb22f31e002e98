package rest

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// A node is a place in the tree of paths. Literal segments go before a
// wildcard, and no path needs both tried.
//
// It stands in for http.ServeMux, which redirects paths with empty and dot
// segments and takes a segment that is %2F alone for a trailing slash: all of
// those are keys that someone counts under.
type node struct {
	literals map[string]*node
	wild     *node
	name     string               // of the wildcard
	methods  map[string]*endpoint // HEAD is GET's
	other    *endpoint            // answers any other method
}

// params are what the wildcards of a path stand for.
type params struct {
	ns, key, id, dimension, who, user, name string
}

func (p *params) set(name, value string) {
	switch name {
	case "ns":
		p.ns = value
	case "key":
		p.key = value
	case "id":
		p.id = value
	case "dimension":
		p.dimension = value
	case "who":
		p.who = value
	case "user":
		p.user = value
	case "name":
		p.name = value
	}
}

// add puts an endpoint where its path says.
func (n *node) add(e *endpoint) {
	for segment := range strings.SplitSeq(e.path[1:], "/") {
		n = n.child(segment)
	}
	if n.methods == nil {
		n.methods = map[string]*endpoint{}
	}
	n.methods[e.method] = e
}

func (n *node) child(segment string) *node {
	if name, ok := strings.CutPrefix(segment, "{"); ok {
		if n.wild == nil {
			n.wild, n.name = &node{}, strings.TrimSuffix(name, "}")
		}
		return n.wild
	}
	if n.literals == nil {
		n.literals = map[string]*node{}
	}
	if n.literals[segment] == nil {
		n.literals[segment] = &node{}
	}
	return n.literals[segment]
}

// find returns the endpoint for a method on an escaped path, or nil. A segment
// is unescaped after the path is split, so %2F is a slash in a key.
func (n *node) find(method, path string, p *params) *endpoint {
	path, more := strings.CutPrefix(path, "/")
	if !more {
		return nil
	}
	for more {
		var segment string
		segment, path, more = strings.Cut(path, "/")
		if next := n.literals[segment]; next != nil {
			n = next
			continue
		}
		if n.wild == nil {
			return nil
		}
		value, err := url.PathUnescape(segment)
		if err != nil {
			return nil
		}
		p.set(n.name, value)
		n = n.wild
	}
	if method == http.MethodHead {
		method = http.MethodGet
	}
	if e := n.methods[method]; e != nil {
		return e
	}
	return n.other
}

// close gives every path of the tree the endpoint that other returns for its
// methods, to answer the methods it does not have.
func (n *node) close(other func(path string, methods []string) *endpoint) {
	var path string
	var methods []string
	for m, e := range n.methods {
		path = e.path
		methods = append(methods, m)
		if m == http.MethodGet {
			methods = append(methods, http.MethodHead)
		}
	}
	if methods != nil {
		slices.Sort(methods)
		n.other = other(path, methods)
	}
	for _, child := range n.literals {
		child.close(other)
	}
	if n.wild != nil {
		n.wild.close(other)
	}
}
