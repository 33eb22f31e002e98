package script

import (
	"container/list"
	"sync"
)

// The limits of a Cache.
const (
	CachedMax      = 1000
	CachedBytesMax = 4 << 20
)

// A Cache keeps compiled scripts by their names. If there are too many, those go that were not
// used for longest. It is safe for concurrent use. The zero Cache is empty.
type Cache struct {
	mu     sync.Mutex // guards the fields below
	byName map[string]*list.Element
	recent list.List // of *Script, the last one used in front
	bytes  int
}

// Get returns a script by its name, or nil.
func (c *Cache) Get(sha string) *Script {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.byName[sha]
	if e == nil {
		return nil
	}
	c.recent.MoveToFront(e)
	return e.Value.(*Script)
}

// Load returns the script with a source, which it compiles if it is new.
func (c *Cache) Load(source []byte) (*Script, error) {
	if s := c.Get(SHA(source)); s != nil {
		return s, nil
	}
	s, err := Compile(source)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byName == nil {
		c.byName = map[string]*list.Element{}
	}
	if e := c.byName[s.SHA]; e != nil {
		return e.Value.(*Script), nil
	}
	c.byName[s.SHA] = c.recent.PushFront(s)
	c.bytes += len(s.Source)
	for len(c.byName) > CachedMax || c.bytes > CachedBytesMax {
		last := c.recent.Remove(c.recent.Back()).(*Script)
		delete(c.byName, last.SHA)
		c.bytes -= len(last.Source)
	}
	return s, nil
}

// Flush empties the cache.
func (c *Cache) Flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byName, c.bytes = nil, 0
	c.recent.Init()
}

// Len returns how many scripts there are, and how many bytes their sources have.
func (c *Cache) Len() (scripts, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.byName), c.bytes
}
