-- Counts the cells of some namespaces.
--
-- KEYS: head, indexes.
--
-- Replies {version, cells of each}.

local reply = fields(KEYS[1], 'version')
if not reply then return headless() end
for i = 2, #KEYS do
  reply[i] = int(redis.call('ZCARD', KEYS[i]))
end
return reply
