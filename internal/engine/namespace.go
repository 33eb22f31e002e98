package engine

import (
	"encoding/binary"

	"github.com/quipudb/quipu/store"
)

// A namespace counts what it holds.
type namespace struct {
	keys   int64 // cells known to exist
	unread int64 // changed cells that may or may not be among keys
	tokens int64 // tokens remembered, the expired ones until they are swept

	refused int64 // those of them that remember a refusal
}

// refusals counts a token that remembered a refusal, or did not, and does now.
func (n *namespace) refusals(was, is bool) {
	if was {
		n.refused--
	}
	if is {
		n.refused++
	}
}

// namespaces are found by the namespace's part of a cell's key.
type namespaces map[string]*namespace

// of returns the namespace of a cell, and makes it if need be.
func (n namespaces) of(cell []byte) *namespace {
	return n.named(cell[:namespaceLen(cell)])
}

// peek returns the namespace of a cell as it is; known is false if it has
// neither a key nor a token.
func (n namespaces) peek(cell []byte) (ns namespace, known bool) {
	p := n[string(cell[:namespaceLen(cell)])]
	if p == nil {
		return namespace{}, false
	}
	return *p, *p != namespace{}
}

// full reports whether there is no room for more keys of a cell's namespace
// beside those it has, or for the namespace itself. The store's own has no
// limit.
func (n namespaces) full(cell []byte, more int64, l *store.Limits) bool {
	if cell[0] == nsOwn {
		return false
	}
	ns, known := n.peek(cell)
	return ns.keys+ns.unread+more > l.KeysMax || !known && n.oneTooMany(l)
}

// live returns how many keys there are in all namespaces, or a little more.
func (n namespaces) live() int {
	all := int64(0)
	for _, ns := range n {
		all += ns.keys + ns.unread
	}
	return int(all)
}

// tokensFull reports the same for tokens.
func (n namespaces) tokensFull(cell []byte, more int64, l *store.Limits) bool {
	if cell[0] == nsOwn {
		return false
	}
	ns, known := n.peek(cell)
	return ns.tokens+more > l.TokensMax || !known && n.oneTooMany(l)
}

// refusalsFull reports the same for tokens that remember a refusal.
func (n namespaces) refusalsFull(cell []byte, more int64, l *store.Limits) bool {
	ns, _ := n.peek(cell)
	return cell[0] != nsOwn && ns.refused+more > l.RefusalsMax()
}

// oneTooMany reports whether there is no room for a new namespace. The empty
// ones do not count; they go with the next checkpoint, and their rows with them.
func (n namespaces) oneTooMany(l *store.Limits) bool {
	if len(n) < l.NamespacesMax {
		return false
	}
	others := 0
	for name, ns := range n {
		if name[0] != nsOwn && *ns != (namespace{}) {
			others++
		}
	}
	return others >= l.NamespacesMax
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
	dst = binary.AppendVarint(binary.AppendVarint(dst, n.keys), n.tokens)
	if n.refused != 0 {
		dst = binary.AppendVarint(dst, n.refused)
	}
	return dst
}

func decodeNamespace(b []byte) (*namespace, bool) {
	r := reader{b: b}
	ns := &namespace{keys: r.varint(), tokens: r.varint()}
	if len(r.b) > 0 {
		ns.refused = r.varint()
	}
	return ns, !r.bad && len(r.b) == 0
}
