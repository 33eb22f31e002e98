package access

// This is the table: what each operation of each door needs. An operation that a door serves
// and that is not here fails the door's test.

func needs(scope Scope, g Grant) Need { return Need{Scope: scope, Grants: g} }

// either is a need on keys that any of the grants meets.
func either(g Grant) Need { return Need{Scope: OnKeys, Grants: g, Any: true} }

// quiet is a need of an administrator who only looks, and may do so all day.
func quiet(scope Scope, g Grant) Need { return Need{Scope: scope, Grants: g, Quiet: true} }

// rows gives several operations the same need.
func (n Needs) rows(need Need, operations ...string) {
	for _, o := range operations {
		n[o] = need
	}
}

// REST returns the operations of the REST door: a method and a path. Paths below a namespace
// stand for both forms, without /api/v1 and the namespace.
func REST() Needs {
	n := Needs{}
	n.rows(needs(OnNothing, 0), "GET /healthz", "GET /readyz", "GET /openapi.json", "GET page")
	n.rows(needs(OnKeys, Read),
		"GET counters/{key}", "GET counters/{key}/exact", "GET counters/{key}/range", "GET counters/{key}/by/{dimension}",
		"GET counters/{key}/ledger", "GET counters/{key}/live", "GET counters/{key}/top/{name}", "GET uniques/{key}", "GET sketches/{key}", "POST sketches/{key}/query", "POST read", "GET policies/explain",
		"GET reactions/{key}", "GET members/{key}")
	n.rows(needs(OnPrefix, Read), "GET counters", "GET sum", "GET range", "GET openmetrics")
	n.rows(needs(OnKeys, Write),
		"POST counters/{key}/increment", "POST counters/{key}/decrement", "PUT counters/{key}", "POST counters/{key}/reset",
		"DELETE counters/{key}", "POST counters/{key}/adjust", "POST counters/{key}/recount", "POST uniques/{key}",
		"PUT sketches/{key}", "POST sketches/{key}/items", "POST batch", "POST events",
		"POST tokens/{id}/settle", "POST tokens/{id}/undo")
	// What is merged is read, and its sum can be.
	n.rows(needs(OnKeys, Read|Write), "POST sketches/{key}/merge")
	// A token is its caller's own name for a write, and the answer is the receipt.
	n.rows(either(Read|Write), "GET tokens/{id}")
	n.rows(needs(OnKeys, Decide),
		"POST counters/{key}/reserve", "POST reservations/{id}/commit", "POST reservations/{id}/release", "POST reservations/{id}/extend",
		"PUT reactions/{key}/{user}", "DELETE reactions/{key}/{user}", "POST limits/{name}/allow")
	n.rows(either(Read|Decide),
		"GET reservations/{id}", "GET reservations", "GET reactions/{key}/{user}", "POST reactions/read", "GET limits/{name}/clients/{who}")
	// Whoever may ask a limit for a client may not give that client more.
	n.rows(needs(OnKeys, Admin), "DELETE limits/{name}/clients/{who}")
	// A list by key names the keys of all counters of a pattern.
	n.rows(needs(OnNamespace, Read), "GET definitions", "GET tops/{name}")
	n.rows(needs(OnNamespace, Admin), "PUT definitions", "DELETE subjects/{who}")
	n.rows(needs(OnServer, Read), "GET /metrics", "GET /api/v1/hot", "GET /api/v1/policies", "GET /api/v1/overview", "GET /api/v1/servers", "GET /api/v1/alerts", "GET live")
	n.rows(needs(OnServer, Admin), "PUT /api/v1/policies", "GET /api/v1/backup", "POST /api/v1/verify")
	n.rows(quiet(OnServer, Admin), "GET /api/v1/audit",
		"GET /debug/pprof/cmdline", "GET /debug/pprof/profile", "GET /debug/pprof/symbol", "GET /debug/pprof/trace", "GET /debug/pprof/{profile}")
	// The handlers look at the grants of the key that is made, changed or told.
	n.rows(quiet(OnSome, Admin), "GET /api/v1/keys")
	n.rows(needs(OnSome, Admin), "POST /api/v1/keys", "POST /api/v1/keys/{id}/rotate", "DELETE /api/v1/keys/{id}")
	n.rows(needs(OnNothing, 0), "POST /api/v1/session", "DELETE /api/v1/session")
	n.rows(needs(OnLogin, 0), "GET /api/v1/session")
	return n
}

