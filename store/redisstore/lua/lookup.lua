-- Reads a token. The time at which it was looked at is kept.
--
-- KEYS: meta, tokens.
-- ARGV: now, field.
--
-- Replies {now, token or ''}.

local now = clock(ARGV[1], redis.call('HGET', KEYS[1], 'now'))
redis.call('HSET', KEYS[1], 'now', int(now))
return {int(now), redis.call('HGET', KEYS[2], ARGV[2]) or ''}
