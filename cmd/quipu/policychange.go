package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/quipudb/quipu"
	"github.com/quipudb/quipu/policy"
)

// policyNamed is a policy that is addressed by what it names.
type policyNamed struct {
	policyServer `embed:""`

	Pattern   word `arg:"" help:"A key, or a prefix followed by *."`
	Namespace word `help:"Only for keys of this namespace. The default is any." placeholder:"NAME"`
}

// same reports whether p is addressed.
func (c *policyNamed) same(p quipu.Policy) bool {
	return p.Namespace == string(c.Namespace) && p.Pattern == string(c.Pattern)
}

type policySetCmd struct {
	policyNamed `embed:""`

	Settings []string `arg:"" optional:"" name:"setting" help:"NAME=VALUE, named as in configuration files."`
}

// Help is shown by --help.
func (*policySetCmd) Help() string {
	return `The policy survives restarts of the server. It replaces the policy with the same pattern and namespace. The server puts a
new policy before the first policy that matches all of its keys, so that it takes effect. Policies made through the API
come before those of the configuration file.

Settings: preset, durability, shards, max-shards, single, spread, cool-down, timing, interval, stale, partial. They
override those of the preset. The pattern comes first, and can't begin with the name of a setting and a "=".

Examples:

  quipu policy set 'likes:*' preset=likes
  quipu policy set 'views:*' preset=views interval=10s
  quipu policy set 'stock:*' single=true durability=synced --namespace shop`
}

// Run sets.
func (c *policySetCmd) Run(ctx context.Context, out *output) error {
	if name, _, ok := strings.Cut(string(c.Pattern), "="); ok && isSetting(name) {
		return usage("the pattern is missing before %q: want PATTERN NAME=VALUE …, such as 'likes:*' preset=likes", string(c.Pattern))
	}
	settings := map[string]string{"pattern": string(c.Pattern)}
	if c.Namespace != "" {
		settings["namespace"] = string(c.Namespace)
	}
	for _, s := range c.Settings {
		name, value, ok := strings.Cut(s, "=")
		if !ok {
			return usage("%q: want NAME=VALUE, such as preset=likes", s)
		}
		if _, twice := settings[name]; twice || name == "namespace" {
			return usage("%s is given twice, or can't be set here", name)
		}
		if err := checkSetting(name); err != nil {
			return usage("%w", err)
		}
		settings[name] = value
	}
	p, err := policy.Parse(settings)
	if err != nil {
		return usage("%w", err)
	}
	raw, err := c.change(ctx, func(all []placed) ([]policyJSON, error) {
		var made []policyJSON
		for _, other := range all {
			if other.Source == sourceAPI {
				made = append(made, other.Policy)
			}
		}
		at := slices.IndexFunc(made, func(other policyJSON) bool { return c.same(other.Policy) })
		if at >= 0 {
			made[at] = policyJSON{Policy: p}
			return made, nil
		}
		at = slices.IndexFunc(made, func(other policyJSON) bool { return covers(other.Policy, p) })
		if at < 0 {
			at = len(made)
		}
		return slices.Insert(made, at, policyJSON{Policy: p}), nil
	})
	if err != nil {
		return err
	}
	c.warn(out, raw)
	if c.JSON {
		return out.print("%s", raw)
	}
	return out.print("%s", p)
}

// warn says which policies of the server's reply can never match.
func (*policyServer) warn(out *output, reply []byte) {
	var all struct{ Policies []placed }
	if json.Unmarshal(reply, &all) != nil {
		return // an older or newer server: what was asked for is done
	}
	var policies []quipu.Policy
	for _, p := range all.Policies {
		policies = append(policies, p.Policy.Policy)
	}
	for _, text := range unmatched(policies, func(i int) string { return all.Policies[i].place() + "," }) {
		out.hint(text)
	}
}

// settingNames returns the names that settings of policies have.
func settingNames() []string {
	names := []string{"preset"}
	for _, s := range (quipu.Policy{}).Settings() {
		names = append(names, s.Name)
	}
	return names
}

// isSetting reports whether a setting of policies has that name.
func isSetting(name string) bool { return slices.Contains(settingNames(), name) }

// checkSetting returns an error if a name is nearly that of a setting; of others
// ParsePolicy says what there is.
func checkSetting(name string) error {
	if near := didYouMean(name, settingNames()); near != "" && !isSetting(name) {
		return fmt.Errorf("unknown setting %q of a policy%s", name, near)
	}
	return nil
}

