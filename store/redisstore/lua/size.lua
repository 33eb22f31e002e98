-- Counts the cells of some namespaces.
--
-- KEYS: meta, indexes.
--
-- Replies {version, cells of each}.

local reply = {redis.call('HGET', KEYS[1], 'version') or '0'}
for i = 2, #KEYS do
  reply[i] = int(redis.call('ZCARD', KEYS[i]))
end
return reply
