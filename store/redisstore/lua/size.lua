-- Counts the cells of a namespace.
--
-- KEYS: meta, index.
--
-- Replies {cells}.

return {int(redis.call('ZCARD', KEYS[2]))}
