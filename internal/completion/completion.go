// Package completion completes command lines for shells. Its scripts for shells
// ask the program itself for candidates, so that they never disagree with the
// program's commands and flags.
package completion

import (
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// A Candidate may stand where the cursor is.
type Candidate struct {
	Text string
	Help string // one line, or empty
}

// Candidates returns what the last of the words of a command line may become. The
// words are those after the name of the program; the last one may be empty. If
// there are no candidates, a file may be meant.
func Candidates(app *kong.Application, words []string) []Candidate {
	if len(words) == 0 {
		words = []string{""}
	}
	at := position{node: app.Node}
	for _, word := range words[:len(words)-1] {
		at.pass(word)
	}
	return at.complete(words[len(words)-1])
}

// A position is how far the words of a command line have come.
type position struct {
	node      *kong.Node
	flag      *kong.Flag // it waits for its value
	arguments int        // passed, of the command
	literal   bool       // "--" was passed: no flag follows
}

// pass goes past a word.
func (p *position) pass(word string) {
	switch {
	case p.flag != nil:
		if word != "=" { // bash takes --flag=value for three words
			p.flag = nil
		}
	case p.literal:
		p.arguments++
	case word == "--":
		p.literal = true
	case strings.HasPrefix(word, "-") && len(word) > 1:
		name, _, hasValue := strings.Cut(word, "=")
		if f := p.find(name); f != nil && !hasValue && !f.IsBool() {
			p.flag = f
		}
	default:
		for _, child := range p.node.Children {
			if child.Name == word || slices.Contains(child.Aliases, word) {
				p.node = child
				return
			}
		}
		p.arguments++
	}
}

// find returns the flag that is called -x or --name here, or nil.
func (p *position) find(name string) *kong.Flag {
	for _, group := range p.node.AllFlags(true) {
		for _, f := range group {
			if "--"+f.Name == name || f.Short != 0 && "-"+string(f.Short) == name {
				return f
			}
		}
	}
	return nil
}

// complete returns what a word may become here.
func (p *position) complete(word string) (all []Candidate) {
	add := func(text, help string) {
		if strings.HasPrefix(text, word) {
			line, _, _ := strings.Cut(help, "\n")
			all = append(all, Candidate{text, line})
		}
	}
	values := func(before string, v *kong.Value) {
		for _, value := range v.EnumSlice() {
			if value != "" {
				add(before+value, "")
			}
		}
	}
	name, _, hasValue := strings.Cut(word, "=")
	switch {
	case p.flag != nil:
		word = strings.TrimPrefix(word, "=")
		values("", p.flag.Value)
	case !p.literal && strings.HasPrefix(word, "-") && hasValue:
		if f := p.find(name); f != nil {
			values(name+"=", f.Value)
		}
	case !p.literal && strings.HasPrefix(word, "-"):
		for _, group := range slices.Backward(p.node.AllFlags(true)) {
			for _, f := range group {
				add("--"+f.Name, f.Help)
			}
		}
	case len(p.node.Children) > 0:
		for _, child := range p.node.Children {
			if !child.Hidden {
				add(child.Name, child.Help)
			}
		}
	case p.arguments < len(p.node.Positional):
		values("", p.node.Positional[p.arguments])
	}
	return all
}
