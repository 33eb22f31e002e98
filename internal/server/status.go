package server

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"syscall"

	"google.golang.org/grpc/codes"

	"github.com/quipudb/quipu/store"
)

// A Status is what the wires say of an error kind.
type Status struct {
	Word  string // the kind's name, the same on every wire
	Title string // the same for every error of the kind
	HTTP  int
	RPC   codes.Code

	// Private details are for the log: they may name files, and the caller
	// can do nothing about them. See Detail.
	Private bool
}

// StatusOf returns the status of a kind. Two codes matter to a caller who
// retries: 503 and Unavailable say that nothing changed, 504 and Unknown that the
// outcome is unknown.
func StatusOf(k store.Kind) Status {
	s := statusOf(k)
	if s.Title == "" { // A fault of ours, as one of no kind is.
		return StatusOf(store.KindOther)
	}
	s.Word = k.String()
	return s
}

func statusOf(k store.Kind) Status {
	switch k {
	case store.KindInvalid:
		return Status{Title: "Invalid request", HTTP: http.StatusBadRequest, RPC: codes.InvalidArgument}
	case store.KindTooLarge:
		return Status{Title: "Too large", HTTP: http.StatusRequestEntityTooLarge, RPC: codes.InvalidArgument}
	case store.KindOverflow:
		return Status{Title: "Overflow", HTTP: http.StatusConflict, RPC: codes.OutOfRange}
	case store.KindToken:
		return Status{Title: "Token used for another payload", HTTP: http.StatusUnprocessableEntity, RPC: codes.FailedPrecondition}
	case store.KindExpired:
		return Status{Title: "Token expired", HTTP: http.StatusConflict, RPC: codes.FailedPrecondition}
	case store.KindSettled:
		return Status{Title: "Token settled", HTTP: http.StatusConflict, RPC: codes.FailedPrecondition}
	case store.KindChanged:
		return Status{Title: "Counter changed", HTTP: http.StatusPreconditionFailed, RPC: codes.Aborted}
	case store.KindFull:
		return Status{Title: "Namespace full", HTTP: http.StatusInsufficientStorage, RPC: codes.ResourceExhausted}
	case store.KindUnmet:
		return Status{Title: "Condition not met", HTTP: http.StatusPreconditionFailed, RPC: codes.FailedPrecondition}
	case store.KindBound:
		return Status{Title: "Out of bounds", HTTP: http.StatusConflict, RPC: codes.OutOfRange}
	case store.KindReadOnly:
		return Status{Title: "Read-only", HTTP: http.StatusForbidden, RPC: codes.FailedPrecondition}
	case store.KindMark:
		return Status{Title: "Batch out of order", HTTP: http.StatusConflict, RPC: codes.FailedPrecondition}
	case store.KindRetired:
		return Status{Title: "Writer retired", HTTP: http.StatusConflict, RPC: codes.FailedPrecondition}
	case store.KindUnavailable:
		return Status{Title: "Unavailable", HTTP: http.StatusServiceUnavailable, RPC: codes.Unavailable, Private: true}
	case store.KindUnknown:
		return Status{Title: "Outcome unknown", HTTP: http.StatusGatewayTimeout, RPC: codes.Unknown, Private: true}
	case store.KindClosed:
		return Status{Title: "Closed", HTTP: http.StatusServiceUnavailable, RPC: codes.Unavailable, Private: true}
	case store.KindCorrupt:
		return Status{Title: "Stored data is corrupt", HTTP: http.StatusInternalServerError, RPC: codes.DataLoss, Private: true}
	case store.KindUnsupported:
		return Status{Title: "Unsupported", HTTP: http.StatusNotImplemented, RPC: codes.Unimplemented}
	case store.KindLost:
		return Status{Title: "Acknowledged data is missing", HTTP: http.StatusInternalServerError, RPC: codes.DataLoss, Private: true}
	case store.KindSessionLost:
		return Status{Title: "Session lost", HTTP: http.StatusConflict, RPC: codes.FailedPrecondition}
	case store.KindEnded:
		return Status{Title: "Reservation ended", HTTP: http.StatusGone, RPC: codes.FailedPrecondition}
	case store.KindNotCount:
		return Status{Title: "Not a count", HTTP: http.StatusConflict, RPC: codes.FailedPrecondition}
	case store.KindNotSketch:
		return Status{Title: "Not such a sketch", HTTP: http.StatusConflict, RPC: codes.FailedPrecondition}
	case store.KindAbsent:
		return Status{Title: "Key absent", HTTP: http.StatusNotFound, RPC: codes.NotFound}
	case store.KindOther:
		return Status{Title: "Internal error", HTTP: http.StatusInternalServerError, RPC: codes.Internal, Private: true}
	default:
		return Status{}
	}
}

// RESPWord returns the word that an error reply of RESP begins with for a kind:
// Redis's own where it has one, and else the kind's where a caller would act on
// it.
func RESPWord(k store.Kind) string {
	switch k {
	case store.KindFull:
		return "OOM"
	case store.KindUnsupported:
		return "CROSSSLOT"
	case store.KindReadOnly:
		return "READONLY"
	case store.KindUnavailable, store.KindClosed:
		return "UNAVAILABLE"
	case store.KindSessionLost:
		return "SESSIONLOST"
	case store.KindEnded:
		return "ENDED"
	case store.KindNotCount, store.KindNotSketch:
		return "WRONGTYPE"
	case store.KindUnknown, store.KindToken, store.KindExpired, store.KindSettled, store.KindCorrupt, store.KindLost:
		return strings.ToUpper(StatusOf(k).Word)
	default:
		return "ERR"
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

// SeeLog is the detail of what is none of the caller's business.
const SeeLog = "the server's log says more under this request id"

// Detail returns what a caller is told of an error of the DB: all of it, or, if
// its kind is private, the condition and what that means for the call.
func Detail(err error) string { return detail(err, false) }

// ReadDetail is Detail for a call that would have changed nothing anyway.
func ReadDetail(err error) string { return detail(err, true) }

func detail(err error, read bool) string {
	k := KindOf(err)
	if !StatusOf(k).Private {
		return strings.TrimPrefix(err.Error(), "quipu: ")
	}
	unchanged, uncounted := "; nothing changed", "; this call counted nothing"
	if read {
		unchanged, uncounted = "", ""
	}
	switch k {
	case store.KindUnavailable:
		return condition(err) + unchanged
	case store.KindUnknown:
		return condition(err) + "; it may have counted: send the same again under the same token, or settle it"
	case store.KindClosed:
		return "the server is closing" + unchanged
	case store.KindLost:
		return "the store has lost acknowledged writes" + uncounted + "; try again" // what and where is for operators
	default:
		return SeeLog
	}
}

// condition says what is wrong without naming a file: in the words with which a
// store's error begins, before its causes, and with the operating system's word
// for the last of those.
func condition(err error) string {
	e, ok := errors.AsType[*store.Error](err)
	if !ok {
		return "the deadline of the call passed"
	}
	text, _, _ := strings.Cut(e.Detail, ": ")
	if strings.ContainsAny(text, `/\`) {
		text = strings.ToLower(StatusOf(e.Kind).Title)
	}
	if cause, ok := errors.AsType[syscall.Errno](err); ok {
		text += ": " + cause.Error()
	}
	return text
}