// RPC returns the operations of the gRPC door: a service and a method.
func RPC() Needs {
	n := Needs{}
	n.rows(needs(OnNothing, 0), "grpc.health.v1.Health/Check", "grpc.health.v1.Health/List", "grpc.health.v1.Health/Watch")
	n.rows(needs(OnLogin, 0),
		"grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
	quipu := func(need Need, service string, methods ...string) {
		for _, m := range methods {
			n["quipu.v1."+service+"/"+m] = need
		}
	}
	quipu(needs(OnKeys, Read), "Quipu", "Get", "GetBatch", "By", "Uniques", "Ledger", "Top")
	// A Range may be of a prefix, and the Definitions those of one key: see the door's targets.
	quipu(needs(OnPrefix, Read), "Quipu", "List", "Sum", "Range")
	quipu(needs(OnKeys, Write), "Quipu", "Add", "AddBatch", "Set", "Reset", "Delete", "Adjust", "Undo", "Recount", "AddUniques", "Settle", "Write")
	quipu(either(Read|Write), "Quipu", "Lookup")
	quipu(needs(OnSome, Write), "Quipu", "Enlist")
	quipu(needs(OnKeys, Read), "Quipu", "Definitions")
	quipu(needs(OnNamespace, Admin), "Quipu", "Define", "Erase")
	quipu(needs(OnServer, Admin), "Quipu", "Verify", "Backup")
	quipu(needs(OnKeys, Decide), "Reactions", "React", "Unreact")
	quipu(either(Read|Decide), "Reactions", "Choice")
	quipu(needs(OnKeys, Read), "Reactions", "Counts", "Members")
	quipu(needs(OnKeys, Decide), "Reservations", "Reserve", "Commit", "Release", "Extend")
	quipu(either(Read|Decide), "Reservations", "Reservation", "Reservations")
	quipu(needs(OnKeys, Write), "Sketches", "MakeSketch", "AddItems")
	quipu(needs(OnKeys, Read), "Sketches", "AskItems", "Sketch")
	quipu(needs(OnKeys, Read|Write), "Sketches", "MergeSketches")
	quipu(needs(OnKeys, Decide), "Limits", "Allow")
	quipu(needs(OnKeys, Admin), "Limits", "ResetLimit")
	n.rows(needs(OnKeys, Decide), "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit")
	return n
}

// RESP returns the operations of the Redis door: commands, and subcommands as CLIENT|ID.
func RESP() Needs {
	n := Needs{}
	n.rows(needs(OnNothing, 0), "AUTH", "HELLO", "QUIT", "RESET")
	n.rows(needs(OnLogin, 0),
		"PING", "ECHO", "SELECT", "MULTI", "EXEC", "DISCARD", "UNWATCH", "TIME", "INFO", "ROLE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "PUBSUB", "PUBSUB|HELP", "FUNCTION|FLUSH",
		"CLIENT", "ACL", "CONFIG", "MEMORY", "OBJECT", "LATENCY", "SLOWLOG", "FUNCTION", // alone, these are wrong
		"CLIENT|ID", "CLIENT|INFO", "CLIENT|SETNAME", "CLIENT|GETNAME", "CLIENT|SETINFO", "CLIENT|NO-EVICT", "CLIENT|NO-TOUCH",
		"CLIENT|TRACKINGINFO", "CLIENT|CACHING", "CLIENT|GETREDIR", "CLIENT|REPLY", "CLIENT|MAINT_NOTIFICATIONS",
		"COMMAND", "COMMAND|COUNT", "COMMAND|LIST", "COMMAND|INFO", "COMMAND|DOCS", "COMMAND|GETKEYS", "COMMAND|GETKEYSANDFLAGS",
		"ACL|WHOAMI", "ACL|USERS", "ACL|LIST", "ACL|CAT")
	// What a script calls is looked at as if its session had sent it.
	n.rows(needs(OnLogin, 0), "EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO", "SCRIPT", "SCRIPT|LOAD", "SCRIPT|EXISTS", "SCRIPT|KILL", "SCRIPT|HELP")
	n.rows(needs(OnLogin, 0), "CLIENT|HELP", "ACL|HELP", "CONFIG|HELP", "MEMORY|HELP", "OBJECT|HELP", "LATENCY|HELP", "SLOWLOG|HELP", "FUNCTION|HELP", "COMMAND|HELP")
	// What a connection tracks it has read, unless it listens to prefixes.
	n.rows(needs(OnLogin, 0), "CLIENT|TRACKING")
	n.rows(needs(OnKeys, Read),
		"GET", "MGET", "STRLEN", "GETRANGE", "SUBSTR", "EXISTS", "TOUCH", "TYPE", "TTL", "PTTL", "EXPIRETIME", "PEXPIRETIME", "WATCH",
		"OBJECT|ENCODING", "OBJECT|FREQ", "OBJECT|IDLETIME", "OBJECT|REFCOUNT", "MEMORY|USAGE",
		"Q.GET", "Q.RANGE", "Q.BY", "Q.UNIQUE", "Q.TOP", "SCARD", "SMEMBERS", "SSCAN",
		"PFCOUNT", "BF.EXISTS", "BF.MEXISTS", "BF.INFO", "BF.CARD", "CMS.QUERY", "CMS.INFO", "TOPK.QUERY", "TOPK.COUNT", "TOPK.LIST", "TOPK.INFO",
		"HGET", "HMGET", "HGETALL", "HKEYS", "HVALS", "HLEN", "HEXISTS", "HSTRLEN",
		"ZSCORE", "ZMSCORE", "ZCARD", "ZRANK", "ZREVRANK", "ZCOUNT", "ZRANGE", "ZREVRANGE", "ZRANGEBYSCORE", "ZREVRANGEBYSCORE")
	n.rows(needs(OnPrefix, Read), "KEYS", "SCAN")
	n.rows(needs(OnNamespace, Read), "DBSIZE", "RANDOMKEY")
	// Channels are granted as keys of the same names are, in the namespace of the user.
	n.rows(needs(OnKeys, Read), "SUBSCRIBE", "PUBSUB|NUMSUB")
	n.rows(needs(OnPrefix, Read), "PSUBSCRIBE", "PUBSUB|CHANNELS")
	n.rows(needs(OnNamespace, Read), "PUBSUB|NUMPAT")
	n.rows(needs(OnKeys, Write), "PUBLISH")
	n.rows(needs(OnKeys, Write),
		"SETNX", "SETEX", "PSETEX", "MSET", "MSETNX", "INCR", "DECR", "INCRBY", "DECRBY", "INCREX", "APPEND", "SETRANGE", "INCRBYFLOAT",
		"DEL", "UNLINK", "EXPIRE", "PEXPIRE", "EXPIREAT", "PEXPIREAT", "PERSIST", "Q.ADD", "Q.SETTLE",
		"PFADD", "BF.RESERVE", "BF.ADD", "BF.MADD", "BF.INSERT", "CMS.INITBYDIM", "CMS.INITBYPROB", "CMS.INCRBY", "TOPK.RESERVE", "TOPK.ADD", "TOPK.INCRBY")
	// What these reply of what they change is what their callers make of it.
	n.rows(needs(OnKeys, Write), "HSET", "HMSET", "HSETNX", "HDEL", "HINCRBY", "HINCRBYFLOAT", "ZADD", "ZINCRBY", "ZREM", "ZREMRANGEBYSCORE", "ZREMRANGEBYRANK")
	// With GET, a SET reads too: see the door.
	n.rows(needs(OnKeys, Write), "SET")
	n.rows(needs(OnKeys, Read|Write), "GETSET", "GETDEL", "GETEX", "RENAME", "RENAMENX", "COPY", "PFMERGE", "CMS.MERGE", "ZPOPMIN", "ZPOPMAX")
	n.rows(either(Read|Write), "Q.LOOKUP")
	n.rows(needs(OnKeys, Decide), "Q.REACT", "Q.UNREACT", "SADD", "SREM", "Q.RESERVE", "Q.COMMIT", "Q.RELEASE", "Q.EXTEND", "Q.ALLOW", "CL.THROTTLE")
	n.rows(either(Read|Decide), "Q.REACTION", "SISMEMBER", "SMISMEMBER", "Q.RESERVATION", "Q.RESERVATIONS", "Q.PEEK")
	n.rows(needs(OnKeys, Admin), "Q.FORGET")
	n.rows(needs(OnNamespace, Admin), "FLUSHDB")
	// FLUSHALL is of all databases of a user, which are namespaces of their own.
	n.rows(needs(OnServer, Admin), "FLUSHALL")
	n.rows(needs(OnServer, Admin), "SCRIPT|FLUSH", "CLIENT|KILL", "CONFIG|SET", "CONFIG|RESETSTAT", "SLOWLOG|RESET", "LATENCY|RESET")
	n.rows(quiet(OnServer, Admin),
		"CLIENT|LIST", "CONFIG|GET", "MEMORY|STATS", "MEMORY|DOCTOR", "MEMORY|MALLOC-STATS",
		"SLOWLOG|GET", "SLOWLOG|LEN", "LATENCY|LATEST", "LATENCY|HISTORY", "LATENCY|DOCTOR", "LATENCY|HISTOGRAM")
	return n
}
