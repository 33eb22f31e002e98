package main

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
)

// reactionPath returns the path of what a user has chosen of a counter, or of what all have
// if there is no user.
func reactionPath(key, user word) string {
	path := "reactions/" + url.PathEscape(string(key))
	if key == "read" { // which is a call of its own
		path = "reactions/%72ead"
	}
	if user != "" {
		path += "/" + url.PathEscape(string(user))
	}
	return path
}

// A reactionReply is what became of a reaction, as the REST API writes it.
type reactionReply struct {
	Choice, Before string
	Changed        bool
}

// react makes a reaction and prints what the user had before and has now.
func (f *writeFlags) react(ctx context.Context, out *output, q request) error {
	var err error
	if q.token, err = f.token(); err != nil {
		return err
	}
	var r reactionReply
	raw, err := f.call(ctx, q, &r)
	if err != nil {
		if exitCode(err) == exitUnknown {
			out.hint("the reaction may have counted; run it again with --id " + strconv.Quote(q.token) + " to be sure")
		}
		return err
	}
	if f.JSON {
		return out.print("%s", raw)
	}
	if !r.Changed {
		out.hint("nothing changed")
	}
	return out.print("%s", orNone(r.Choice))
}

// orNone returns a choice as it is printed.
func orNone(choice string) string {
	if choice == "" {
		return "-"
	}
	return choice
}

// checkUser returns an error for a user without a name, which no path could have.
func checkUser(user word) error {
	if user == "" {
		return errors.New("USER is empty")
	}
	return nil
}

type reactCmd struct {
	writeFlags `embed:""`

	Key    word `arg:"" help:"The counter."`
	User   word `arg:"" help:"The user who reacts."`
	Choice word `arg:"" help:"The reaction: one of the choices in the counter's definition."`
}

// Help is shown by --help.
func (*reactCmd) Help() string {
	return `A user has one reaction to a counter. A new one replaces the one before. The same one again changes nothing. The counter
needs a definition with choices: see "quipu policy explain".

Examples:

  quipu react post:1 ana like
  quipu react post:1 ana dislike`
}

// Validate is called after the flags are parsed.
func (c *reactCmd) Validate() error { return checkUser(c.User) }

// Run chooses.
func (c *reactCmd) Run(ctx context.Context, out *output) error {
	return c.react(ctx, out, request{method: http.MethodPut, path: reactionPath(c.Key, c.User), body: map[string]any{"choice": string(c.Choice)}})
}

type unreactCmd struct {
	writeFlags `embed:""`

	Key  word `arg:"" help:"The counter."`
	User word `arg:"" help:"The user whose reaction is removed."`
}

// Help is shown by --help.
func (*unreactCmd) Help() string {
	return `If the user has no reaction, nothing changes.

Example:

  quipu unreact post:1 ana`
}

// Validate is called after the flags are parsed.
func (c *unreactCmd) Validate() error { return checkUser(c.User) }

// Run takes back.
func (c *unreactCmd) Run(ctx context.Context, out *output) error {
	return c.react(ctx, out, request{method: http.MethodDelete, path: reactionPath(c.Key, c.User)})
}

type reactionCmd struct {
	remote `embed:""`

	Key  word `arg:"" help:"The counter."`
	User word `arg:"" optional:"" help:"Print the reaction of this user. The default is the number of users with each reaction."`
}

// Help is shown by --help.
func (*reactionCmd) Help() string {
	return `For a user without a reaction the command prints -.

Examples:

  quipu reaction post:1
  quipu reaction post:1 ana`
}

// Run prints.
func (c *reactionCmd) Run(ctx context.Context, out *output) error {
	q := request{method: http.MethodGet, path: reactionPath(c.Key, c.User)}
	var r struct {
		Choice string
		Counts map[string]int64
	}
	raw, err := c.call(ctx, q, &r)
	if err != nil || c.JSON {
		return printRaw(out, raw, err)
	}
	if c.User != "" {
		return out.print("%s", orNone(r.Choice))
	}
	var names []string
	for name := range r.Counts {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(r.Counts[b], r.Counts[a]), cmp.Compare(a, b)) })
	for _, name := range names {
		if err := out.print("%s\t%d", name, r.Counts[name]); err != nil {
			return err
		}
	}
	return nil
}

type membersCmd struct {
	remote `embed:""`

	Key    word `arg:"" help:"The counter."`
	Choice word `help:"Print only users with this reaction." placeholder:"NAME"`
	Limit  int  `help:"Maximum number of users to print; with --all, the size of a page." default:"100"`
	All    bool `help:"Print all users, page by page."`
}

// Help is shown by --help.
func (*membersCmd) Help() string {
	return `The command prints users and their reactions, in the byte order of their names.

Examples:

  quipu members post:1
  quipu members post:1 --choice like --all`
}

// Run prints.
func (c *membersCmd) Run(ctx context.Context, out *output) error {
	q := request{method: http.MethodGet, path: "members/" + url.PathEscape(string(c.Key)), query: url.Values{"limit": {strconv.Itoa(c.Limit)}}}
	if c.Choice != "" {
		q.query.Set("choice", string(c.Choice))
	}
	for {
		var p struct {
			Members []struct{ User, Choice string }
			Next    string
		}
		raw, err := c.call(ctx, q, &p)
		if err != nil {
			return err
		}
		if c.JSON {
			if err := out.print("%s", raw); err != nil {
				return err
			}
		}
		for _, m := range p.Members {
			if c.JSON {
				break
			}
			if err := out.print("%s\t%s", printable(m.User), m.Choice); err != nil {
				return err
			}
		}
		if p.Next == "" {
			return nil
		}
		if !c.All {
			out.hint("there may be more: use --limit or --all")
			return nil
		}
		q.query.Set("cursor", p.Next)
	}
}
