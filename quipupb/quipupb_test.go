package quipupb_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quipudb/quipu/call"
	pb "github.com/quipudb/quipu/quipupb"
	"github.com/quipudb/quipu/store"
)

// The generated code is that of the protocol as it is.
func TestGeneratedCodeIsCurrent(t *testing.T) {
	sources, err := filepath.Glob("*.proto")
	if err != nil || len(sources) == 0 {
		t.Fatalf("%q, %v", sources, err)
	}
	for _, source := range sources {
		text, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("// %s sha256:%x\n", source, sha256.Sum256(text))
		for _, kind := range []string{".pb.go", "_grpc.pb.go"} {
			name := strings.TrimSuffix(source, ".proto") + kind
			code, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(string(code), want) {
				t.Errorf("%s is of another %s: run make generate", name, source)
			}
		}
	}
}

// Kinds, durabilities and states have the same numbers here as in the store, so
// that a conversion is enough.
func TestNumbersAreThoseOfTheStore(t *testing.T) {
	f := func(got fmt.Stringer, want string) {
		t.Helper()
		if got.String() != want {
			t.Errorf("%v, want %v", got, want)
		}
	}
	f(pb.Kind(store.KindOther), "KIND_OTHER")
	f(pb.Kind(store.KindInvalid), "KIND_INVALID")
	f(pb.Kind(store.KindTooLarge), "KIND_TOO_LARGE")
	f(pb.Kind(store.KindOverflow), "KIND_OVERFLOW")
	f(pb.Kind(store.KindToken), "KIND_TOKEN")
	f(pb.Kind(store.KindExpired), "KIND_EXPIRED")
	f(pb.Kind(store.KindSettled), "KIND_SETTLED")
	f(pb.Kind(store.KindChanged), "KIND_CHANGED")
	f(pb.Kind(store.KindFull), "KIND_FULL")
	f(pb.Kind(store.KindMark), "KIND_MARK")
	f(pb.Kind(store.KindRetired), "KIND_RETIRED")
	f(pb.Kind(store.KindUnavailable), "KIND_UNAVAILABLE")
	f(pb.Kind(store.KindUnknown), "KIND_UNKNOWN")
	f(pb.Kind(store.KindClosed), "KIND_CLOSED")
	f(pb.Kind(store.KindCorrupt), "KIND_CORRUPT")
	f(pb.Kind(store.KindUnsupported), "KIND_UNSUPPORTED")
	f(pb.Kind(store.KindLost), "KIND_LOST")
	f(pb.Kind(store.KindUnmet), "KIND_UNMET")
	f(pb.Kind(store.KindBound), "KIND_BOUND")
	f(pb.Kind(store.KindReadOnly), "KIND_READ_ONLY")
	f(pb.Kind(store.KindSessionLost), "KIND_SESSION_LOST")
	f(pb.Kind(store.KindEnded), "KIND_ENDED")
	f(pb.Reservation_State(call.HoldOpen), "OPEN")
	f(pb.Reservation_State(call.HoldCommitted), "COMMITTED")
	f(pb.Reservation_State(call.HoldReleased), "RELEASED")
	f(pb.Reservation_State(call.HoldExpired), "EXPIRED")
	f(pb.Durability(store.Memory), "DURABILITY_MEMORY")
	f(pb.Durability(store.Written), "DURABILITY_WRITTEN")
	f(pb.Durability(store.Synced), "DURABILITY_SYNCED")
	f(pb.Fate_State(store.TokenUnknown), "UNKNOWN")
	f(pb.Fate_State(store.TokenApplied), "APPLIED")
	f(pb.Fate_State(store.TokenSettled), "SETTLED")
	f(pb.Fate_State(store.TokenExpired), "EXPIRED")
	f(pb.Fate_State(store.TokenRefused), "REFUSED")
}
