package server

import (
	"context"
	"errors"
	"net/http"

	"github.com/quipudb/quipu/store"
)

// A Status is what the wires say of an error kind.
type Status struct {
	Word  string // the kind's name, the same on every wire
	Title string // the same for every error of the kind
	HTTP  int

	// Private details are for the log: they may name files, and the caller
	// can do nothing about them.
	Private bool
}

// StatusOf returns the status of a kind. Two codes matter to a caller who
// retries: 503 says that nothing changed, 504 that the outcome is unknown.
func StatusOf(k store.Kind) Status {
	switch k {
	case store.KindInvalid:
		return Status{Word: "invalid", Title: "Invalid request", HTTP: http.StatusBadRequest}
	case store.KindTooLarge:
		return Status{Word: "too_large", Title: "Too large", HTTP: http.StatusRequestEntityTooLarge}
	case store.KindOverflow:
		return Status{Word: "overflow", Title: "Overflow", HTTP: http.StatusConflict}
	case store.KindToken:
		return Status{Word: "token", Title: "Token used for another payload", HTTP: http.StatusUnprocessableEntity}
	case store.KindExpired:
		return Status{Word: "expired", Title: "Token expired", HTTP: http.StatusConflict}
	case store.KindSettled:
		return Status{Word: "settled", Title: "Token settled", HTTP: http.StatusConflict}
	case store.KindChanged:
		return Status{Word: "changed", Title: "Counter changed", HTTP: http.StatusPreconditionFailed}
	case store.KindFull:
		return Status{Word: "full", Title: "Namespace full", HTTP: http.StatusInsufficientStorage}
	case store.KindMark:
		return Status{Word: "mark", Title: "Batch out of order", HTTP: http.StatusConflict}
	case store.KindRetired:
		return Status{Word: "retired", Title: "Writer retired", HTTP: http.StatusConflict}
	case store.KindUnavailable:
		return Status{Word: "unavailable", Title: "Unavailable", HTTP: http.StatusServiceUnavailable}
	case store.KindUnknown:
		return Status{Word: "unknown", Title: "Outcome unknown", HTTP: http.StatusGatewayTimeout}
	case store.KindClosed:
		return Status{Word: "closed", Title: "Closed", HTTP: http.StatusServiceUnavailable}
	case store.KindCorrupt:
		return Status{Word: "corrupt", Title: "Stored data is corrupt", HTTP: http.StatusInternalServerError, Private: true}
	case store.KindUnsupported:
		return Status{Word: "unsupported", Title: "Unsupported", HTTP: http.StatusNotImplemented}
	case store.KindLost:
		return Status{Word: "lost", Title: "Acknowledged data is missing", HTTP: http.StatusInternalServerError}
	default:
		return Status{Word: "internal", Title: "Internal error", HTTP: http.StatusInternalServerError, Private: true}
	}
}

// KindOf returns the kind of an error from the DB. The end of a call's own
// deadline, before anything was changed, is KindUnavailable.
func KindOf(err error) store.Kind {
	k := store.KindOf(err)
	if k == store.KindOther && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) {
		return store.KindUnavailable
	}
	return k
}
