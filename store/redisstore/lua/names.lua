-- Lists the namespaces that may have keys or tokens.
--
-- KEYS: head, names.
--
-- Replies {version, name of each}.

local m = fields(KEYS[1], 'version')
if not m then return headless() end
local reply = redis.call('SMEMBERS', KEYS[2])
table.insert(reply, 1, m[1])
return reply
