-- Counts the cells of some namespaces.
--
-- KEYS: meta, indexes.
--
-- Replies {cells of each}.

local sizes = {}
for i = 2, #KEYS do
  sizes[i - 1] = int(redis.call('ZCARD', KEYS[i]))
end
return sizes
