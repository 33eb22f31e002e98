package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"strings"
	"time"
	_ "time/tzdata" // see definitionReader

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/internal/draft"
	"github.com/quipudb/quipu/policy"
)

// A config is what a configuration file says. The zero value says nothing.
type config struct {
	file     string
	stamp    stamp           // of the file before it was read
	flags    []*kong.Flag    // that it may give
	settings map[string]any  // a string or a slice of them, by the name of the flag
	lines    map[string]int  // of the settings
	used     map[string]bool // settings that were not given otherwise
	policies []quipu.Policy
	places   []int // the lines of the policies
	rules    bool  // it has a list of them, which may be empty

	definitions []draft.Draft
	defines     bool // it has a list of them, which may be empty
}

// A configFile is a flag that names a configuration file, whose settings then
// count for every flag that is not given otherwise.
type configFile string

// BeforeResolve reads the file.
func (configFile) BeforeResolve(command *kong.Context, trace *kong.Path, conf *config) error {
	// An environment that names a file is nothing to the other commands.
	n := command.Selected()
	if n == nil || n.Name != "serve" {
		return nil
	}
	file, _ := command.FlagValue(trace.Flag).(configFile)
	if file == "" {
		return errors.New("--config: want the name of a file")
	}
	if err := conf.load(string(file), n.Flags); err != nil {
		return err
	}
	command.AddResolver(conf)
	return nil
}

// load reads a file whose settings are for the given flags.
func (c *config) load(file string, flags []*kong.Flag) error {
	*c = config{file: file, stamp: stampOf(file), flags: flags, settings: map[string]any{}, lines: map[string]int{}, used: map[string]bool{}}
	raw, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	var doc, second yaml.Node
	documents := yaml.NewDecoder(bytes.NewReader(raw))
	err = documents.Decode(&doc)
	if errors.Is(err, io.EOF) { // an empty file
		return nil
	}
	if err == nil {
		err = documents.Decode(&second)
	}
	if err == nil {
		return c.at(second.Line, errors.New("a second YAML document begins here: want one document"))
	}
	if !errors.Is(err, io.EOF) {
		return c.syntax(raw, err)
	}
	return c.members(doc.Content[0], func(name string, value *yaml.Node) error {
		switch name {
		case "policies":
			return c.loadPolicies(value)
		case "definitions":
			return c.loadDefinitions(value)
		}
		for _, f := range flags {
			if f.Name == name && name != "config" && name != "help" {
				return c.loadSetting(f, value)
			}
		}
		var names []string
		for _, f := range flags {
			names = append(names, f.Name)
		}
		return fmt.Errorf("unknown setting %q%s", name, didYouMean(name, names))
	})
}

var (
	yamlLine   = regexp.MustCompile(`^line \d+: `)
	yamlAnchor = regexp.MustCompile(`^unknown anchor '.*' referenced$`)
	tabIndent  = regexp.MustCompile(`^ *\t`)
)

// syntax returns the error of a file that is no YAML, with its line, and for the
// usual mistakes in words that say what to do.
func (c *config) syntax(raw []byte, err error) error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	text = strings.TrimPrefix(text, yamlLine.FindString(text))
	line, at := wrongLine(raw)
	const quote = "in YAML a bare * begins an alias: quote the pattern, such as \"likes:*\""
	switch {
	case yamlAnchor.MatchString(text), strings.Contains(text, "expected alphabetic or numeric character"):
		text = quote
	case tabIndent.Match(at) && (strings.Contains(text, "tab character") || strings.Contains(text, "cannot start any token")):
		text = "a tab can't indent in YAML: use spaces"
	}
	if line == 0 {
		return fmt.Errorf("%s: %s", c.file, text)
	}
	return c.at(line, errors.New(text))
}

// wrongBytesMax is how much may be parsed to find the line that is wrong.
const wrongBytesMax = 16 << 20

// wrongLine returns the line from which on a text is no YAML: the lines before it
// are, and no more of them are. Of what is never closed it is the line where that
// begins. The line that the library tells can't be used: some of its errors count
// lines from 0 and others from 1, some tell none on the first line, and some tell
// where the list or mapping begins that the wrong line is in. The line is 0 if it
// would take too long to find.
func wrongLine(raw []byte) (line int, text []byte) {
	end, _ := parsed(raw)
	lines := bytes.SplitAfter(raw[:end], []byte("\n"))
	done := 0
	for n := len(lines); n > 0 && done < wrongBytesMax; n-- {
		end -= len(lines[n-1])
		read, ok := parsed(raw[:end])
		if ok {
			return n, lines[n-1]
		}
		done += read
	}
	return 0, nil
}

// parsed reports whether a text is YAML, and how much of it was read to tell.
func parsed(raw []byte) (end int, ok bool) {
	r := bytes.NewReader(raw)
	documents := yaml.NewDecoder(r)
	for {
		var doc yaml.Node
		if err := documents.Decode(&doc); err != nil {
			return len(raw) - r.Len(), errors.Is(err, io.EOF)
		}
	}
}

// members calls f for each member of a mapping. Its errors, and that of a name
// given twice, get the line.
func (c *config) members(n *yaml.Node, f func(name string, value *yaml.Node) error) error {
	if n.Kind != yaml.MappingNode {
		return c.at(n.Line, errors.New("want a mapping of names to values"))
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i]
		if seen[name.Value] {
			return c.at(name.Line, fmt.Errorf("%s is given twice", name.Value))
		}
		seen[name.Value] = true
		if err := f(name.Value, n.Content[i+1]); err != nil {
			return c.at(name.Line, err)
		}
	}
	return nil
}

