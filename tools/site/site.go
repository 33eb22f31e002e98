package main

import (
	"bytes"
	"cmp"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

const (
	home     = "README.md"
	contents = "docs/README.md"
)

//go:embed page.html style.css search.js
var assets embed.FS

var layout = template.Must(template.ParseFS(assets, "page.html"))

// A site is the pages that can be reached by links, by their path in the repository.
type site struct {
	root  fs.FS
	files string // where files are shown that are no pages
	pages map[string]*page
	bad   []error
}

// A page is one Markdown file.
type page struct {
	path     string
	source   []byte
	root     ast.Node
	title    string
	headings []heading
	anchors  map[string]bool
	links    []*ast.Link
	images   []*ast.Image
}

type heading struct {
	Level int
	ID    string
	Text  string
	words strings.Builder // what stands below it, for the search
}

// markdown reads Markdown as it is shown where the repository is.
func markdown() goldmark.Markdown {
	return goldmark.New(goldmark.WithExtensions(extension.GFM))
}

// add reads a page, and those that it links to.
func (s *site) add(name string) error {
	if s.pages[name] != nil {
		return nil
	}
	source, err := fs.ReadFile(s.root, name)
	if err != nil {
		return err
	}
	p := &page{path: name, source: source, anchors: make(map[string]bool)}
	s.pages[name] = p
	p.root = markdown().Parser().Parse(text.NewReader(source), parser.WithContext(parser.NewContext()))
	if err := ast.Walk(p.root, p.visit); err != nil {
		return err
	}
	for _, link := range p.links {
		to, _, inside := s.target(p, string(link.Destination))
		if !inside {
			continue
		}
		info, err := fs.Stat(s.root, to)
		switch {
		case err != nil:
			s.bad = append(s.bad, fmt.Errorf("%s: a link leads to %s, which does not exist", name, to))
		case !info.IsDir() && path.Ext(to) == ".md":
			if err := s.add(to); err != nil {
				return err
			}
		}
	}
	for _, image := range p.images {
		to, _, inside := s.target(p, string(image.Destination))
		if _, err := fs.Stat(s.root, to); inside && err != nil {
			s.bad = append(s.bad, fmt.Errorf("%s: there is no image %s", name, to))
		}
	}
	return nil
}

// visit notes what a node says of its page.
func (p *page) visit(n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	switch n := n.(type) {
	case *ast.Heading:
		words := plain(n, p.source)
		h := heading{Level: n.Level, ID: p.slug(words), Text: words}
		n.SetAttributeString("id", []byte(h.ID))
		if n.Level == 1 && p.title == "" {
			p.title = words
		}
		p.headings = append(p.headings, h)
		return ast.WalkSkipChildren, nil
	case *ast.Link:
		p.links = append(p.links, n)
	case *ast.Image:
		p.images = append(p.images, n)
	case *ast.Text:
		p.say(n.Segment.Value(p.source))
	case *ast.FencedCodeBlock:
		for i := range n.Lines().Len() {
			line := n.Lines().At(i)
			p.say(line.Value(p.source))
		}
	}
	return ast.WalkContinue, nil
}

// say notes words for the search, under the heading that they stand below.
func (p *page) say(words []byte) {
	if len(p.headings) == 0 {
		return
	}
	b := &p.headings[len(p.headings)-1].words
	b.Write(bytes.TrimSpace(words))
	b.WriteByte(' ')
}

// slug returns the anchor of a heading, as it is where the repository is shown.
func (p *page) slug(words string) string {
	base := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r > 127:
			return r
		default:
			return -1
		}
	}, strings.ToLower(words))
	id := base
	for i := 1; p.anchors[id]; i++ {
		id = fmt.Sprintf("%s-%d", base, i)
	}
	p.anchors[id] = true
	return id
}

