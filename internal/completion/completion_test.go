package completion_test

import (
	"slices"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/quipudb/quipu/internal/completion"
)

type grammar struct {
	Serve struct {
		Data  string `help:"Directory."`
		Level string `help:"Lowest level\nto log." enum:"debug,info" default:"info" short:"l"`
		Fast  bool   `help:"Be fast."`
	} `cmd:"" help:"Run."`
	Policy struct {
		Set struct {
			Pattern string `arg:""`
			Kind    string `arg:"" enum:"red,green"`
		} `cmd:"" help:"Set one."`
		Rm struct {
			All bool
		} `cmd:"" aliases:"delete" help:"Remove one."`
	} `cmd:"" help:"Policies."`
	Secret struct{} `cmd:"" hidden:""`
}

func TestCandidates(t *testing.T) {
	parser, err := kong.New(&grammar{}, kong.Name("prog"))
	if err != nil {
		t.Fatal(err)
	}
	f := func(words []string, want ...string) {
		t.Helper()
		var got []string
		for _, c := range completion.Candidates(parser.Model, words) {
			got = append(got, c.Text)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", words, got, want)
		}
	}
	f(nil, "serve", "policy")
	f([]string{""}, "serve", "policy")
	f([]string{"s"}, "serve")
	f([]string{"x"})
	f([]string{"policy", ""}, "set", "rm")
	f([]string{"policy", "rm", ""})
	f([]string{"policy", "delete", "--a"}, "--all")
	f([]string{"serve", "--"}, "--data", "--level", "--fast", "--help")
	f([]string{"serve", "--d"}, "--data")
	f([]string{"serve", "--level", ""}, "debug", "info")
	f([]string{"serve", "-l", "d"}, "debug")
	f([]string{"serve", "--level=d"}, "--level=debug")
	f([]string{"serve", "--level", "=", "d"}, "debug") // as bash splits it
	f([]string{"serve", "--level", "="}, "debug", "info")
	f([]string{"serve", "--level", "info", "--f"}, "--fast")
	f([]string{"serve", "--data", ""}) // a file, perhaps
	f([]string{"serve", "--data", "--fast", "--l"}, "--level")
	f([]string{"serve", "--fast", "--l"}, "--level")
	f([]string{"serve", "--nothing", "--l"}, "--level")
	f([]string{"serve", "--", "--l"})
	f([]string{"policy", "set", ""})
	f([]string{"policy", "set", "a", ""}, "red", "green")
	f([]string{"policy", "set", "a", "red", ""})
	f([]string{"policy", "set", "--", "a", "g"}, "green")
	for _, c := range completion.Candidates(parser.Model, []string{"serve", "--l"}) {
		if c.Help != "Lowest level" {
			t.Errorf("help %q", c.Help)
		}
	}
}

// Whatever is typed, completing it ends and changes no line of the others.
func FuzzCandidates(f *testing.F) {
	parser, err := kong.New(&grammar{}, kong.Name("prog"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add("serve", "--level", "")
	f.Add("policy", "set", "=")
	f.Add("-", "--", "--=")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		for _, found := range completion.Candidates(parser.Model, []string{a, b, c}) {
			if found.Text == "" || slices.Contains([]byte(found.Text+found.Help), '\n') {
				t.Errorf("%q", found)
			}
		}
	})
}

func TestScript(t *testing.T) {
	for shell, want := range map[string]bool{"bash": true, "zsh": true, "fish": true, "cmd": false} {
		if got := completion.Script(shell, "prog"); (got != "") != want {
			t.Errorf("%s: %q", shell, got)
		}
	}
}
