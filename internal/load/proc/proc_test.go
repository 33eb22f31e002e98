package proc

import (
	"os"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	const stat = "42 (a) b (c) S 7 42 42 0 -1 4194304 100 0 0 0 11 22 3 4 20 0 1 0 5 6 7"
	got, err := parse([]byte(stat))
	if want := (Times{7, 330 * time.Millisecond, 70 * time.Millisecond}); err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	for _, bad := range []string{"", "42 (a) S 7", "42 (a) S x 42 42 0 -1 4194304 100 0 0 0 11 22 3 4 20 0 1", "42 (a) S 7 42 42 0 -1 4194304 100 0 0 0 x 22 3 4 20 0 1"} {
		if got, err := parse([]byte(bad)); err == nil {
			t.Errorf("parse %q: %+v", bad, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("42 (a) b (c) S 7 42 42 0 -1 4194304 100 0 0 0 11 22 3 4 20 0 1"))
	f.Fuzz(func(_ *testing.T, text []byte) { _, _ = parse(text) })
}

func TestMeter(t *testing.T) {
	m := NewMeter(Self)
	self, err := Read(os.Getpid())
	if err != nil || self.Parent != os.Getppid() {
		t.Errorf("read: %+v, %v", self, err)
	}
	for used := time.Duration(0); used == 0; { // until a tick was used
		if used, err = m.Read(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := NewMeter(0).Read(); err == nil {
		t.Error("process 0 has a time")
	}
}
