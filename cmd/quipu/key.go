package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

type keyCmd struct {
	Create keyCreateCmd `cmd:"" help:"Create a key and print it. It is shown only once."`
	List   keyListCmd   `cmd:"" help:"Print the keys: ids, names and grants."`
	Rotate keyRotateCmd `cmd:"" help:"Replace the secret of a key and print the new one. It is shown only once."`
	Revoke keyRevokeCmd `cmd:"" help:"Revoke a key: the server refuses it from then on."`
}

// keysPath is the path of the keys in the REST API.
const keysPath = "/api/v1/keys"

func keyPath(id word, rest string) string { return keysPath + "/" + url.PathEscape(string(id)) + rest }

// An apiKeyReply is a key, as the REST API writes it.
type apiKeyReply struct {
	ID, Key, Name, State, By string
	Grants                   []string
	ExpiresAt                *time.Time `json:"expires_at"`
	FormerUntil              *time.Time `json:"former_until"`
}

type keyCreateCmd struct {
	remote `embed:""`

	Name    word          `arg:"" help:"Name for logs and lists, such as the program or the person that uses the key."`
	Grants  []string      `arg:"" help:"Permissions of the key: GRANTS:NAMESPACE or GRANTS:NAMESPACE/PREFIX*. The grants are read, write, decide and admin, joined by +, or all. The namespace * stands for all namespaces."`
	Expires time.Duration `help:"Time until the key expires, such as 90d. The default is never." placeholder:"TIME"`

	Requests    int64 `help:"Requests per second that the key may send to each server. 0 applies the server's --quota-requests." placeholder:"N"`
	Writes      int64 `help:"Writes per second that the key may send." placeholder:"N"`
	Bytes       int64 `help:"Bytes per second that the key may send." placeholder:"N"`
	Connections int64 `help:"New connections per second that the key may open." placeholder:"N"`
}

// Help is shown by --help.
func (*keyCreateCmd) Help() string {
	return `The command prints the key to stdout, and everything else to stderr. The server keeps only a digest of the key, so it can't
show the key again. All servers that share a store accept the key within about a second.

A server without --api-key serves everyone until it has its first key. From then on it refuses callers without a key.
So the first key must have "admin:*".

Examples:

  quipu key create admin all:*
  quipu key create shop read+write+decide:shop
  quipu key create dashboard "read:*" --expires 90d
  quipu key create stock-writer "write:shop/stock:*" --writes 500`
}

// Run creates a key.
func (c *keyCreateCmd) Run(ctx context.Context, out *output) error {
	body := map[string]any{"name": c.Name, "grants": c.Grants}
	quota := map[string]int64{}
	for name, n := range map[string]int64{"requests": c.Requests, "writes": c.Writes, "bytes": c.Bytes, "connections": c.Connections} {
		if n != 0 {
			quota[name] = n
		}
	}
	if len(quota) > 0 {
		body["quota"] = quota
	}
	if c.Expires != 0 {
		body["expires"] = c.Expires.String()
	}
	var k apiKeyReply
	raw, err := c.call(ctx, request{method: http.MethodPost, path: keysPath, body: body}, &k)
	if err != nil {
		return err
	}
	return c.printKey(out, raw, &k)
}

// printKey prints a key that its server has just made.
func (r *remote) printKey(out *output, raw []byte, k *apiKeyReply) error {
	if r.JSON {
		return out.print("%s", raw)
	}
	out.hint(fmt.Sprintf("key %s (%s) is shown only once: %s", k.ID, k.Name, strings.Join(k.Grants, ", ")))
	if k.FormerUntil != nil {
		out.hint("the secret before this one is accepted until " + k.FormerUntil.UTC().Format(time.RFC3339))
	}
	return out.print("%s", k.Key)
}

type keyListCmd struct {
	remote `embed:""`
	All    bool `help:"Also print keys that were revoked or have expired."`
}

// Help is shown by --help.
func (*keyListCmd) Help() string {
	return `The command prints the keys that the caller may administer: id, state, expiry, name and grants. The keys of --api-key are
not in the store and are not listed.`
}

// Run prints the keys.
func (c *keyListCmd) Run(ctx context.Context, out *output) error {
	var list struct{ Keys []apiKeyReply }
	raw, err := c.call(ctx, request{method: http.MethodGet, path: keysPath}, &list)
	if err != nil {
		return err
	}
	if c.JSON {
		return out.print("%s", raw)
	}
	for _, k := range list.Keys {
		if k.State != "active" && !c.All {
			continue
		}
		expires := "never"
		if k.ExpiresAt != nil {
			expires = k.ExpiresAt.UTC().Format(time.RFC3339)
		}
		if err := out.print("%s\t%s\t%s\t%s\t%s", k.ID, k.State, expires, k.Name, strings.Join(k.Grants, " ")); err != nil {
			return err
		}
	}
	return nil
}

type keyRotateCmd struct {
	remote `embed:""`

	ID    word          `arg:"" name:"id" help:"Id of the key, as \"quipu key list\" prints it."`
	Grace time.Duration `help:"How long the old secret is still accepted, such as 1h." placeholder:"TIME"`
}

// Help is shown by --help.
func (*keyRotateCmd) Help() string {
	return `The name, the grants and the quota stay. Without --grace the server refuses the old secret at once, and closes the
connections that use it.

Example:

  quipu key rotate 3f9a1c2b7d04 --grace 24h`
}

// Run rotates a key.
func (c *keyRotateCmd) Run(ctx context.Context, out *output) error {
	body := map[string]any{}
	if c.Grace != 0 {
		body["grace"] = c.Grace.String()
	}
	var k apiKeyReply
	raw, err := c.call(ctx, request{method: http.MethodPost, path: keyPath(c.ID, "/rotate"), body: body}, &k)
	if err != nil {
		return err
	}
	return c.printKey(out, raw, &k)
}

type keyRevokeCmd struct {
	remote `embed:""`

	ID word `arg:"" name:"id" help:"Id of the key, as \"quipu key list\" prints it."`
}

// Help is shown by --help.
func (*keyRevokeCmd) Help() string {
	return `This server refuses the key at once. Other servers that share the store refuse it within about a second. They close the
connections that use it.`
}

// Run revokes a key.
func (c *keyRevokeCmd) Run(ctx context.Context, out *output) error {
	var k apiKeyReply
	raw, err := c.call(ctx, request{method: http.MethodDelete, path: keyPath(c.ID, "")}, &k)
	if err != nil {
		return err
	}
	if c.JSON {
		return out.print("%s", raw)
	}
	return nil
}

type auditCmd struct {
	remote `embed:""`
	Limit  int `help:"Maximum number of actions to print, the latest first." default:"100"`
}

// Help is shown by --help.
func (*auditCmd) Help() string {
	return `The command prints the latest actions since the server's start, at most 1000. The log of each server has all of them, as
lines with the message "audit".`
}

// Run prints acts.
func (c *auditCmd) Run(ctx context.Context, out *output) error {
	var list struct {
		Acts []struct {
			At                                time.Time
			Who, Remote, Act, Target, Outcome string
		}
	}
	q := request{method: http.MethodGet, path: "/api/v1/audit", query: url.Values{"limit": {strconv.Itoa(c.Limit)}}}
	raw, err := c.call(ctx, q, &list)
	if err != nil {
		return err
	}
	if c.JSON {
		return out.print("%s", raw)
	}
	for _, a := range list.Acts {
		if err := out.print("%s\t%s\t%s\t%s\t%s\t%s", a.At.Format(time.RFC3339), a.Who, a.Remote, a.Act, a.Target, a.Outcome); err != nil {
			return err
		}
	}
	return nil
}