// unmatched says which policies can never match a key, because one before matches
// all of their keys. Place says where each stands.
func unmatched(policies []quipu.Policy, place func(i int) string) (texts []string) {
	for i, p := range policies {
		first := slices.IndexFunc(policies, func(other quipu.Policy) bool { return covers(other, p) })
		if first < i {
			texts = append(texts, fmt.Sprintf("%s can never match: policy %d matches all of its keys: %s, %s", place(i), first, p, policies[first]))
		}
	}
	return texts
}

// covers reports whether a names every key that b names.
func covers(a, b quipu.Policy) bool {
	prefix, open := strings.CutSuffix(b.Pattern, "*")
	return a.Names(b.Namespace, prefix) && (!open || strings.HasSuffix(a.Pattern, "*"))
}

type policyRmCmd struct {
	policyNamed `embed:""`
}

// Help is shown by --help.
func (*policyRmCmd) Help() string {
	return `To remove a policy of the configuration file, edit that file.

Example:

  quipu policy rm 'likes:*'`
}

// Run removes.
func (c *policyRmCmd) Run(ctx context.Context, out *output) error {
	raw, err := c.change(ctx, func(all []placed) ([]policyJSON, error) {
		made := []policyJSON{}
		found, inFile := false, false
		for _, p := range all {
			switch {
			case p.Source != sourceAPI:
				inFile = inFile || c.same(p.Policy.Policy)
			case c.same(p.Policy.Policy):
				found = true
			default:
				made = append(made, p.Policy)
			}
		}
		switch {
		case found:
			return made, nil
		case inFile:
			return nil, fmt.Errorf("the policy of %s is in the configuration file of the server: remove it there", printable(string(c.Pattern)))
		}
		return nil, c.absent(all)
	})
	if err != nil || c.JSON {
		return printRaw(out, raw, err)
	}
	return nil
}

// absent returns the error that there is no such policy. It names those of the
// same pattern elsewhere, since the namespace is easily forgotten.
func (c *policyRmCmd) absent(all []placed) error {
	err := fmt.Errorf("no policy for %s %s was made through the API", printable(string(c.Pattern)), namespaceOf(string(c.Namespace)))
	for _, p := range all {
		if p.Source == sourceAPI && p.Policy.Pattern == string(c.Pattern) {
			err = fmt.Errorf("%w; there is one %s", err, namespaceOf(p.Policy.Namespace))
		}
	}
	return err
}

// namespaceOf says which namespace a policy is for.
func namespaceOf(name string) string {
	if name == "" {
		return "in any namespace"
	}
	return "in namespace " + name
}

type policyLoadCmd struct {
	policyServer `embed:""`

	File string `arg:"" help:"YAML file with policies, such as one for --config or --policy-file."`
}

// Help is shown by --help.
func (*policyLoadCmd) Help() string {
	return `The command replaces all policies made through the API at once. If one in the file is wrong, nothing changes. The policies
survive restarts, and come before those of the server's configuration file. Other settings in the file are ignored.
Policies that can never match produce a warning. To remove all policies, load a file with "policies: []".

Example:

  quipu policy load policies.yaml`
}

// Run loads.
func (c *policyLoadCmd) Run(ctx context.Context, out *output) error {
	conf, err := policiesOf(out, c.File)
	if err != nil {
		return err
	}
	if !conf.rules { // more likely the wrong file or command than a wish to have none
		err := fmt.Errorf("%s has no policies, and nothing was changed: want a list named \"policies\"; to remove all policies, write \"policies: []\"", c.File)
		if conf.defines {
			err = fmt.Errorf("%w; quipu policy apply publishes definitions", err)
		}
		return err
	}
	made := []policyJSON{}
	for _, p := range conf.policies {
		made = append(made, policyJSON{Policy: p})
	}
	raw, err := c.change(ctx, func([]placed) ([]policyJSON, error) { return made, nil })
	if err != nil {
		return err
	}
	c.warn(out, raw)
	if conf.definitions != nil {
		out.hint("the file has " + countDefinitions(conf.definitions) + " too, which this command ignores: quipu policy apply publishes them")
	}
	if c.JSON {
		return out.print("%s", raw)
	}
	return out.print("%s", countPolicies(conf.policies))
}
