// Package manual makes manual pages from the same model of commands and flags
// that --help shows, so that both always say the same.
package manual

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

// A Page is a page of the manual, of section 1.
type Page struct {
	Name string // such as quipu-policy-set
	Text string // for man(1)
}

// Pages returns the pages of an application: its own first, and one for each
// command that is not hidden.
func Pages(app *kong.Application, version string) []Page {
	pages := []Page{overview(app, version)}
	for _, leaf := range app.Leaves(true) {
		pages = append(pages, page(leaf, version))
	}
	return pages
}

// path returns the words that call a node, without its other names.
func path(n *kong.Node) []string {
	if n.Parent == nil {
		return []string{n.Name}
	}
	return append(path(n.Parent), n.Name)
}

// name returns the name of the page of a node.
func name(n *kong.Node) string { return strings.Join(path(n), "-") }

// heading begins a page.
func heading(b *strings.Builder, n *kong.Node, help, version string) {
	fmt.Fprintf(b, ".TH %s 1 \"\" %s\n.SH NAME\n%s \\- %s\n.SH SYNOPSIS\n", escape(strings.ToUpper(name(n))), quote(n.FullPath()+" "+version), escape(name(n)), escape(strings.TrimSuffix(help, ".")))
}

// overview returns the page of the application, which lists the commands.
func overview(app *kong.Application, version string) Page {
	var b strings.Builder
	first, rest, _ := strings.Cut(app.Help, "\n\n")
	heading(&b, app.Node, first, version)
	fmt.Fprintf(&b, ".B %s\n.I command\n[\\fIflags\\fR]\n.SH DESCRIPTION\n", escape(app.Name))
	prose(&b, rest)
	b.WriteString(".SH COMMANDS\n")
	for _, leaf := range app.Leaves(true) {
		fmt.Fprintf(&b, ".TP\n.BR %s (1)\n%s\n", escape(name(leaf)), line(leaf.Help))
	}
	options(&b, app.Node)
	return Page{app.Name, b.String()}
}

// page returns the page of a command.
func page(n *kong.Node, version string) Page {
	var b strings.Builder
	heading(&b, n, n.Help, version)
	root := n
	for root.Parent != nil {
		root = root.Parent
	}
	fmt.Fprintf(&b, ".B %s\n%s\n.SH DESCRIPTION\n%s\n", escape(n.FullPath()), escape(strings.TrimPrefix(n.Summary(), n.Path()+" ")), line(n.Help))
	if n.Detail != "" {
		b.WriteString(".PP\n")
		prose(&b, n.Detail)
	}
	var about []*kong.Positional
	for _, p := range n.Positional {
		if p.Help != "" {
			about = append(about, p)
		}
	}
	if len(about) > 0 {
		b.WriteString(".SH ARGUMENTS\n")
		for _, p := range about {
			fmt.Fprintf(&b, ".TP\n.I %s\n%s\n", escape(p.Name), line(p.Help))
		}
	}
	options(&b, n)
	fmt.Fprintf(&b, ".SH SEE ALSO\n.BR %s (1)\n", escape(root.Name))
	return Page{name(n), b.String()}
}

// options lists the flags of a command, with their variables.
func options(b *strings.Builder, n *kong.Node) {
	b.WriteString(".SH OPTIONS\n")
	for _, group := range n.AllFlags(true) {
		for _, f := range group {
			b.WriteString(".TP\n")
			if f.Short != 0 {
				fmt.Fprintf(b, "\\fB\\-%c\\fR, ", f.Short)
			}
			fmt.Fprintf(b, "\\fB%s\\fR", escape("--"+f.Name))
			if !f.IsBool() {
				fmt.Fprintf(b, "=\\fI%s\\fR", escape(f.FormatPlaceHolder()))
			}
			fmt.Fprintf(b, "\n%s\n", line(f.Help))
			if len(f.Envs) > 0 {
				fmt.Fprintf(b, "Variable: %s.\n", escape(strings.Join(f.Envs, ", ")))
			}
		}
	}
}

// prose writes paragraphs. Indented lines are examples, which stay as they are.
func prose(b *strings.Builder, text string) {
	for i, paragraph := range strings.Split(strings.Trim(text, "\n"), "\n\n") {
		if i > 0 {
			b.WriteString(".PP\n")
		}
		code := false
		for l := range strings.SplitSeq(paragraph, "\n") {
			if indented := strings.HasPrefix(l, "  "); indented != code {
				code = indented
				b.WriteString(map[bool]string{true: ".RS 4\n.nf\n", false: ".fi\n.RE\n"}[code])
			}
			if code {
				l = l[2:]
			}
			b.WriteString(line(l) + "\n")
		}
		if code {
			b.WriteString(".fi\n.RE\n")
		}
	}
}

// line returns a line of text, which is no request to the formatter.
func line(text string) string {
	text = escape(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		return `\&` + text
	}
	return text
}

// quote returns an argument of a request.
func quote(text string) string { return `"` + strings.ReplaceAll(escape(text), `"`, `\(dq`) + `"` }

// escape returns text as the formatter prints it: dashes that can be copied, and
// characters beyond ASCII by their numbers.
func escape(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r == '\\':
			b.WriteString(`\e`)
		case r == '-':
			b.WriteString(`\-`)
		case r == '\'':
			b.WriteString(`\(aq`)
		case r == '`':
			b.WriteString(`\(ga`)
		case r == '^':
			b.WriteString(`\(ha`)
		case r == '~':
			b.WriteString(`\(ti`)
		case r > '~':
			fmt.Fprintf(&b, `\[u%04X]`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
