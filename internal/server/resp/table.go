package resp

import (
	"cmp"
	"strings"

	"github.com/quipudb/quipu/internal/access"
)

// The keys of most commands.
var (
	oneKey    = keySpec{first: 1, last: 1, step: 1}
	twoKeys   = keySpec{first: 1, last: 2, step: 1}
	allKeys   = keySpec{first: 1, last: -1, step: 1}
	pairs     = keySpec{first: 1, last: -1, step: 2}
	secondKey = keySpec{first: 2, last: 2, step: 1} // after a subcommand, or a token
)

// newTable returns all commands.
func newTable() table {
	t, needs := table{}, access.RESP()
	for _, group := range [][]*command{stringCommands(), keyCommands(), transactionCommands(), connectionCommands(), serverCommands(), scriptCommands(), objectCommands(), accessCommands(), slowlogCommands(), latencyCommands(), ownCommands(), reactionCommands(), limitCommands(), reservationCommands(), sketchCommands(), collectionCommands(), pubsubCommands()} {
		for _, c := range group {
			t[c.name] = c
			c.lower = strings.ToLower(c.name)
			c.need, _ = needs.Of(c.name)
			if c.subs != nil {
				c.subs["HELP"] = &command{name: c.name + "|HELP", arity: 2, local: help(c), since: "5.0.0", syntax: "HELP", about: "Prints this help."}
			}
			for _, sub := range c.subs {
				sub.lower = strings.ToLower(sub.name)
				sub.group, sub.child = c.group, true
				sub.category = cmp.Or(sub.category, c.category)
				sub.need, _ = needs.Of(sub.name)
			}
		}
	}
	return t
}

const (
	reads  = flagRead | flagFast
	writes = flagWrite | flagFast
	adds   = flagWrite | flagFast | flagEntries | flagGrow
)

func stringCommands() []*command {
	commands := []*command{
		{name: "GET", arity: 2, flags: flagText | reads | flagRepeat, keys: oneKey.used("RO access"), plan: planGet, since: "1.0.0", about: "Returns the value of a counter."},
		{name: "SET", arity: -3, flags: flagText | flagGrow | flagWrite, keys: oneKey.used("RW access update variable_flags"), plan: planSet, since: "1.0.0", about: "Sets a counter, unless conditions are not met."},
		{name: "SETNX", arity: 3, flags: flagText | flagGrow | writes, keys: oneKey.used("OW insert"), plan: planSetNX, since: "1.0.0", about: "Sets a counter if it does not exist."},
		{name: "SETEX", arity: 4, flags: flagText | flagGrow | flagWrite, keys: oneKey.used("OW update"), plan: planSetEX("EX", "setex"), since: "2.0.0", about: "Sets a counter and its lifetime in seconds."},
		{name: "PSETEX", arity: 4, flags: flagText | flagGrow | flagWrite, keys: oneKey.used("OW update"), plan: planSetEX("PX", "psetex"), since: "2.6.0", about: "Sets a counter and its lifetime in milliseconds."},
		{name: "GETSET", arity: 3, flags: flagText | flagGrow | writes, keys: oneKey.used("RW access update"), plan: planGetSet, since: "1.0.0", about: "Sets a counter and returns what it was."},
		{name: "GETDEL", arity: 2, flags: flagText | writes, keys: oneKey.used("RW access delete"), plan: planGetDel, since: "6.2.0", about: "Deletes a counter and returns what it was."},
		{name: "GETEX", arity: -2, flags: flagText | writes, keys: oneKey.used("RW access update"), plan: planGetEx, since: "6.2.0", about: "Returns the value of a counter and changes its lifetime."},
		{name: "MGET", arity: -2, flags: flagText | reads, keys: allKeys.used("RO access"), plan: planMGet, since: "1.0.0", about: "Returns the values of counters."},
		{name: "MSET", arity: -3, flags: flagText | flagGrow | flagWrite | flagAtomic, keys: pairs.used("OW update"), plan: planMSet, slow: mset, since: "1.0.1", about: "Sets counters in one step."},
		{name: "MSETNX", arity: -3, flags: flagText | flagGrow | flagWrite, keys: pairs.used("OW insert"), slow: msetnx, since: "1.0.1", about: "Sets counters in one step if none of them exists."},
		{name: "INCR", arity: 2, flags: adds | flagRepeat, keys: oneKey.used("RW access update"), plan: planAdd(1), since: "1.0.0", about: "Adds one to a counter."},
		{name: "DECR", arity: 2, flags: adds | flagRepeat, keys: oneKey.used("RW access update"), plan: planAdd(-1), since: "1.0.0", about: "Subtracts one from a counter."},
		{name: "INCRBY", arity: 3, flags: adds | flagRepeat, keys: oneKey.used("RW access update"), plan: planAddBy(1), since: "1.0.0", about: "Adds to a counter."},
		{name: "DECRBY", arity: 3, flags: adds | flagRepeat, keys: oneKey.used("RW access update"), plan: planAddBy(-1), since: "1.0.0", about: "Subtracts from a counter."},
		{name: "INCREX", arity: -2, flags: flagGrow | writes, keys: oneKey.used("RW access update"), plan: planIncrEx, since: "8.8.0", about: "Adds to a counter within bounds and sets its lifetime."},
		{name: "STRLEN", arity: 2, flags: flagText | reads, keys: oneKey.used("RO"), plan: planStrLen, since: "2.2.0", about: "Returns the length of a value."},
		{name: "APPEND", arity: 3, flags: flagText | flagGrow | writes, keys: oneKey.used("RW insert"), slow: textCommand, since: "2.0.0", about: "Appends to a value."},
		{name: "GETRANGE", arity: 4, flags: flagText | flagRead, keys: oneKey.used("RO access"), slow: textCommand, since: "2.4.0", about: "Returns a part of a value."},
		{name: "SUBSTR", arity: 4, flags: flagText | flagRead, keys: oneKey.used("RO access"), slow: textCommand, since: "1.0.0", about: "Returns a part of a value."},
		{name: "SETRANGE", arity: 4, flags: flagText | flagGrow | flagWrite, keys: oneKey.used("RW update"), slow: textCommand, since: "2.2.0", about: "Replaces a part of a value."},
		{name: "INCRBYFLOAT", arity: 3, flags: flagText | flagGrow | writes, keys: oneKey.used("RW access update"), slow: textCommand, since: "2.6.0", about: "Adds a number with a fraction to a value."},
	}
	return grouped("string", commands)
}

