package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/policy"
)

type policyCmd struct {
	List    policyListCmd    `cmd:"" help:"Print the policies of a server."`
	Show    policyShowCmd    `cmd:"" help:"Print the settings that apply to a key."`
	Explain policyExplainCmd `cmd:"" help:"Say which policy and which definition apply to a key."`
	Set     policySetCmd     `cmd:"" help:"Create a policy, or replace the one with the same pattern."`
	Rm      policyRmCmd      `cmd:"" aliases:"delete" help:"Remove a policy that was made through the API."`
	Load    policyLoadCmd    `cmd:"" help:"Replace the policies made through the API with those of a file."`
	Apply   policyApplyCmd   `cmd:"" help:"Publish the definitions of a file: windows, dimensions and ledgers."`
	Presets policyPresetsCmd `cmd:"" help:"Print the presets and the promise of each."`
	Check   policyCheckCmd   `cmd:"" help:"Check the policies and definitions in a file."`
}

// policyServer is a server whose policies are meant, of all namespaces.
type policyServer struct {
	Addr   address `help:"Address of the server: HOST:PORT or a URL." default:"http://127.0.0.1:8080"`
	APIKey string  `name:"api-key" help:"API key for the server. Of a comma-separated list, the first is used." placeholder:"KEY"`
	JSON   bool    `name:"json" help:"Print the replies of the server, one JSON object per line."`
}

const (
	policiesPath = "/api/v1/policies"
	sourceAPI    = "api" // of a policy that was made by API

	// changesMax is how often a change is tried while others make theirs, and
	// changeAgain the longest wait between.
	changesMax  = 12
	changeAgain = 50 * time.Millisecond
)

// A placed is a policy of a server, as the REST API writes it.
type placed struct {
	Index  int
	Source string
	Policy policyJSON
}

// place says where the policy comes from.
func (p *placed) place() string {
	if p.Source == sourceAPI {
		return fmt.Sprintf("policy %d, made by API", p.Index)
	}
	return fmt.Sprintf("policy %d, from the configuration file", p.Index)
}

// policyJSON is a policy, also as the server wrote it.
type policyJSON struct {
	quipu.Policy
	raw json.RawMessage
}

// UnmarshalJSON reads what the REST API writes of a policy.
func (p *policyJSON) UnmarshalJSON(raw []byte) (err error) {
	var members map[string]any
	if err := json.Unmarshal(raw, &members); err != nil {
		return err
	}
	settings := map[string]string{}
	for name, value := range members {
		settings[strings.ReplaceAll(name, "_", "-")] = fmt.Sprint(value)
	}
	p.raw = slices.Clone(raw)
	p.Policy, err = policy.Parse(settings)
	return err
}

// MarshalJSON writes what the REST API reads.
func (p policyJSON) MarshalJSON() ([]byte, error) {
	if p.raw != nil {
		return p.raw, nil
	}
	members := map[string]any{}
	for _, s := range p.Settings() {
		if !s.Given {
			continue
		}
		if word, ok := s.Value.(fmt.Stringer); ok {
			s.Value = word.String()
		}
		members[strings.ReplaceAll(s.Name, "-", "_")] = s.Value
	}
	return json.Marshal(members)
}

func (s *policyServer) remote() *remote { return &remote{Addr: s.Addr, APIKey: s.APIKey, JSON: s.JSON} }

// get returns the policies of the server, as it wrote them too, and the tag of
// those made by API.
func (s *policyServer) get(ctx context.Context) (all []placed, raw []json.RawMessage, tag string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	res, err := s.remote().open(ctx, request{method: http.MethodGet, path: policiesPath})
	if err != nil {
		return nil, nil, "", err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, replyBytesMax))
	if err != nil {
		return nil, nil, "", fmt.Errorf("read the reply of %s: %w", s.Addr, err)
	}
	var reply struct{ Policies []json.RawMessage }
	if err = json.Unmarshal(body, &reply); err == nil {
		all, err = placedOf(reply.Policies)
	}
	if err != nil {
		return nil, nil, "", fmt.Errorf("decode the reply of %s: %w", s.Addr, err)
	}
	return all, reply.Policies, res.Header.Get("ETag"), nil
}