// A lineError is an error at a line of the file.
type lineError struct{ error }

func (c *config) at(line int, err error) error {
	if _, ok := errors.AsType[lineError](err); ok { // from deeper, and so nearer
		return err
	}
	return lineError{fmt.Errorf("%s:%d: %w", c.file, line, err)}
}

// loadSetting takes a value if its flag would.
func (c *config) loadSetting(f *kong.Flag, n *yaml.Node) error {
	var value any
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag != "!!null":
		value = n.Value
	case n.Kind == yaml.SequenceNode && f.Target.Kind() == reflect.Slice:
		var list []any
		for _, element := range n.Content {
			if element.Kind != yaml.ScalarNode {
				return fmt.Errorf("%s: want a list of plain values", f.Name)
			}
			list = append(list, element.Value)
		}
		value = list
	default:
		return fmt.Errorf("%s: want a plain value", f.Name)
	}
	trial := reflect.New(f.Target.Type()).Elem()
	scan := kong.Scan().PushTyped(value, kong.FlagValueToken)
	if err := f.Mapper.Decode(&kong.DecodeContext{Value: f.Value, Scan: scan}, trial); err != nil {
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	c.settings[f.Name], c.lines[f.Name] = value, n.Line
	return nil
}

// loadPolicies reads a list of policies.
func (c *config) loadPolicies(n *yaml.Node) error {
	c.rules = true
	if n.Tag == "!!null" {
		return nil // an empty list, written by hand
	}
	if n.Kind != yaml.SequenceNode {
		return errors.New("policies: want a list")
	}
	for _, element := range n.Content {
		settings, lines := map[string]string{}, map[string]int{}
		err := c.members(element, func(name string, value *yaml.Node) error {
			if value.Kind != yaml.ScalarNode {
				return fmt.Errorf("%s: want a plain value", name)
			}
			if err := checkSetting(name); err != nil {
				return err
			}
			settings[name], lines[name] = value.Value, value.Line
			return nil
		})
		if err != nil {
			return c.at(element.Line, err)
		}
		p, err := policy.Parse(settings)
		if e, ok := errors.AsType[*policy.SettingError](err); ok {
			return c.at(lines[e.Name], err)
		}
		if err != nil {
			return c.at(element.Line, err)
		}
		c.policies, c.places = append(c.policies, p), append(c.places, element.Line)
	}
	if err := (quipu.Options{Policies: c.policies}).Validate(); err != nil { // there are too many
		return c.at(n.Line, err)
	}
	return nil
}

// loadDefinitions reads a list of definitions.
func (c *config) loadDefinitions(n *yaml.Node) (err error) {
	c.defines = true
	c.definitions, err = definitionReader().Read(n)
	if e, ok := errors.AsType[*draft.Error](err); ok {
		return c.at(e.Line, errors.New(e.Err.Detail))
	}
	return err
}

// definitionReader returns what reads definitions. It has every time zone, also on
// machines that have none.
func definitionReader() draft.Reader {
	return draft.Reader{Namespace: defaultNamespace, Zone: func(name string) error {
		_, err := time.LoadLocation(name)
		return err
	}}
}

// place says where a policy stands.
func (c *config) place(i int) string { return fmt.Sprintf("%s:%d: policy %d", c.file, c.places[i], i) }

// Validate has nothing left to check: load did.
func (c *config) Validate(*kong.Application) error { return nil }

// Resolve returns the file's value of a flag, unless the environment has one.
func (c *config) Resolve(_ *kong.Context, _ *kong.Path, f *kong.Flag) (any, error) {
	for _, name := range f.Envs {
		if _, ok := os.LookupEnv(name); ok {
			return nil, nil
		}
	}
	value, ok := c.settings[f.Name]
	if ok {
		c.used[f.Name] = true
	}
	return value, nil
}

// A flagError says what is wrong with the value of a flag.
type flagError struct {
	name string
	err  error
}

// Error names the flag.
func (e *flagError) Error() string { return "--" + e.name + ": " + e.err.Error() }

// Unwrap returns what is wrong.
func (e *flagError) Unwrap() error { return e.err }

// blame returns the error of a flag as one of the file's line, if that is where
// the value comes from.
func (c *config) blame(err error) error {
	e, ok := errors.AsType[*flagError](err)
	if !ok || !c.used[e.name] {
		return err
	}
	return c.at(c.lines[e.name], fmt.Errorf("%s: %w", e.name, e.err))
}

type confCmd struct {
	Check checkCmd `cmd:"" help:"Check a configuration file for serve, and name the line that is wrong."`
}

type checkCmd struct {
	File string `arg:"" help:"The file."`
}

// Help is shown by --help.
func (checkCmd) Help() string {
	return `The command opens no file besides this one and the TLS files, and ignores the environment. Policies that can never match
produce a warning.

Example:

  quipu config check quipu.yaml`
}

// Run parses the file as serve does.
func (c checkCmd) Run(out *output) error {
	conf := &config{}
	parser, err := newParser(out, conf)
	if err != nil {
		return err
	}
	command, err := parser.Parse([]string{"serve", "--config", c.File})
	if err != nil {
		return conf.blame(err)
	}
	for _, text := range unmatched(conf.policies, conf.place) {
		out.hint(text)
	}
	serve, ok := reflect.TypeAssert[*serveCmd](command.Selected().Target.Addr())
	if !ok {
		return fmt.Errorf("a %v was parsed", command.Selected().Target.Type())
	}
	return out.print("%s: ok\nmemory: %s of %s (%s): %s", c.File,
		formatSize(serve.plan.sum()), formatSize(serve.plan.total), serve.plan.of, serve.plan)
}
