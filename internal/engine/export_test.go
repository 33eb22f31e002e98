package engine

// EvictAlways makes the engine keep no cell in memory that it can do without.
func (e *Engine) EvictAlways() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cellsMax = 0
}