func keyCommands() []*command {
	commands := []*command{
		{name: "DEL", arity: -2, flags: flagText | flagWrite | flagAtomic, keys: allKeys.used("RM delete"), plan: planDelete, slow: del, since: "1.0.0", about: "Deletes counters."},
		{name: "UNLINK", arity: -2, flags: flagText | writes | flagAtomic, keys: allKeys.used("RM delete"), plan: planDelete, slow: del, since: "4.0.0", about: "Deletes counters."},
		{name: "EXISTS", arity: -2, flags: reads, keys: allKeys.used("RO"), plan: planExists, since: "1.0.0", about: "Returns how many of the counters exist."},
		{name: "TOUCH", arity: -2, flags: reads, keys: allKeys.used("RO"), plan: planExists, since: "3.2.1", about: "Returns how many of the counters exist."},
		{name: "TYPE", arity: 2, flags: flagText | reads, keys: oneKey.used("RO"), plan: planType, since: "1.0.0", about: "Returns the type of a key: string, hash, zset, set, that of a sketch, or none."},
		{name: "KEYS", arity: 2, flags: flagDangerous | flagRead | flagSweep, slow: keys, since: "1.0.0", about: "Returns all keys that match a pattern."},
		{name: "SCAN", arity: -2, flags: flagRead | flagSweep, slow: scan, since: "2.8.0", about: "Returns the keys a few at a time."},
		{name: "RANDOMKEY", arity: 1, flags: flagRead, slow: randomKey, since: "1.0.0", about: "Returns the key of some counter."},
		{name: "RENAME", arity: 3, flags: flagText | flagWrite, keys: twoKeys.used("RW access delete", "OW update"), slow: textCommand, since: "1.0.0", about: "Renames a counter."},
		{name: "RENAMENX", arity: 3, flags: flagText | writes, keys: twoKeys.used("RW access delete", "OW insert"), slow: textCommand, since: "1.0.0", about: "Renames a counter if the new name is free."},
		{name: "COPY", arity: -3, flags: flagText | flagGrow | flagWrite, keys: twoKeys.used("RO access", "OW update"), slow: copyCommand, since: "6.2.0", about: "Copies what a key holds to another key."},
		{name: "EXPIRE", arity: -3, flags: writes, keys: oneKey.used("RW update"), plan: planExpire(1000, false, "expire"), since: "1.0.0", about: "Sets the lifetime of a counter in seconds."},
		{name: "PEXPIRE", arity: -3, flags: writes, keys: oneKey.used("RW update"), plan: planExpire(1, false, "pexpire"), since: "2.6.0", about: "Sets the lifetime of a counter in milliseconds."},
		{name: "EXPIREAT", arity: -3, flags: writes, keys: oneKey.used("RW update"), plan: planExpire(1000, true, "expireat"), since: "1.2.0", about: "Sets when a counter expires, in Unix seconds."},
		{name: "PEXPIREAT", arity: -3, flags: writes, keys: oneKey.used("RW update"), plan: planExpire(1, true, "pexpireat"), since: "2.6.0", about: "Sets when a counter expires, in Unix milliseconds."},
		{name: "TTL", arity: 2, flags: reads, keys: oneKey.used("RO access"), plan: planTTL(1000, false), since: "1.0.0", about: "Returns how long a counter has to live, in seconds."},
		{name: "PTTL", arity: 2, flags: reads, keys: oneKey.used("RO access"), plan: planTTL(1, false), since: "2.6.0", about: "Returns how long a counter has to live, in milliseconds."},
		{name: "EXPIRETIME", arity: 2, flags: reads, keys: oneKey.used("RO access"), plan: planTTL(1000, true), since: "7.0.0", about: "Returns when a counter expires, in Unix seconds."},
		{name: "PEXPIRETIME", arity: 2, flags: reads, keys: oneKey.used("RO access"), plan: planTTL(1, true), since: "7.0.0", about: "Returns when a counter expires, in Unix milliseconds."},
		{name: "PERSIST", arity: 2, flags: writes, keys: oneKey.used("RW update"), plan: planPersist, since: "2.2.0", about: "Makes a counter live for ever."},
	}
	return grouped("generic", commands)
}

