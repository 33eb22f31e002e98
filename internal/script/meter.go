package script

import (
	"context"
	"errors"
	"strconv"
	"time"

	lua "github.com/yuin/gopher-lua"
)

// errTime says that a script took too long.
var errTime = errors.New("ERR the script was broken off: it took too long, and has changed nothing")

// A meter counts what a script takes. It is the context of the interpreter, which asks it before
// each instruction whether to go on. What has ended once stays so: a script can't catch
// that and go on.
type meter struct {
	limits Limits
	ctx    context.Context
	done   <-chan struct{}
	steps  int64 // taken
	bytes  int64
	broken error
	over   chan struct{} // closed
}

func newMeter(ctx context.Context, l Limits) *meter {
	return &meter{limits: l, ctx: ctx, done: ctx.Done()}
}

// Deadline is that of the caller's context.
func (m *meter) Deadline() (time.Time, bool) { return m.ctx.Deadline() }

// Value has none.
func (m *meter) Value(any) any { return nil }

// Done counts an instruction.
func (m *meter) Done() <-chan struct{} {
	if m.steps++; m.steps > m.limits.Steps {
		m.stop(errors.New("ERR the script was broken off: it takes more than " + strconv.FormatInt(m.limits.Steps, 10) + " steps, and has changed nothing"))
	}
	if m.broken != nil {
		return m.over
	}
	return m.done
}

// Err returns why the script is broken off.
func (m *meter) Err() error {
	switch {
	case m.broken != nil:
		return m.broken
	case m.ctx.Err() != nil:
		return errTime
	}
	return nil
}

// stop breaks the script off.
func (m *meter) stop(why error) {
	if m.broken == nil {
		m.broken, m.over = why, make(chan struct{})
		close(m.over)
	}
}

// charge pays for memory, and does not return if there is no more.
func (m *meter) charge(l *lua.LState, bytes int) {
	if m.bytes += int64(bytes); m.bytes > m.limits.Bytes {
		m.stop(errors.New("ERR the script was broken off: it allocates more than " + strconv.FormatInt(m.limits.Bytes, 10) + " bytes, and has changed nothing"))
	}
	m.goOn(l)
}

// work pays for steps that are no instructions, and does not return if there are no more.
func (m *meter) work(l *lua.LState, steps int) {
	m.steps += int64(steps)
	m.goOn(l)
}

// goOn does not return if the script is broken off.
func (m *meter) goOn(l *lua.LState) {
	select {
	case <-m.Done():
		raise(l, "%s", m.Err().Error())
	default:
	}
}