// plain returns the text of a node without its marks.
func plain(n ast.Node, source []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if t, ok := n.(*ast.Text); ok && entering {
			b.Write(t.Segment.Value(source))
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}

// target returns where a link of a page leads, if it is inside of the repository.
func (s *site) target(p *page, link string) (to, anchor string, inside bool) {
	if strings.Contains(link, "://") {
		return "", "", false
	}
	to, anchor, _ = strings.Cut(link, "#")
	if to == "" {
		return p.path, anchor, true
	}
	to = path.Join(path.Dir(p.path), to)
	if strings.HasSuffix(link, "/") {
		if _, err := fs.Stat(s.root, path.Join(to, "README.md")); err == nil {
			to = path.Join(to, "README.md")
		}
	}
	return to, anchor, true
}

// broken returns the links that lead nowhere.
func (s *site) broken() []error {
	bad := s.bad
	for _, p := range s.sorted() {
		for _, link := range p.links {
			to, anchor, inside := s.target(p, string(link.Destination))
			if at := s.pages[to]; inside && at != nil && anchor != "" && !at.anchors[anchor] {
				bad = append(bad, fmt.Errorf("%s: a link leads to %s#%s, which does not exist", p.path, to, anchor))
			}
		}
	}
	return bad
}

func (s *site) sorted() []*page {
	return slices.SortedFunc(maps.Values(s.pages), func(a, b *page) int { return cmp.Compare(a.path, b.path) })
}

// address returns where a page is on the site.
func address(name string) string {
	switch {
	case name == home:
		return "index.html"
	case path.Base(name) == "README.md":
		return path.Join(path.Dir(name), "index.html")
	default:
		return strings.TrimSuffix(name, ".md") + ".html"
	}
}

// relative returns how a page on the site links to another file of it.
func relative(from, to string) string {
	return strings.Repeat("../", strings.Count(address(from), "/")) + to
}

// A found is what the search knows of a section.
type found struct {
	Page    string `json:"page"`
	Heading string `json:"heading"`
	At      string `json:"at"`
	Words   string `json:"words"`
}

// A group is the links under a heading of the contents.
type group struct {
	Title string
	Links []link
}

// A link leads to a page of the site, by its path there, or to elsewhere.
type link struct {
	Title, Href string
	Here        bool
}

// render returns the files of the site.
func (s *site) render() (map[string][]byte, error) {
	written := make(map[string][]byte)
	var all []found
	menu, err := s.menu()
	if err != nil {
		return nil, err
	}
	for _, p := range s.sorted() {
		s.relink(p, written)
		var body, whole bytes.Buffer
		if err := markdown().Renderer().Render(&body, p.source, p.root); err != nil {
			return nil, err
		}
		for i := range p.headings {
			h := &p.headings[i]
			all = append(all, found{p.title, h.Text, address(p.path) + "#" + h.ID, h.words.String()})
		}
		err := layout.Execute(&whole, map[string]any{
			"Title": p.title, "Body": template.HTML(body.String()), //nolint:gosec // The pages are our own.
			"Groups": beside(p, menu), "Root": relative(p.path, ""), "Sections": p.sections(),
		})
		if err != nil {
			return nil, err
		}
		written[address(p.path)] = whole.Bytes()
	}
	for _, name := range []string{"style.css", "search.js"} {
		text, err := assets.ReadFile(name)
		if err != nil {
			return nil, err
		}
		written[name] = text
	}
	index, err := json.Marshal(all)
	written["search.json"] = index
	return written, err
}

// relink has the links of a page lead to pages of the site, and to the repository for what
// is no page. Its images are copied.
func (s *site) relink(p *page, written map[string][]byte) {
	for _, l := range p.links {
		l.Destination = []byte(from(p, s.href(p, string(l.Destination))))
	}
	for _, image := range p.images {
		to, _, inside := s.target(p, string(image.Destination))
		if text, err := fs.ReadFile(s.root, to); inside && err == nil {
			written[to] = text
			image.Destination = []byte(relative(p.path, to))
		}
	}
}

// sections returns the second-level headings of a page.
func (p *page) sections() (all []*heading) {
	for i := range p.headings {
		if p.headings[i].Level == 2 {
			all = append(all, &p.headings[i])
		}
	}
	return all
}

// menu returns the links of the contents, which stand beside each page.
func (s *site) menu() (all []group, err error) {
	at := s.pages[contents]
	err = ast.Walk(at.root, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			if n.Level == 2 {
				all = append(all, group{Title: plain(n, at.source)})
			}
		case *ast.Link:
			if len(all) > 0 {
				g := &all[len(all)-1]
				g.Links = append(g.Links, link{Title: plain(n, at.source), Href: s.href(at, string(n.Destination))})
			}
		}
		return ast.WalkContinue, nil
	})
	return all, err
}

// href returns where a link of a page leads: the path of a page on the site, or an address
// elsewhere.
func (s *site) href(p *page, destination string) string {
	to, anchor, inside := s.target(p, destination)
	if !inside {
		return destination
	}
	href := s.files + to
	if s.pages[to] != nil {
		href = address(to)
	}
	if anchor != "" {
		href += "#" + anchor
	}
	return href
}

// from returns a link as the page has it.
func from(p *page, href string) string {
	if strings.Contains(href, "://") {
		return href
	}
	return relative(p.path, href)
}

// beside returns the menu as it stands beside a page.
func beside(p *page, menu []group) []group {
	all := make([]group, len(menu))
	for i, g := range menu {
		all[i].Title = g.Title
		for _, l := range g.Links {
			all[i].Links = append(all[i].Links, link{l.Title, from(p, l.Href), l.Href == address(p.path)})
		}
	}
	return all
}
