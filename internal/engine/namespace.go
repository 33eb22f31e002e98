package engine

import "encoding/binary"

// A namespace counts what it holds.
type namespace struct {
	keys   int64 // cells known to exist
	unread int64 // changed cells that may or may not be among keys
	tokens int64 // tokens remembered, the expired ones until they are swept
}

// namespaces are found by the namespace's part of a cell's key.
type namespaces map[string]*namespace

func (n namespaces) of(cell []byte) *namespace {
	return n.named(cell[:namespaceLen(cell)])
}

func (n namespaces) named(prefix []byte) *namespace {
	if ns := n[string(prefix)]; ns != nil {
		return ns
	}
	ns := &namespace{}
	n[string(prefix)] = ns
	return ns
}

func (n *namespace) appendRow(dst []byte) []byte {
	return binary.AppendVarint(binary.AppendVarint(dst, n.keys), n.tokens)
}

func decodeNamespace(b []byte) (*namespace, bool) {
	r := reader{b: b}
	ns := &namespace{keys: r.varint(), tokens: r.varint()}
	return ns, !r.bad && len(r.b) == 0
}
