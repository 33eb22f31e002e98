package resp

import "slices"

// A key may hold a small hash or a small sorted set, which package keyspace works on: scripts of libraries keep
// their state so. See docs/redis.md.
func collectionCommands() []*command {
	const (
		reads = flagText | reads
		many  = flagText | flagRead
		makes = flagText | flagGrow | writes
	)
	hashes := []*command{
		{name: "HGET", arity: 3, flags: reads, keys: oneKey.used("RO access"), since: "2.0.0", about: "Returns the value of a field of a hash."},
		{name: "HMGET", arity: -3, flags: reads, keys: oneKey.used("RO access"), since: "2.0.0", about: "Returns the values of fields of a hash."},
		{name: "HGETALL", arity: 2, flags: many, keys: oneKey.used("RO access"), since: "2.0.0", about: "Returns the fields of a hash and their values."},
		{name: "HKEYS", arity: 2, flags: many, keys: oneKey.used("RO access"), since: "2.0.0", about: "Returns the fields of a hash."},
		{name: "HVALS", arity: 2, flags: many, keys: oneKey.used("RO access"), since: "2.0.0", about: "Returns the values of a hash."},
		{name: "HLEN", arity: 2, flags: reads, keys: oneKey.used("RO"), since: "2.0.0", about: "Returns how many fields a hash has."},
		{name: "HEXISTS", arity: 3, flags: reads, keys: oneKey.used("RO"), since: "2.0.0", about: "Returns whether a hash has a field."},
		{name: "HSTRLEN", arity: 3, flags: reads, keys: oneKey.used("RO"), since: "3.2.0", about: "Returns the length of the value of a field."},
		{name: "HSET", arity: -4, flags: makes, keys: oneKey.used("RW update"), since: "2.0.0", about: "Sets fields of a hash."},
		{name: "HMSET", arity: -4, flags: makes, keys: oneKey.used("RW update"), since: "2.0.0", about: "Sets fields of a hash."},
		{name: "HSETNX", arity: 4, flags: makes, keys: oneKey.used("RW insert"), since: "2.0.0", about: "Sets a field of a hash if it does not exist."},
		{name: "HDEL", arity: -3, flags: flagText | writes, keys: oneKey.used("RW delete"), since: "2.0.0", about: "Deletes fields of a hash."},
		{name: "HINCRBY", arity: 4, flags: makes, keys: oneKey.used("RW access update"), since: "2.0.0", about: "Adds to a field of a hash."},
		{name: "HINCRBYFLOAT", arity: 4, flags: makes, keys: oneKey.used("RW access update"), since: "2.6.0", about: "Adds a number with a fraction to a field of a hash."},
	}
	sorted := []*command{
		{name: "ZSCORE", arity: 3, flags: reads, keys: oneKey.used("RO access"), since: "1.2.0", about: "Returns the score of a member."},
		{name: "ZMSCORE", arity: -3, flags: reads, keys: oneKey.used("RO access"), since: "6.2.0", about: "Returns the scores of members."},
		{name: "ZCARD", arity: 2, flags: reads, keys: oneKey.used("RO"), since: "1.2.0", about: "Returns how many members a sorted set has."},
		{name: "ZRANK", arity: 3, flags: reads, keys: oneKey.used("RO access"), since: "2.0.0", about: "Returns how many members have lower scores."},
		{name: "ZREVRANK", arity: 3, flags: reads, keys: oneKey.used("RO access"), since: "2.0.0", about: "Returns how many members have higher scores."},
		{name: "ZCOUNT", arity: 4, flags: reads, keys: oneKey.used("RO access"), since: "2.0.0", about: "Returns how many members have scores in a range."},
		{name: "ZRANGE", arity: -4, flags: many, keys: oneKey.used("RO access"), since: "1.2.0", about: "Returns members by rank or by score."},
		{name: "ZREVRANGE", arity: -4, flags: many, keys: oneKey.used("RO access"), since: "1.2.0", about: "Returns members by rank, from the highest score on."},
		{name: "ZRANGEBYSCORE", arity: -4, flags: many, keys: oneKey.used("RO access"), since: "1.0.5", about: "Returns members by score."},
		{name: "ZREVRANGEBYSCORE", arity: -4, flags: many, keys: oneKey.used("RO access"), since: "2.2.0", about: "Returns members by score, from the highest on."},
		{name: "ZADD", arity: -4, flags: makes, keys: oneKey.used("RW update"), since: "1.2.0", about: "Gives members scores."},
		{name: "ZINCRBY", arity: 4, flags: makes, keys: oneKey.used("RW access update"), since: "1.2.0", about: "Adds to the score of a member."},
		{name: "ZREM", arity: -3, flags: flagText | writes, keys: oneKey.used("RW delete"), since: "1.2.0", about: "Takes members out of a sorted set."},
		{name: "ZREMRANGEBYSCORE", arity: 4, flags: flagText | flagWrite, keys: oneKey.used("RW delete"), since: "1.2.0", about: "Takes members out of a sorted set by score."},
		{name: "ZREMRANGEBYRANK", arity: 4, flags: flagText | flagWrite, keys: oneKey.used("RW delete"), since: "2.0.0", about: "Takes members out of a sorted set by rank."},
		{name: "ZPOPMIN", arity: -2, flags: flagText | writes, keys: oneKey.used("RW access delete"), since: "5.0.0", about: "Takes out the members with the lowest scores."},
		{name: "ZPOPMAX", arity: -2, flags: flagText | writes, keys: oneKey.used("RW access delete"), since: "5.0.0", about: "Takes out the members with the highest scores."},
	}
	all := slices.Concat(grouped("hash", hashes), grouped("sorted-set", sorted))
	for _, c := range all {
		c.slow = textCommand
	}
	return all
}
