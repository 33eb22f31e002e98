-- Lists drawers of a namespace that have parts, or had some.
--
-- KEYS: head, drawers.
-- ARGV: from, to.
--
-- Replies {version, name of each}.

local m = fields(KEYS[1], 'version')
if not m then return headless() end
local reply = redis.call('ZRANGEBYLEX', KEYS[2], ARGV[1], ARGV[2])
table.insert(reply, 1, m[1])
return reply
