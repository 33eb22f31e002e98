package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/definition"
	"github.com/quipudb/quipu/internal/draft"
)

// publishMax is how long a server tries to publish definitions.
const publishMax = 30 * time.Second

// A proposal is the definitions that a file has for one namespace.
type proposal struct {
	namespace   string
	definitions []definition.Definition
}

// proposals returns what the file proposes, in the order of its namespaces. An empty list
// is for the default namespace.
func (c *config) proposals() (all []proposal) {
	if c.defines && len(c.definitions) == 0 {
		return []proposal{{namespace: defaultNamespace}}
	}
	for _, d := range c.definitions {
		i := slices.IndexFunc(all, func(p proposal) bool { return p.namespace == d.Namespace })
		if i < 0 {
			i = len(all)
			all = append(all, proposal{namespace: d.Namespace})
		}
		all[i].definitions = append(all[i].definitions, d.Definition)
	}
	return all
}

// propose publishes the definitions of a file into namespaces that never had any, and logs
// what the others have differently.
func propose(ctx context.Context, db *quipu.DB, conf *config, readOnly bool, logger *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, publishMax)
	defer cancel()
	for _, p := range conf.proposals() {
		in := db.In(p.namespace)
		if !readOnly && len(p.definitions) > 0 {
			c, err := in.Define(ctx, p.definitions, quipu.DefineOptions{IfNone: true})
			if err != nil {
				return fmt.Errorf("publish the definitions of namespace %s: %w", p.namespace, err)
			}
			if len(c.Changes) > 0 { // All of them begin.
				logger.Info("definitions published", "namespace", p.namespace, "book", c.ID, "definitions", len(p.definitions))
			}
		}
		c, err := in.Define(ctx, p.definitions, quipu.DefineOptions{DryRun: true})
		if err != nil {
			return fmt.Errorf("compare the definitions of namespace %s: %w", p.namespace, err)
		}
		if len(c.Changes) > 0 {
			logger.Warn("the definitions in the store differ from those in the configuration file, and apply; quipu policy apply publishes those of the file",
				"file", conf.file, "namespace", p.namespace, "differences", strings.Join(c.Changes, "; "))
		}
	}
	return nil
}

// publish publishes the definitions of a file.
func publish(ctx context.Context, db *quipu.DB, conf *config, logger *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, publishMax)
	defer cancel()
	for _, p := range conf.proposals() {
		c, err := db.In(p.namespace).Define(ctx, p.definitions, quipu.DefineOptions{})
		if err != nil {
			logger.Error("definitions not published", "file", conf.file, "namespace", p.namespace, "error", err)
			continue
		}
		if len(c.Changes) > 0 {
			logger.Info("definitions published", "namespace", p.namespace, "book", c.ID, "changes", strings.Join(c.Changes, "; "))
		}
	}
}

type policyApplyCmd struct {
	policyServer `embed:""`

	File   string `arg:"" help:"YAML file with definitions, such as one for --config."`
	DryRun bool   `help:"Print what would change, and change nothing."`
	Yes    bool   `help:"Do not ask for confirmation."`
}

// Help is shown by --help.
func (*policyApplyCmd) Help() string {
	return `Definitions say which windows, dimensions, ledgers, floors and ceilings keys have. The store keeps them, for all servers.
The command replaces all definitions of each namespace that the file mentions. It prints which views begin, begin anew
and end, and asks before it publishes the change. A view that begins anew loses what it has counted. The command
ignores the policies in the file.

Examples:

  quipu policy apply quipu.yaml --dry-run
  quipu policy apply quipu.yaml --yes`
}

// Run applies.
func (c *policyApplyCmd) Run(ctx context.Context, out *output) error {
	conf, err := policiesOf(out, c.File)
	if err != nil {
		return err
	}
	all := conf.proposals()
	if len(all) == 0 {
		return fmt.Errorf("%s has no definitions: want a list named \"definitions\"", c.File)
	}
	if os.Getenv("QUIPU_NAMESPACE") != "" {
		out.hint("QUIPU_NAMESPACE is set and was ignored: the file names the namespace of each definition, and the default is " + defaultNamespace)
	}
	for _, p := range all {
		if err := c.apply(ctx, out, p); err != nil {
			return err
		}
	}
	return nil
}

