package main

import (
	"fmt"
	"strings"
)

// An edit replaces a text that is there so many times.
type edit struct {
	old, new string
	times    int
}

// names are the methods that the parser looks up.
var names = []string{"BeforeReset", "BeforeResolve", "BeforeApply", "AfterApply", "AfterRun", "Run"}

// A module is one that is changed.
type module struct {
	path, name string
	edits      map[string][]edit // by file
}

// modules are those that are changed.
var modules = []module{
	{"github.com/alecthomas/kong", "kong", parserEdits},
	{"github.com/cockroachdb/errors", "errors", errorsEdits},
	{"github.com/jackc/pgx/v5", "pgx", pgxEdits},
}

// errorsEdits leave out the options of a compiler of protocol buffers.
var errorsEdits = map[string][]edit{
	"errorspb/errors.pb.go":  {{annotations, "", 1}},
	"errorspb/markers.pb.go": {{annotations, "", 1}},
	"errorspb/tags.pb.go":    {{annotations, "", 1}},
}

const annotations = "\t_ \"github.com/gogo/protobuf/gogoproto\"\n"

// pgxEdits leave out the encoding of XML. Columns of that type are read as text.
var pgxEdits = map[string][]edit{
	"pgtype/pgtype_default.go": {
		{"\t\"encoding/xml\"\n", "", 1},
		{`Codec: &XMLCodec{
		Marshal: xml.Marshal,`, `Codec: TextCodec{}})
	/*`, 1},
		{`			return xml.Unmarshal(data, v)
		},
	}})
`, `	*/
`, 1},
	},
}

// parserEdits are those of the parser of the command line.
var parserEdits = map[string][]edit{
	"callbacks.go": {
		{"value.MethodByName(name)", "methodOf(value, name)", 2},
		{"value.Addr().MethodByName(name)", "methodOf(value.Addr(), name)", 2},
		{"t.MethodByName(name)", "methodOfType(t, name)", 1},
		{"\nfunc getMethod(", lookups() + "\nfunc getMethod(", 1},
	},
	// Methods of commands that begin with Provide would be called. There are none.
	"context.go": {{`			for _, p := range []reflect.Value{p.Target, p.Target.Addr()} {
				t := p.Type()
				for i := 0; i < p.NumMethod(); i++ {
					methodt := t.Method(i)
					if strings.HasPrefix(methodt.Name, "Provide") {
						method := p.Method(i)
						if err := methodBinds.addProvider(method.Interface(), false /* singleton */); err != nil {
							return fmt.Errorf("%s.%s: %w", t.Name(), methodt.Name, err)
						}
					}
				}
			}
`, "", 1}},
}

// lookups returns two functions that find a method by one of the names, each in a
// place of its own.
func lookups() string {
	var b strings.Builder
	one := func(head, call string) {
		fmt.Fprintf(&b, "\n%s {\n\tswitch name {\n", head)
		for _, name := range names {
			fmt.Fprintf(&b, "\tcase %q:\n\t\treturn %s.MethodByName(%q)\n", name, call, name)
		}
		fmt.Fprintf(&b, "\t}\n\tpanic(\"no such hook: \" + name)\n}\n")
	}
	one("func methodOf(v reflect.Value, name string) reflect.Value", "v")
	one("func methodOfType(t reflect.Type, name string) (reflect.Method, bool)", "t")
	return b.String()
}

// patch makes edits, or says which one does not fit.
func patch(text string, edits []edit) (string, error) {
	for _, e := range edits {
		if n := strings.Count(text, e.old); n != e.times {
			return "", fmt.Errorf("%q is there %d times, want %d: see what this version does, and change tools/slim", e.old, n, e.times)
		}
		text = strings.ReplaceAll(text, e.old, e.new)
	}
	return text, nil
}
