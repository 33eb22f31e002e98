package server

import "github.com/quipudb/quipu/internal/access"

// A Holder is who holds something that there is little of. Principals that are made anew for
// each connection or token are one holder if they are of the same key, certificate or subject.
type Holder struct {
	kind     access.Kind
	id, name string
}

// HolderOf returns as whom a principal holds things. Nobody is a holder too.
func HolderOf(p *access.Principal) Holder {
	if p == nil {
		return Holder{}
	}
	return Holder{p.Kind, p.ID, p.Name}
}

// Shared reports whether a principal gets only a part of what there is little of, so that the
// others get theirs. Keys that the server was started with are of those who run it, and have
// all; so has everyone while the server is open.
func (g *Gate) Shared(p *access.Principal) bool {
	return !g.Open() && (p == nil || p.Kind != access.Configured)
}
