-- Reads a token. The time at which it was looked at is kept.
--
-- KEYS: meta, tokens.
-- ARGV: now, field.
--
-- Replies {version, now, token or ''}.

local m = redis.call('HMGET', KEYS[1], 'now', 'version')
local now = clock(ARGV[1], m[1])
redis.call('HSET', KEYS[1], 'now', int(now))
return {m[2] or '0', int(now), redis.call('HGET', KEYS[2], ARGV[2]) or ''}
