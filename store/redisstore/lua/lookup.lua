-- Reads a token. The time at which it was looked at is kept.
--
-- KEYS: head, tokens.
-- ARGV: now, field.
--
-- Replies {version, now, token or ''}.

local m = fields(KEYS[1], 'now', 'version')
if not m then return headless() end
local now = clock(ARGV[1], m[1])
redis.call('HSET', KEYS[1], 'now', int(now))
return {m[2], int(now), redis.call('HGET', KEYS[2], ARGV[2]) or ''}