func transactionCommands() []*command {
	const control = flagFast | flagControl
	commands := []*command{
		{name: "MULTI", arity: 1, flags: control | flagInline, local: multi, since: "1.2.0", about: "Begins a transaction."},
		{name: "EXEC", arity: 1, flags: flagText | flagControl | flagEntries | flagAtomic, plan: planExec, slow: exec, since: "1.2.0", about: "Executes the commands of a transaction in one step."},
		{name: "DISCARD", arity: 1, flags: control | flagInline, local: discard, since: "2.0.0", about: "Ends a transaction without executing it."},
		{name: "WATCH", arity: -2, flags: control, keys: allKeys.used("RO"), slow: watch, since: "2.2.0", about: "Makes the next transaction depend on counters staying as they are."},
		{name: "UNWATCH", arity: 1, flags: flagFast | flagInline, local: unwatch, since: "2.2.0", about: "Forgets what was watched."},
	}
	return grouped("transactions", commands)
}

func connectionCommands() []*command {
	commands := []*command{
		{name: "PING", arity: -1, flags: flagFast | flagInline, local: ping, since: "1.0.0", about: "Returns PONG, or the message."},
		{name: "ECHO", arity: 2, flags: flagFast | flagInline, local: echo, since: "1.0.0", about: "Returns the message."},
		{name: "QUIT", arity: -1, flags: flagFast | flagControl | flagStranger, local: quit, since: "1.0.0", about: "Closes the connection."},
		{name: "RESET", arity: 1, flags: flagFast | flagControl | flagStranger, local: resetSession, since: "6.2.0", about: "Makes the connection as it was when it began."},
		{name: "SELECT", arity: 2, flags: flagFast | flagLone, local: selectDB, since: "1.0.0", about: "Selects a database: a namespace of the user."},
		{name: "AUTH", arity: -2, flags: flagFast | flagStranger | flagLone, local: auth, since: "1.0.0", about: "Shows an API key; the user is the namespace to work in."},
		{name: "HELLO", arity: -1, flags: flagFast | flagStranger | flagLone, local: hello, since: "6.0.0", about: "Chooses the protocol, and shows an API key."},
		{name: "CLIENT", arity: -2, since: "2.4.0", about: "Commands about connections.", subs: map[string]*command{
			"ID":                  {name: "CLIENT|ID", syntax: "ID", arity: 2, flags: flagInline, local: clientID, since: "5.0.0", about: "Returns the id of the connection."},
			"INFO":                {name: "CLIENT|INFO", syntax: "INFO", arity: 2, local: clientInfo, since: "6.2.0", about: "Describes the connection."},
			"LIST":                {name: "CLIENT|LIST", syntax: "LIST [TYPE NORMAL|MASTER|REPLICA|PUBSUB] [ID <id> ...]", arity: -2, flags: flagAdmin, local: clientList, since: "2.4.0", about: "Describes all connections."},
			"KILL":                {name: "CLIENT|KILL", syntax: "KILL <ip:port> | <option> <value> [<option> <value> ...]", arity: -3, flags: flagAdmin, local: clientKill, since: "2.4.0", about: "Closes connections."},
			"SETNAME":             {name: "CLIENT|SETNAME", syntax: "SETNAME <name>", arity: 3, flags: flagInline, local: clientSetName, since: "2.6.9", about: "Names the connection."},
			"GETNAME":             {name: "CLIENT|GETNAME", syntax: "GETNAME", arity: 2, flags: flagInline, local: clientGetName, since: "2.6.9", about: "Returns the name of the connection."},
			"SETINFO":             {name: "CLIENT|SETINFO", syntax: "SETINFO LIB-NAME|LIB-VER <value>", arity: 4, flags: flagInline, local: clientSetInfo, since: "7.2.0", about: "Says which library the client is."},
			"NO-EVICT":            {name: "CLIENT|NO-EVICT", syntax: "NO-EVICT ON|OFF", arity: 3, flags: flagAdmin | flagInline, local: clientSwitch(func(s *session, on bool) { s.noEvict = on }), since: "7.0.0", about: "Accepted, and changes nothing."},
			"NO-TOUCH":            {name: "CLIENT|NO-TOUCH", syntax: "NO-TOUCH ON|OFF", arity: 3, flags: flagInline, local: clientSwitch(func(s *session, on bool) { s.noTouch = on }), since: "7.2.0", about: "Accepted, and changes nothing."},
			"TRACKING":            {name: "CLIENT|TRACKING", syntax: "TRACKING ON|OFF [REDIRECT <id>] [BCAST] [PREFIX <prefix> ...] [OPTIN] [OPTOUT] [NOLOOP]", arity: -3, flags: flagLone, local: clientTracking, since: "6.0.0", about: "Tells the client of keys that it has read when they change."},
			"TRACKINGINFO":        {name: "CLIENT|TRACKINGINFO", syntax: "TRACKINGINFO", arity: 2, flags: flagInline, local: clientTrackingInfo, since: "6.2.0", about: "Returns how the connection tracks keys."},
			"CACHING":             {name: "CLIENT|CACHING", syntax: "CACHING YES|NO", arity: 3, flags: flagInline | flagLone, local: clientCaching, since: "6.0.0", about: "Has the next command be tracked, or not."},
			"GETREDIR":            {name: "CLIENT|GETREDIR", syntax: "GETREDIR", arity: 2, flags: flagInline, local: clientGetRedir, since: "6.0.0", about: "Returns the id of the connection that is told what this one tracks."},
			"REPLY":               {name: "CLIENT|REPLY", syntax: "REPLY ON|OFF|SKIP", arity: 3, flags: flagLone, local: clientReply, since: "3.2.0", about: "Turns replies on and off."},
			"MAINT_NOTIFICATIONS": {name: "CLIENT|MAINT_NOTIFICATIONS", syntax: "MAINT_NOTIFICATIONS ON|OFF", arity: -3, local: clientMaintenance, since: "8.0.0", about: "Accepted: there are no such notifications."},
		}},
	}
	return grouped("connection", commands)
}

