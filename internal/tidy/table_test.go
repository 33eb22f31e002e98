package tidy

// A row says what a package may import besides the standard library, which is
// free to all but the pure. Packages of this module are written as they are
// below it ("./store"; the root is "."), and "/..." stands for everything
// below a path and the path itself.
type row struct {
	code  []string // imports of the package, and of its tests
	tests []string // further imports of its tests, besides testImports
	pure  bool     // no files, sockets or randomness of its own; see impureStd
}

// table has a row for each package, and may have it before the package comes.
// A row for a single file adds to the row of its package.
var table = map[string]row{
	// The library. It makes the default store, and knows of no other.
	".": {code: []string{
		"./call", "./definition", "./policy", "./store", "./internal/book", "./internal/books", "./internal/duration", "./internal/engine", "./internal/history", "./internal/hot", "./internal/ledger",
		"./internal/port", "./internal/session", "./internal/spread", "./internal/total", "./internal/view", "./internal/wide",
	}, tests: []string{"./internal/hold"}},
	// What a call says and answers, for the library and the client.
	"call": {code: []string{"./definition", "./store", "./internal/session"}, pure: true},
	// Limits before the handlers of other servers.
	"internal/envoypb":    {code: []string{"google.golang.org/grpc/...", "google.golang.org/protobuf/..."}},
	"ratelimit":           {code: []string{"./call", "./definition"}, tests: []string{".", "./store/memstore"}},
	"ratelimit/grpclimit": {code: []string{"./call", "./ratelimit", "google.golang.org/grpc/..."}, tests: []string{".", "./definition", "./store/memstore"}},
	"internal/session":    {code: []string{"./store"}, pure: true},
	// How counters are counted and read, as people write it.
	"policy": {code: []string{"./store", "./internal/duration", "./internal/hot"}, pure: true},
	// What is counted for each event, as people write it.
	"definition":     {code: []string{"./policy", "./store", "./internal/calendar", "./internal/duration", "./internal/limit"}, pure: true},
	"internal/draft": {code: []string{"./definition", "./store", "go.yaml.in/yaml/v3"}, pure: true},
	// The definitions of a namespace as a store keeps them, and what follows from them.
	"internal/book": {code: []string{"./definition", "./store", "./internal/calendar"}, pure: true},
	"internal/view": {code: []string{"./call", "./definition", "./store", "./internal/book", "./internal/calendar", "./internal/sketch", "./internal/wide"}, pure: true},
	// Lines of the ledger, and their bytes.
	"internal/ledger": {code: []string{"./call", "./store"}, pure: true},

	// The contract imports nobody: everybody imports it.
	"store": {pure: true},
	// What the contract decides, for all stores and for the model of the laws.
	"internal/decide": {code: []string{"./store", "./internal/limit", "./internal/sketch"}, pure: true},
	// What a batch comes to, for the stores in other processes.
	"internal/plan": {code: []string{"./store", "./internal/decide"}, tests: []string{"./store/memstore"}, pure: true},
	// The time of the stores that keep their own. It reads the machine's clocks.
	"internal/clock": {},
	// The laws are code, run from the tests of every store.
	"store/storetest": {code: []string{"./store", "./internal/decide", "./internal/hold", "./internal/limit", "./internal/sketch", "pgregory.net/rapid"}},

	// A store imports the contract and its own client library, and the engine
	// also its log. No store knows of another.
	"store/memstore": {code: []string{"./store", "./internal/clock", "./internal/decide"}},
	"store/pgstore": {
		code:  []string{"./store", "./internal/clock", "./internal/decide", "./internal/plan", "github.com/jackc/pgx/v5/..."},
		tests: []string{".", "./definition", "./internal/hot", "./internal/node", "./internal/pgtest"},
	},
	"store/redisstore": {
		code:  []string{"./store", "./internal/clock", "./internal/decide", "./internal/plan", "github.com/redis/rueidis"},
		tests: []string{"./internal/load/redisproc", "./internal/node"},
	},
	"internal/engine": {code: []string{
		"./store", "./internal/clock", "./internal/decide", "./internal/sketch", "./internal/wal",
		"github.com/cockroachdb/pebble/v2/...", "github.com/zeebo/xxh3",
	}},
	// What lays counters out over the cells of whichever store it is given.
	"internal/spread": {code: []string{"./store", "./internal/hot"}, tests: []string{"./store/memstore", "./store/storetest", "go.uber.org/goleak"}},
	// Totals kept for readers of whichever store.
	"internal/total": {
		code:  []string{"./policy", "./store", "./internal/hot", "./internal/rollup", "./internal/spread"},
		tests: []string{".", "./store/memstore", "./store/storetest", "go.uber.org/goleak"},
	},
	// What counters were, as the parts in a store tell.
	"internal/history": {
		code: []string{
			"./call", "./definition", "./store", "./internal/book", "./internal/books", "./internal/calendar", "./internal/hold", "./internal/ledger", "./internal/sketch", "./internal/view", "./internal/wide",
		},
	},
	// What lets go of parts that are not kept any more.
	"internal/retention": {code: []string{"./store", "./internal/book", "./internal/books", "./internal/keyspace", "./internal/limit", "./internal/view"}, tests: []string{"./definition", "./internal/sketch"}},
	// Reservations as parts, and their ids.
	"internal/hold": {code: []string{"./store"}, pure: true},
	// What gives back reservations that have expired.
	"internal/due": {code: []string{"./store", "./internal/hold"}, tests: []string{".", "./store/memstore", "./store/storetest", "go.uber.org/goleak"}},
	// The books of namespaces in a store.
	"internal/books": {
		code:  []string{"./definition", "./store", "./internal/book", "./internal/calendar", "./internal/view"},
		tests: []string{"./store/memstore", "./store/storetest"},
	},
	// Values that are let into dimensions.
	"internal/admission": {code: []string{"./store"}, tests: []string{"./store/memstore", "./store/storetest"}},
	// All of it as the servers use it: the library is the product on top of this.
	"internal/port": {
		code: []string{
			"./call", "./definition", "./policy", "./store", "./internal/admission", "./internal/books", "./internal/calendar", "./internal/due", "./internal/hold", "./internal/hot", "./internal/keyspace", "./internal/limit", "./internal/ledger", "./internal/node", "./internal/retention", "./internal/rollup",
			"./internal/sketch", "./internal/spread", "./internal/total", "./internal/view",
		},
		tests: []string{".", "./definition", "./store/memstore", "./store/storetest"},
	},
	// A node is a store around whichever store it is given.
	"internal/node": {code: []string{"./store", "./internal/decide", "./internal/sketch", "./internal/trace"}},
	// Spans of calls, and what sends them to a collector. Only the command links the latter.
	"internal/trace": {},
	"internal/otlp":  {code: []string{"./internal/trace", "google.golang.org/protobuf/encoding/protowire"}, tests: []string{"./internal/otlp/otlptest", "google.golang.org/protobuf/..."}},
	// A collector for tests.
	"internal/otlp/otlptest": {code: []string{"google.golang.org/protobuf/..."}},
	// What makes one store hold what another holds.
	"internal/transfer": {code: []string{"./internal/books", "./store"}, tests: []string{".", "./definition"}},
	// What writes totals into tables of PostgreSQL.
	"internal/mirror": {
		code:  []string{"./store", "github.com/jackc/pgx/v5/..."},
		tests: []string{"./internal/pgtest"},
	},
	// The log takes from Pebble only the seam to the file system.
	"internal/wal": {code: []string{"./store", "github.com/cockroachdb/pebble/v2/vfs"}},

	// Arithmetic that a simulator can replay.
	"internal/hot":  {code: []string{"./store"}, pure: true},
	"internal/wide": {pure: true},
	// How people write lengths of time.
	"internal/duration": {pure: true},
	// How people write moments.
	"internal/instant": {code: []string{"./internal/duration"}, pure: true},
	"internal/limit":   {pure: true},
	// Lua scripts on strings and keys, as Redis runs them.
	"internal/script": {code: []string{"./internal/keyspace", "github.com/yuin/gopher-lua/..."}, tests: []string{"./internal/load/redisproc"}, pure: true},
	// Redis's commands on strings and keys, tested beside those of a real Redis.
	"internal/keyspace":   {pure: true, code: []string{"./call", "./store", "./internal/collection", "./internal/sketch"}, tests: []string{"./internal/load/redisproc"}},
	"internal/collection": {pure: true},
	"internal/replica":    {code: []string{"./store"}, pure: true},
	"internal/rollup":     {code: []string{"./store"}, pure: true},
	"internal/sketch":     {code: []string{"github.com/zeebo/xxh3"}, tests: []string{"./internal/sketch/arrive"}, pure: true},
	// Many items for those who measure sketches.
	"internal/sketch/arrive": {pure: true},
	// Windows over time, and the time of places.
	"internal/calendar": {code: []string{"./internal/duration"}, pure: true},
	// Who has read which keys.
	"internal/track": {code: []string{"./store"}, pure: true},
	// What a counter needs, into a policy and its reasons.
	"internal/advise": {code: []string{".", "./policy", "./store"}, pure: true},

	// Who may do what: decided by rules, of principals that others have verified.
	"internal/access": {code: []string{"./store", "./internal/limit"}, pure: true},
	// Tokens, verified with the standard library alone, and where their keys come from.
	"internal/jwt":  {pure: true},
	"internal/jwks": {code: []string{"./internal/jwt"}, tests: []string{"go.uber.org/goleak"}},
	// The API keys of a store, kept there for all servers.
	"internal/keyring": {code: []string{"./store", "./internal/access"}, tests: []string{"./store/memstore", "./internal/pgtest", "./store/pgstore"}},

	// Doors decode, call the DB and encode. They share package server, which is
	// handed the doors it serves and imports none; they import no store, and
	// not each other.
	"internal/server": {
		code: []string{
			".", "./store", "./internal/access", "./internal/alert", "./internal/jwks", "./internal/jwt", "./internal/keyring", "./internal/port", "github.com/prometheus/client_golang/...", "github.com/prometheus/client_model/go", "google.golang.org/grpc/codes",
		},
		tests: []string{"golang.org/x/net/http2/..."},
	},
	"internal/server/resp": {
		code:  []string{".", "./call", "./definition", "./policy", "./store", "./internal/access", "./internal/duration", "./internal/instant", "./internal/keyspace", "./internal/port", "./internal/script", "./internal/server", "./internal/sketch", "./internal/track"},
		tests: []string{"./internal/hostile", "./internal/keyring", "./internal/load/redisproc", "./internal/session", "github.com/redis/rueidis"},
	},
	"internal/server/rest": {code: []string{".", "./call", "./definition", "./policy", "./ratelimit", "./store", "./internal/access", "./internal/alert", "./internal/draft", "./internal/duration", "./internal/instant", "./internal/keyring", "./internal/port", "./internal/server", "./internal/server/dash", "./internal/server/pulse", "./internal/server/roster", "./internal/trace"}},
	// What the overview of a server is made of, and the files of the page that shows it.
	"internal/server/pulse": {code: []string{"./deploy", "./internal/alert", "./internal/port", "./internal/server"}, tests: []string{"."}},
	// What the servers of one store say of themselves.
	"internal/server/roster": {code: []string{"./store", "./internal/server/pulse"}, tests: []string{".", "./internal/server", "./store/memstore"}},
	// What alerting rules say of one server, and the rules.
	"internal/alert":       {code: []string{"./internal/duration", "go.yaml.in/yaml/v3"}, pure: true},
	"deploy":               {},
	"internal/server/dash": {},
	// What arrives by UDP: lines of StatsD, which are read by a pure package.
	"internal/statsd":          {pure: true},
	"internal/server/datagram": {code: []string{".", "./call", "./definition", "./store", "./internal/statsd"}},
	"internal/server/rpc": {
		code: []string{
			".", "./call", "./definition", "./store", "./internal/access", "./internal/envoypb", "./internal/port", "./internal/server", "./internal/protocol", "./internal/trace", "./quipupb", "google.golang.org/grpc/...", "google.golang.org/protobuf/...",
		},
		tests: []string{"./internal/hostile", "./internal/keyring"},
	},

	// The protocol, and the library over it: the client knows nothing of the
	// server but what is in the protocol.
	"quipupb":           {code: []string{"google.golang.org/grpc/...", "google.golang.org/protobuf/..."}, tests: []string{"./call"}},
	"internal/protocol": {code: []string{"./call", "./definition", "./quipupb"}, pure: true},
	"client": {
		code:  []string{"./call", "./definition", "./store", "./internal/protocol", "./internal/trace", "./quipupb", "google.golang.org/grpc/..."},
		tests: []string{".", "./internal/server/...", "./store/memstore"},
	},

	// PostgreSQL servers, and our own, for tests and benchmarks.
	"internal/pgtest":  {},
	"internal/serving": {},

	// The laws of the product, and the tests that kill it.
	"internal/dbtest": {code: []string{".", "./call", "./definition", "./policy", "./store", "pgregory.net/rapid"}},
	"internal/crash":  {tests: []string{".", "./client", "./internal/load/redisproc", "./internal/pgtest", "./internal/serving"}},
	// One history under every layout, over every store.
	"internal/metamorph": {tests: []string{
		".", "./definition", "./policy", "./internal/engine", "./internal/hold", "./internal/hot", "./internal/load/redisproc", "./internal/node", "./internal/pgtest",
		"./internal/spread", "./store/pgstore", "./store/redisstore",
	}},

	// The load generator speaks to servers from outside, and draws what it saw.
	"internal/load":           {code: []string{"./internal/load/...", "github.com/HdrHistogram/hdrhistogram-go"}},
	"internal/load/chart":     {},
	"internal/load/proc":      {},
	"internal/load/redisproc": {},
	// What the demo does to a server, from outside.
	"internal/demo": {},
	// Redis's own tests, run against the built binary.
	"internal/redissuite": {code: []string{"./internal/load/redisproc", "./internal/serving"}},

	// The limits of the machine.
	"internal/memory": {},

	// What shells and man(1) are told about the commands and flags that there are.
	"internal/completion": {code: []string{"github.com/alecthomas/kong"}, pure: true},
	"internal/manual":     {code: []string{"github.com/alecthomas/kong"}, pure: true},

	// Attackers know a server as its clients do: from outside.
	"internal/hostile": {code: []string{"golang.org/x/net/http2/..."}},

	"internal/tidy": {},

	// What people's own programs might be: they import what those can.
	"examples":             {tests: []string{".", "./internal/server/rpc"}},
	"examples/api":         {code: []string{".", "./definition", "./ratelimit"}},
	"examples/flashsale":   {code: []string{".", "./client"}},
	"examples/leaderboard": {code: []string{".", "./call", "./definition"}},
	"examples/likes":       {code: []string{".", "./definition"}},
	"examples/llmquota":    {code: []string{".", "./definition"}},
	"examples/views":       {code: []string{".", "./definition"}},

	// The command wires everything. Offline commands read the log and the
	// engine's files; only backend.go names every store.
	"cmd/quipu": {
		code: []string{
			".", "./call", "./definition", "./policy", "./store", "./internal/access", "./internal/jwks", "./internal/jwt", "./internal/keyring", "./internal/port", "./internal/advise", "./internal/completion", "./internal/demo", "./internal/draft", "./internal/duration", "./internal/engine", "./internal/instant", "./internal/load/...", "./internal/manual",
			"./internal/memory", "./internal/mirror", "./internal/otlp", "./internal/server/...", "./internal/trace",
			"./internal/hot", "./internal/spread", "./internal/transfer", "./internal/wal",
			"github.com/alecthomas/kong", "go.yaml.in/yaml/v3",
		},
		tests: []string{"./client", "./internal/hostile", "./internal/keyspace", "./internal/otlp/otlptest", "./internal/pgtest", "github.com/jackc/pgx/v5", "google.golang.org/grpc/..."},
	},
	"cmd/quipu/backend.go": {code: []string{
		"./internal/node", "./store/memstore", "./store/pgstore", "./store/redisstore",
	}},
	"cmd/quipu/backend_test.go": {code: []string{"./internal/node", "./internal/pgtest", "./store/redisstore"}},
	// PostgreSQL is the one store whose schema is brought up to date by itself.
	"cmd/quipu/migrate.go": {code: []string{"./store/pgstore"}},
}

// links says which third parties a package may link, by its own imports and by
// those of the packages it imports. It is for packages that other people's
// programs import: what these link, such a program carries.
var links = map[string][]string{
	"client": {"google.golang.org/grpc/...", "google.golang.org/protobuf/..."},
	"store":  {},
}

// testImports are what every test may import.
var testImports = []string{
	"./store", "./store/memstore", "./store/storetest", "./internal/dbtest",
	"github.com/cockroachdb/pebble/v2/vfs/...", // file systems that crash and fail
	"go.uber.org/goleak",
	"pgregory.net/rapid",
}

// impureStd is the part of the standard library that pure packages do
// without, and why. The linter keeps them from the clock: package time itself
// they need for durations.
var impureStd = map[string]string{
	"crypto/rand":   "randomness is passed in",
	"math/rand/...": "randomness is passed in",
	"net/...":       "others own the sockets",
	"os/...":        "bytes in, bytes out",
	"syscall":       "bytes in, bytes out",
}
