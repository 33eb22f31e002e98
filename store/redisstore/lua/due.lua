-- Lists cells whose deadline has come.
--
-- KEYS: meta, due.
-- ARGV: now, limit.
--
-- Replies {member, …}.

local now = clock(ARGV[1], redis.call('HGET', KEYS[1], 'now'))
return redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', int(now), 'LIMIT', 0, ARGV[2])