func serverCommands() []*command {
	commands := []*command{
		{name: "COMMAND", arity: -1, category: "connection", local: commandAll, since: "2.8.13", about: "Describes the commands.", subs: map[string]*command{
			"COUNT":           {name: "COMMAND|COUNT", syntax: "COUNT", arity: 2, flags: flagInline, local: commandCount, since: "2.8.13", about: "Returns how many commands there are."},
			"LIST":            {name: "COMMAND|LIST", syntax: "LIST [FILTERBY ACLCAT|PATTERN|MODULE <value>]", arity: -2, local: commandList, since: "7.0.0", about: "Returns the names of the commands."},
			"INFO":            {name: "COMMAND|INFO", syntax: "INFO [<command> ...]", arity: -2, local: commandInfo, since: "2.8.13", about: "Describes some commands."},
			"DOCS":            {name: "COMMAND|DOCS", syntax: "DOCS [<command> ...]", arity: -2, local: commandDocs, since: "7.0.0", about: "Documents some commands."},
			"GETKEYSANDFLAGS": {name: "COMMAND|GETKEYSANDFLAGS", syntax: "GETKEYSANDFLAGS <command> <argument> ...", arity: -4, local: commandGetKeysAndFlags, since: "7.0.0", about: "Returns the keys among the arguments of a command, and what it does with them."},
			"GETKEYS":         {name: "COMMAND|GETKEYS", syntax: "GETKEYS <command> <argument> ...", arity: -4, local: commandGetKeys, since: "2.8.13", about: "Returns the keys among the arguments of a command."},
		}},
		{name: "INFO", arity: -1, flags: flagDangerous, slow: info, since: "1.0.0", about: "Returns what the server counts."},
		{name: "TIME", arity: 1, flags: flagFast | flagInline, local: serverTime, since: "2.6.0", about: "Returns the time of the server."},
		{name: "DBSIZE", arity: 1, category: "keyspace", flags: reads, slow: dbSize, since: "1.0.0", about: "Returns how many counters there are."},
		{name: "FLUSHALL", arity: -1, category: "keyspace", flags: flagDangerous | flagWrite | flagSweep, slow: flushAll, since: "1.0.0", about: "Deletes the counters of all databases of the user."},
		{name: "FLUSHDB", arity: -1, category: "keyspace", flags: flagDangerous | flagWrite | flagSweep, slow: flushDB, since: "1.0.0", about: "Deletes the counters of the selected database."},
		{name: "FUNCTION", arity: -2, category: "scripting", since: "7.0.0", about: "There are no functions.", subs: map[string]*command{
			"FLUSH": {name: "FUNCTION|FLUSH", syntax: "FLUSH [ASYNC|SYNC]", arity: -2, flags: flagWrite | flagInline, local: functionFlush, since: "7.0.0", about: "Deletes all functions, of which there are none."},
		}},
		{name: "CONFIG", arity: -2, since: "2.0.0", about: "Commands about settings.", subs: map[string]*command{
			"GET":       {name: "CONFIG|GET", syntax: "GET <pattern> ...", arity: -3, flags: flagAdmin, local: configGet, since: "2.0.0", about: "Returns settings."},
			"SET":       {name: "CONFIG|SET", syntax: "SET <name> <value> ...", arity: -4, flags: flagAdmin, local: configSet, since: "2.0.0", about: "Changes settings."},
			"RESETSTAT": {name: "CONFIG|RESETSTAT", syntax: "RESETSTAT", arity: 2, flags: flagAdmin, local: configResetStat, since: "2.0.0", about: "Forgets what INFO commandstats tells."},
		}},
	}
	return grouped("server", commands)
}

