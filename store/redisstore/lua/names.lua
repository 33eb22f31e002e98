-- Lists the namespaces that may have keys or tokens.
--
-- KEYS: meta, names.
--
-- Replies {version, name of each}.

local reply = redis.call('SMEMBERS', KEYS[2])
table.insert(reply, 1, redis.call('HGET', KEYS[1], 'version') or '0')
return reply
