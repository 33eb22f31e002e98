package rest

import (
	"strconv"
	"sync"
	"time"

	"github.com/quipudb/quipu/internal/access"
	"github.com/quipudb/quipu/internal/server"
	"github.com/quipudb/quipu/store"
)

// placesPart is the part of the places that one principal may have: a quarter.
const placesPart = 4

// places are those of streams of one kind.
type places struct {
	max int

	mu   sync.Mutex // guards the fields below
	used int
	of   map[server.Holder]int
}

// take takes a place, to be left by leave, or returns why there is none.
func (p *places) take(g *server.Gate, who *access.Principal) (leave func(), err error) {
	holder := server.HolderOf(who)
	p.mu.Lock()
	defer p.mu.Unlock()
	if own := p.max / placesPart; g.Shared(who) && p.of[holder] >= own {
		return nil, tooMany("you have "+strconv.Itoa(own)+" live streams already, which is all that one key, token or certificate may have: close one", time.Second)
	}
	if p.used >= p.max {
		return nil, ofKind(store.KindUnavailable, "there are "+strconv.Itoa(p.max)+" live streams already")
	}
	if p.of == nil {
		p.of = map[server.Holder]int{}
	}
	p.used++
	p.of[holder]++
	return func() { p.leave(holder) }, nil
}

func (p *places) leave(holder server.Holder) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used--
	if p.of[holder]--; p.of[holder] == 0 {
		delete(p.of, holder)
	}
}