// apply publishes the definitions of one namespace, if someone agrees.
func (c *policyApplyCmd) apply(ctx context.Context, out *output, p proposal) error {
	tag, err := c.tag(ctx, p.namespace)
	if err != nil {
		return err
	}
	change, _, err := c.put(ctx, p, tag, true)
	if err != nil {
		return err
	}
	if !c.JSON {
		for _, text := range change.Changes {
			if err := out.print("%s: %s", printable(p.namespace), text); err != nil {
				return err
			}
		}
	}
	if !c.DryRun && len(change.Changes) > 0 {
		if err := c.ask(out); err != nil {
			return err
		}
	}
	change, raw, err := c.put(ctx, p, tag, c.DryRun)
	if err != nil || c.JSON {
		return printRaw(out, raw, err)
	}
	if len(change.Changes) == 0 {
		return out.print("%s: nothing changes", printable(p.namespace))
	}
	if c.DryRun {
		return nil
	}
	return out.print("%s: book %d is in force", printable(p.namespace), change.ID)
}

// ask returns an error unless someone agrees.
func (c *policyApplyCmd) ask(out *output) error {
	if c.Yes {
		return nil
	}
	if !terminal(os.Stdin) {
		return usage("publishing definitions changes what is counted: give --yes")
	}
	return confirm(out, os.Stdin, "Publish them?")
}

// confirm asks a question, and returns an error unless the answer is yes.
func confirm(out *output, in io.Reader, question string) error {
	_, _ = fmt.Fprint(out.stderr, question+" [y/N] ")
	answer, _ := bufio.NewReader(in).ReadString('\n')
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return errors.New("nothing was changed")
	}
	return nil
}

// definitionsPath returns the path of the definitions of a namespace.
func definitionsPath(namespace string) string {
	return "/api/v1/namespaces/" + url.PathEscape(namespace) + "/definitions"
}

// tag returns the ETag of the definitions of a namespace.
func (c *policyApplyCmd) tag(ctx context.Context, namespace string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	res, err := c.remote().open(ctx, request{method: http.MethodGet, path: definitionsPath(namespace)})
	if err != nil {
		return "", err
	}
	return res.Header.Get("ETag"), res.Body.Close()
}

// A changeReply is what the server says of definitions.
type changeReply struct {
	ID      int64
	Changes []string
}

// put proposes definitions, or publishes them.
func (c *policyApplyCmd) put(ctx context.Context, p proposal, tag string, dry bool) (change changeReply, raw []byte, err error) {
	definitions := p.definitions
	if definitions == nil {
		definitions = []definition.Definition{}
	}
	q := request{
		method: http.MethodPut, path: definitionsPath(p.namespace), header: map[string]string{"If-Match": tag}, reads: dry,
		body: map[string]any{"definitions": definitions},
	}
	if dry {
		q.query = url.Values{"dry_run": {"true"}}
	}
	raw, err = c.remote().call(ctx, q, &change)
	return change, raw, err
}

// A bookReply is a definition of a server, and since when it holds.
type bookReply struct {
	ID          int64
	InForce     *time.Time `json:"in_force"`
	Definitions []definition.Definition
	Views       []struct {
		Name  string
		Since *time.Time
		Keep  string
	}
}

// lines says which definition a key has, and since when its views are complete.
func (b *bookReply) lines(key string) []string {
	if b == nil || len(b.Definitions) == 0 {
		return []string{printable(key) + " has no definition: only its total is kept"}
	}
	lines := []string{fmt.Sprintf("%s is counted by book %d: %s", printable(key), b.ID, b.Definitions[0])}
	for _, v := range b.Views {
		since, keep := "not in force yet", "for ever"
		if v.Since != nil {
			since = "complete since " + v.Since.Format(time.RFC3339)
		}
		if v.Keep != "" {
			keep = "for " + v.Keep
		}
		lines = append(lines, fmt.Sprintf("  %s: %s, kept %s", v.Name, since, keep))
	}
	return lines
}

// countDefinitions says how many there are.
func countDefinitions(definitions []draft.Draft) string {
	if len(definitions) == 1 {
		return "1 definition"
	}
	return fmt.Sprintf("%d definitions", len(definitions))
}
