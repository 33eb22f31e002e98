package alert

import "testing"

func TestAnnotation(t *testing.T) {
	of := result{labels: map[string]string{"a": "{{b}}"}, value: 0.12345678}
	f := func(text, want string) {
		t.Helper()
		a, err := parseAnnotation(text)
		if (err == nil) != (want != "refused") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		if err == nil && a.fill(of) != want {
			t.Errorf("%q: %q, want %q", text, a.fill(of), want)
		}
	}
	f("", "")
	f("plain } text", "plain } text")
	f("{{ $labels.a }} is {{$value}}", "{{b}} is 0.12345678")
	f("{{ $labels.nothing }}.", ".")
	f("{{ $value | humanize }}, {{ $value|humanizePercentage }}, {{ $value | humanizeDuration }}", "0.1235, 12.35%, 123ms")
	for _, bad := range []string{"{{ $labels.a", "{{}}", "{{ $nothing }}", "{{ $labels. }}", "{{ $labels.a | humanize }}", "{{ $value | nothing }}", "{{ $value | }}", "{{ if $value }}"} {
		f(bad, "refused")
	}
}
