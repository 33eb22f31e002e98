package main

import (
	"fmt"
	"math"
	"net"
	"net/url"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/alecthomas/kong"

	"github.com/quipudb/quipu/internal/duration"
	"github.com/quipudb/quipu/internal/server"
)

// cli is the grammar of the command line.
type cli struct {
	Version kong.VersionFlag `help:"Print the version and exit." env:"-"`

	Serve serveCmd `cmd:"" help:"Run the server."`
	Demo  demoCmd  `cmd:"" help:"Run a server with a demo load, and print the address of its dashboard."`

	Add          addCmd          `cmd:"" help:"Add to a counter and print its new value."`
	Get          getCmd          `cmd:"" help:"Print counters."`
	Set          setCmd          `cmd:"" help:"Set a counter and print its value."`
	List         listCmd         `cmd:"" help:"Print the counters whose keys start with a prefix."`
	Reset        resetCmd        `cmd:"" help:"Set a counter to 0 and print the value it had."`
	Delete       deleteCmd       `cmd:"" help:"Delete a counter and print the value it had."`
	Reserve      reserveCmd      `cmd:"" help:"Reserve an amount of a counter for a limited time, and print the id."`
	Commit       commitCmd       `cmd:"" help:"Take a reserved amount for good, and print the amount."`
	Release      releaseCmd      `cmd:"" help:"Give back a reserved amount, and print the amount."`
	Extend       extendCmd       `cmd:"" help:"Make a reservation expire later, and print when it does."`
	Reservations reservationsCmd `cmd:"" help:"Print the open reservations of a counter."`
	Range        rangeCmd        `cmd:"" help:"Draw a chart of a counter over time."`
	By           byCmd           `cmd:"" help:"Draw a chart of a counter by the values of a dimension."`
	Unique       uniqueCmd       `cmd:"" help:"Print how many distinct users a counter has."`
	Top          topCmd          `cmd:"" help:"Watch a top list: the most frequent items."`
	Sketch       sketchCmd       `cmd:"" help:"Make and query sketches: filters, frequencies and top lists."`
	Ledger       ledgerCmd       `cmd:"" help:"Print the ledger of a counter: the changes that were recorded."`
	Adjust       adjustCmd       `cmd:"" help:"Correct a counter, with a reason, and print its new value."`
	Undo         undoCmd         `cmd:"" help:"Undo a write by its token, and print the amount."`
	Recount      recountCmd      `cmd:"" help:"Repair a counter whose views do not add up to its total, and print what was wrong."`
	React        reactCmd        `cmd:"" help:"Record the reaction of a user, such as a like."`
	Unreact      unreactCmd      `cmd:"" help:"Remove the reaction of a user."`
	Reaction     reactionCmd     `cmd:"" help:"Print how many users chose each reaction, or the reaction of one user."`
	Members      membersCmd      `cmd:"" help:"Print the users who reacted to a counter."`
	Erase        eraseCmd        `cmd:"" help:"Remove a name from all ledgers and reactions."`
	Lookup       lookupCmd       `cmd:"" help:"Print whether a write was applied, by its token."`
	Allow        allowCmd        `cmd:"" help:"Check a rate limit for a client, and print how much is left."`
	Settle       settleCmd       `cmd:"" help:"Make a token final: if its write was not applied yet, it never will be."`

	Hot     hotCmd     `cmd:"" help:"Watch the counters that are written to the most."`
	Servers serversCmd `cmd:"" help:"Print all servers of a store, and how they fare."`
	Verify  verifyCmd  `cmd:"" help:"Check the counters against an independent record of all writes."`
	Backup  backupCmd  `cmd:"" help:"Back up everything into one file."`
	Restore restoreCmd `cmd:"" help:"Restore a backup into a new data directory."`
	Migrate migrateCmd `cmd:"" help:"Create or upgrade the schema of a PostgreSQL store."`
	Copy    copyCmd    `cmd:"" help:"Copy every counter from one store into another."`
	Mirror  mirrorCmd  `cmd:"" help:"Keep a PostgreSQL table up to date with the totals of a server."`
	Bench   benchCmd   `cmd:"" help:"Benchmark a Quipu or Redis server."`
	WAL     walCmd     `cmd:"" name:"wal" help:"Inspect the log of a data directory."`
	Conf    confCmd    `cmd:"" name:"config" help:"Check a configuration file."`
	Policy  policyCmd  `cmd:"" help:"Show and change the policies: how keys are counted."`
	Key     keyCmd     `cmd:"" help:"Create, list, rotate and revoke API keys."`
	Audit   auditCmd   `cmd:"" help:"Print the latest actions of administrators."`
	Advise  adviseCmd  `cmd:"" help:"Recommend a policy for a counter, with the reasons."`
	Health  healthCmd  `cmd:"" help:"Check whether a server is ready."`
	About   aboutCmd   `cmd:"" name:"version" help:"Print the version, the commit and the Go version."`

	Completion completionCmd `cmd:"" help:"Print a script that completes commands and flags in a shell."`
	Complete   completeCmd   `cmd:"" name:"__complete" hidden:""`
	Man        manCmd        `cmd:"" help:"Print a page of the manual."`
}

const description = `Counters that lose nothing and count nothing twice.

Every flag has an environment variable: QUIPU_ADDR for --addr. The flags of serve can also be set in a YAML file. A flag
overrides the environment, and the environment overrides the file.

Exit codes: 0 success; 1 the command failed or was refused, or verify found drift; 2 wrong usage; 3 the server can't be
reached or can't serve, and nothing changed; 4 the outcome of a write is unknown: run it again with the same --id.`

