package storetest

import (
	"fmt"

	"github.com/quipudb/quipu/store"
)

// The optional interfaces come in groups, as stores have them.
const (
	isKeeper  = 1 << iota // what every real store has: see Keeper
	isStarter             // Starter
	isAdder               // Adder, which is a Starter
	isProber              // Prober
	isCopier              // Snapshotter
	isCarrier             // Carrier
	isOdd                 // some of what belongs together
)

// shapeOf returns which optional interfaces a store has.
func shapeOf(s store.Store) (has int) {
	if _, ok := s.(Keeper); ok {
		has |= isKeeper
	}
	if _, ok := s.(store.Starter); ok {
		has |= isStarter
	}
	if _, ok := s.(store.Adder); ok {
		has |= isAdder
	}
	if _, ok := s.(store.Prober); ok {
		has |= isProber
	}
	if _, ok := s.(store.Snapshotter); ok {
		has |= isCopier
	}
	if _, ok := s.(store.Carrier); ok {
		has |= isCarrier
	}
	if has&isKeeper == 0 {
		switch s.(type) {
		case store.Auditor, store.Clock, store.Meter, store.Namespacer, store.Sizer, store.Witness:
			has |= isOdd
		}
	}
	return has
}

// shape returns the wrapper as a type that has some optional interfaces. In Go a
// type has an interface or does not, so each set is a type of its own.
func shape(w *wrapper, has int) store.Store {
	k, s, a, p, c, y := keeping{w}, starting{w}, adding{starting{w}}, probing{w}, copying{w}, carrying{w}
	switch has {
	case 0:
		return w
	case isKeeper:
		return k
	case isKeeper | isStarter:
		return struct {
			keeping
			starting
		}{k, s}
	case isKeeper | isProber:
		return struct {
			keeping
			probing
		}{k, p}
	case isKeeper | isCopier:
		return struct {
			keeping
			copying
		}{k, c}
	case isKeeper | isStarter | isCopier:
		return struct {
			keeping
			starting
			copying
		}{k, s, c}
	case isKeeper | isProber | isCopier:
		return struct {
			keeping
			probing
			copying
		}{k, p, c}
	case isKeeper | isStarter | isAdder | isCopier:
		return struct {
			keeping
			adding
			copying
		}{k, a, c}
	case isKeeper | isStarter | isProber | isCopier:
		return struct {
			keeping
			starting
			probing
			copying
		}{k, s, p, c}
	case isKeeper | isStarter | isAdder | isProber | isCopier:
		return struct {
			keeping
			adding
			probing
			copying
		}{k, a, p, c}
	case isKeeper | isCarrier:
		return struct {
			keeping
			carrying
		}{k, y}
	case isKeeper | isProber | isCarrier:
		return struct {
			keeping
			probing
			carrying
		}{k, p, y}
	case isKeeper | isProber | isCopier | isCarrier:
		return struct {
			keeping
			probing
			copying
			carrying
		}{k, p, c, y}
	case isKeeper | isStarter | isAdder | isProber | isCopier | isCarrier:
		return struct {
			keeping
			adding
			probing
			copying
			carrying
		}{k, a, p, c, y}
	}
	panic(fmt.Sprintf("%T has a set of optional interfaces that Wrap does not know", w.under))
}
