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

// patches are the edits of each file of the parser.
var patches = map[string][]edit{
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
