package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/quipudb/quipu/internal/completion"
	"github.com/quipudb/quipu/internal/manual"
)

type completionCmd struct {
	Shell string `arg:"" help:"bash, zsh or fish." enum:"bash,zsh,fish"`
}

// Help is shown by --help.
func (*completionCmd) Help() string {
	return `The script asks the program for its commands and flags, so you need no new script after an upgrade.

Examples:

  eval "$(quipu completion bash)"
  eval "$(quipu completion zsh)"
  quipu completion fish | source`
}

// Run prints the script.
func (c *completionCmd) Run(out *output, command *kong.Context) error {
	return out.printLines(strings.Split(strings.TrimSuffix(completion.Script(c.Shell, command.Model.Name), "\n"), "\n"))
}

// completeCmd is what the scripts ask.
type completeCmd struct {
	Words []string `arg:"" optional:""`
}

// Run prints candidates, and what they are for.
func (c *completeCmd) Run(out *output, command *kong.Context) error {
	for _, found := range completion.Candidates(command.Model, c.Words) {
		if err := out.print("%s\t%s", found.Text, found.Help); err != nil {
			return err
		}
	}
	return nil
}

type manCmd struct {
	Command []string `arg:"" optional:"" help:"The command whose page is printed; the page of quipu itself if none is given."`
	Out     string   `help:"Write all pages into this directory, as NAME.1." placeholder:"DIR" env:"-"`
}

// Help is shown by --help.
func (*manCmd) Help() string {
	return `The pages have the text of --help, in the format of man(1).

Examples:

  quipu man | man -l -
  quipu man policy set | man -l -
  quipu man --out /usr/local/share/man/man1`
}

// Run prints a page, or writes all of them.
func (c *manCmd) Run(out *output, command *kong.Context) error {
	pages := manual.Pages(command.Model, versionName())
	if c.Out != "" {
		if len(c.Command) > 0 {
			return usage("--out writes the pages of all commands: leave out %q", strings.Join(c.Command, " "))
		}
		for _, p := range pages {
			if err := os.WriteFile(filepath.Join(c.Out, p.Name+".1"), []byte(p.Text), 0o644); err != nil { //nolint:gosec // everybody may read a manual
				return fmt.Errorf("write the page of %s: %w", p.Name, err)
			}
		}
		return nil
	}
	name := strings.Join(append([]string{command.Model.Name}, c.Command...), "-")
	i := slices.IndexFunc(pages, func(p manual.Page) bool { return p.Name == name })
	if i < 0 {
		return usage("%w", errors.New("no command is called "+strings.Join(c.Command, " ")+": quipu --help lists them"))
	}
	return out.print("%s", strings.TrimSuffix(pages[i].Text, "\n"))
}