func ownCommands() []*command {
	commands := []*command{
		{name: "Q.ADD", arity: -3, flags: adds | flagToken, keys: oneKey.used("RW access update"), plan: planQAdd, since: "1.0.0", about: "Adds to a counter, once for a token."},
		{name: "Q.GET", arity: -2, flags: reads, keys: oneKey.used("RO access"), slow: qGet, since: "1.0.0", about: "Returns the value of a counter and what it is worth."},
		{name: "Q.RANGE", arity: -4, flags: flagRead, keys: oneKey.used("RO access"), slow: qRange, since: "1.0.0", about: "Returns what was counted in a range of time, by windows."},
		{name: "Q.BY", arity: -3, flags: flagRead, keys: oneKey.used("RO access"), slow: qBy, since: "1.0.0", about: "Returns what was counted for each value of a dimension."},
		{name: "Q.UNIQUE", arity: -2, flags: flagRead, keys: oneKey.used("RO access"), slow: qUnique, since: "1.0.0", about: "Returns how many different users a counter had."},
		{name: "Q.TOP", arity: -2, flags: flagRead, slow: qTop, since: "1.0.0", about: "Returns what came most often, of a top list."},
		{name: "Q.LOOKUP", arity: 3, flags: reads, keys: secondKey.used("RO access"), slow: qLookup, since: "1.0.0", about: "Returns what is known of a token."},
		{name: "Q.SETTLE", arity: 3, flags: writes, keys: secondKey.used("RW update"), slow: qSettle, since: "1.0.0", about: "Decides a token for good."},
	}
	return grouped("counter", commands)
}

func grouped(group string, commands []*command) []*command {
	for _, c := range commands {
		c.group = group
	}
	return commands
}