func placedOf(raw []json.RawMessage) ([]placed, error) {
	all := make([]placed, len(raw))
	for i := range raw {
		if err := json.Unmarshal(raw[i], &all[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// change replaces the policies made by API by what f makes of all policies. If
// someone else was faster, it reads them again and tries again.
func (s *policyServer) change(ctx context.Context, f func(all []placed) (made []policyJSON, err error)) (reply []byte, err error) {
	for range changesMax {
		all, _, tag, err := s.get(ctx)
		if err != nil {
			return nil, err
		}
		made, err := f(all)
		if err != nil {
			return nil, err
		}
		var nothing struct{}
		reply, err = s.remote().call(ctx, request{
			method: http.MethodPut, path: policiesPath, header: map[string]string{"If-Match": tag},
			body: map[string][]policyJSON{"policies": made},
		}, &nothing)
		if err == nil || !strings.HasSuffix(err.Error(), "(changed)") {
			return reply, err
		}
		select { // others who wait too should not all come back at once
		case <-time.After(rand.N(changeAgain)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return nil, fmt.Errorf("the policies of %s kept changing: this change was tried %d times and not made; run it again", s.Addr, changesMax)
}

type policyListCmd struct {
	policyServer `embed:""`
}

// Help is shown by --help.
func (*policyListCmd) Help() string {
	return `Each line has the source of a policy (api or file), a tab and the policy. The first policy that matches a key applies.

Examples:

  quipu policy list
  quipu policy list --json`
}

// Run lists.
func (c *policyListCmd) Run(ctx context.Context, out *output) error {
	all, raw, _, err := c.get(ctx)
	if err != nil {
		return err
	}
	for i, p := range all {
		line := p.Source + "\t" + p.Policy.String()
		if c.JSON {
			line = string(raw[i])
		}
		if err := out.print("%s", line); err != nil {
			return err
		}
	}
	return nil
}

// policyKey is a key whose policy is asked for.
type policyKey struct {
	remote `embed:""`

	Key word `arg:"" help:"The key."`
}

// An explanation is what the server says of a key.
type explanation struct {
	Namespace, Key string
	Holds          *placed
	Effective      policyJSON
	Others         []placed
	Definition     *bookReply
}

func (k *policyKey) ask(ctx context.Context) (e explanation, raw []byte, err error) {
	raw, err = k.call(ctx, request{
		method: http.MethodGet, path: "policies/explain", query: url.Values{"key": {string(k.Key)}},
	}, &e)
	return e, raw, err
}

type policyShowCmd struct {
	policyKey `embed:""`
}

// Help is shown by --help.
func (*policyShowCmd) Help() string {
	return `The command prints every setting, including the defaults. "quipu policy explain" says where they come from.

Examples:

  quipu policy show likes:42
  quipu policy show likes:42 --namespace shop`
}

// Run shows.
func (c *policyShowCmd) Run(ctx context.Context, out *output) error {
	e, raw, err := c.ask(ctx)
	if err != nil || c.JSON {
		return printRaw(out, raw, err)
	}
	for _, s := range e.Effective.Settings() {
		if s.Value == nil {
			continue // there is no bound
		}
		value := fmt.Sprint(s.Value)
		switch s.Name {
		case "namespace":
			if !s.Given {
				value = "any"
			}
		case "pattern":
			value = printable(value)
		case "interval":
			if !s.Given {
				continue // there is no total to refresh
			}
		}
		if err := out.print("%s: %s", s.Name, value); err != nil {
			return err
		}
	}
	if e.Definition != nil && len(e.Definition.Definitions) > 0 {
		return out.print("definition: %s", e.Definition.Definitions[0])
	}
	return nil
}

func printRaw(out *output, raw []byte, err error) error {
	if err != nil {
		return err
	}
	return out.print("%s", raw)
}

type policyExplainCmd struct {
	policyKey `embed:""`
}

// Help is shown by --help.
func (*policyExplainCmd) Help() string {
	return `Policies made through the API come before those of the server's configuration file. The first that matches applies. If the
key has a definition, the command also prints the definition and since when each view is complete.

Example:

  quipu policy explain likes:42`
}

// Run explains.
func (c *policyExplainCmd) Run(ctx context.Context, out *output) error {
	e, raw, err := c.ask(ctx)
	if err != nil || c.JSON {
		return printRaw(out, raw, err)
	}
	lines := []string{fmt.Sprintf("%s has the defaults: no policy names it", printable(e.Key))}
	if e.Holds != nil {
		lines[0] = fmt.Sprintf("%s has %s: %s", printable(e.Key), e.Holds.place(), e.Holds.Policy)
	}
	for _, p := range e.Others {
		lines = append(lines, fmt.Sprintf("%s, names it too, and comes later: %s", p.place(), p.Policy))
	}
	return out.printLines(append(lines, e.Definition.lines(e.Key)...))
}

type policyPresetsCmd struct{}

// Help is shown by --help.
func (*policyPresetsCmd) Help() string {
	return `Example:

  quipu policy presets`
}

// Run prints presets.
func (*policyPresetsCmd) Run(out *output) error {
	for _, p := range policy.Presets() {
		settings := strings.NewReplacer(`pattern: "", `, "", `pattern: ""`, "").Replace(p.Policy.String())
		if err := out.print("%s: %s\n  %s", p.Name, p.Promise, settings); err != nil {
			return err
		}
	}
	return nil
}

type policyCheckCmd struct {
	File string `arg:"" help:"The file, for --config or --policy-file."`
}

// Help is shown by --help.
func (*policyCheckCmd) Help() string {
	return `Policies that can never match produce a warning. The other settings of a configuration file are checked by
"quipu config check".

Example:

  quipu policy check quipu.yaml`
}

// countPolicies says how many there are.
func countPolicies(policies []quipu.Policy) string {
	if len(policies) == 1 {
		return "1 policy"
	}
	return fmt.Sprintf("%d policies", len(policies))
}

// policiesOf reads the policies of a file, one for --config or for --policy-file.
func policiesOf(out *output, file string) (*config, error) {
	parser, err := newParser(out, &config{})
	if err != nil {
		return nil, err
	}
	conf := &config{}
	for _, n := range parser.Model.Children {
		if n.Name == "serve" {
			err = conf.load(file, n.Flags)
		}
	}
	return conf, err
}

// Run checks.
func (c *policyCheckCmd) Run(out *output) error {
	conf, err := policiesOf(out, c.File)
	if err != nil {
		return err
	}
	for _, text := range unmatched(conf.policies, conf.place) {
		out.hint(text)
	}
	text := countPolicies(conf.policies)
	if conf.definitions != nil {
		text += ", " + countDefinitions(conf.definitions)
	}
	return out.print("%s: ok, %s", c.File, text)
}
