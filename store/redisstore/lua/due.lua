-- Lists cells whose deadline has come.
--
-- KEYS: head, due.
-- ARGV: now, limit.
--
-- Replies {member, …}.

local m = fields(KEYS[1], 'now')
if not m then return headless() end
local now = clock(ARGV[1], m[1])
return redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', int(now), 'LIMIT', 0, ARGV[2])