// newParser returns a parser of the grammar.
func newParser(out *output, conf *config, options ...kong.Option) (*kong.Kong, error) {
	return newParserOf(&cli{}, out, conf, options...)
}

// newParserOf returns a parser that fills a grammar.
func newParserOf(grammar *cli, out *output, conf *config, options ...kong.Option) (*kong.Kong, error) {
	options = append([]kong.Option{
		kong.Name("quipu"),
		kong.Description(description),
		kong.Writers(out.stdout, out.stderr),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true}),
		kong.Vars{"version": versionLine()},
		kong.Bind(out, conf),
		kong.KindMapper(reflect.Int, kong.MapperFunc(decodeInt)),
		kong.KindMapper(reflect.Int64, kong.MapperFunc(decodeInt)),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(decodeDuration)),
	}, options...)
	return kong.New(grammar, options...)
}

// escaped marks an argument that looks like a flag and is a number. It can't
// be in an argument that the system passes.
const escaped = "\x00"

// quotedEscape is the mark as it is in an error of the parser.
const quotedEscape = `\x00`

var negativeNumber = regexp.MustCompile(`^-[0-9][0-9.]*((ns|us|ms|s|m|h|d|w)[0-9.]*)*$`)

// escapeNumbers marks the negative numbers and durations among the arguments, so that
// "quipu add stock -3" needs no "--", nor "--from -24h" a "=". No flag of this command is a
// digit.
func escapeNumbers(args []string) []string {
	out := make([]string, len(args))
	for i, a := range args {
		if a == "--" {
			copy(out[i:], args[i:])
			break
		}
		if negativeNumber.MatchString(a) {
			a = escaped + a
		}
		out[i] = a
	}
	return out
}

// A word is text that may look like a negative number.
type word string

// Decode takes any text.
func (w *word) Decode(ctx *kong.DecodeContext) error {
	s, err := popText(ctx)
	*w = word(s)
	return err
}

// A number is an int64.
type number int64

// Decode takes an integer.
func (n *number) Decode(ctx *kong.DecodeContext) error {
	s, err := popText(ctx)
	if err != nil {
		return err
	}
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return fmt.Errorf("%q: want an integer, within 64 bits", s)
	}
	*n = number(v)
	return nil
}

// decodeInt takes an integer, negative ones too: a flag then says itself what is
// wrong with them.
func decodeInt(ctx *kong.DecodeContext, target reflect.Value) error {
	var n number
	if err := n.Decode(ctx); err != nil {
		return err
	}
	if target.OverflowInt(int64(n)) {
		return fmt.Errorf("%d is too large", n)
	}
	target.SetInt(int64(n))
	return nil
}

// decodeDuration takes a length of time, in days too.
func decodeDuration(ctx *kong.DecodeContext, target reflect.Value) error {
	t, err := ctx.Scan.PopValue("duration")
	if err != nil {
		return err
	}
	d, err := duration.Parse(strings.TrimPrefix(fmt.Sprint(t.Value), escaped))
	if err != nil {
		return fmt.Errorf("%q: %w", fmt.Sprint(t.Value), err)
	}
	target.SetInt(int64(d))
	return nil
}

// popText takes one argument as it is. The parser's own way would replace
// bytes that are not UTF-8, and so count under another key.
func popText(ctx *kong.DecodeContext) (string, error) {
	t, err := ctx.Scan.PopValue("text")
	if err != nil {
		return "", err
	}
	s := strings.TrimPrefix(fmt.Sprint(t.Value), escaped)
	if !utf8.ValidString(s) {
		return "", fmt.Errorf("%q is not UTF-8", s)
	}
	return s, nil
}

// apiKeys are the values of a flag that may be given more than once, each one
// key or several with commas between. An empty one is an error: it is more
// likely a variable that was not set than a wish to serve everyone.
type apiKeys []string

// Decode takes one value.
func (k *apiKeys) Decode(ctx *kong.DecodeContext) error {
	t, err := ctx.Scan.PopValue("key")
	if err != nil {
		return err
	}
	switch v := t.Value.(type) {
	case []any:
		for _, key := range v {
			*k = append(*k, fmt.Sprint(key))
		}
	default:
		*k = append(*k, strings.Split(fmt.Sprint(v), ",")...)
	}
	_, err = server.NewKeys(*k)
	return err
}

// An address is the URL of a server's REST door. HOST:PORT will do.
type address string

// UnmarshalText takes a URL or HOST:PORT.
func (a *address) UnmarshalText(text []byte) error {
	const want = "want HOST:PORT or a URL, such as 127.0.0.1:8080 or https://counters.example"
	s := string(text)
	if !strings.Contains(s, "://") {
		if _, port, err := net.SplitHostPort(s); err != nil || port == "" {
			return fmt.Errorf("%q: %s", text, want)
		}
		s = "http://" + s
	}
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("%q: %s", text, want)
	}
	*a = address(strings.TrimSuffix(s, "/"))
	return nil
}

// A size is a number of bytes, written such as 256MiB.
type size int64

// UnmarshalText takes bytes, or a number with a unit.
func (s *size) UnmarshalText(text []byte) error {
	digits := strings.TrimRight(string(text), "KMGTiBkb ")
	units := map[string]int64{
		"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
		"KB": 1e3, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
	}
	unit, known := units[strings.TrimSpace(string(text)[len(digits):])]
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || !known || n <= 0 || n > math.MaxInt64/unit {
		return fmt.Errorf("%q: want a size such as 256MiB or 1GB", text)
	}
	*s = size(n * unit)
	return nil
}
