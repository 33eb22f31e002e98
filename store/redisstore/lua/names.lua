-- Lists the namespaces that may have keys or tokens.
--
-- KEYS: meta, names.
--
-- Replies {name of each, ''}: never nothing.

local names = redis.call('SMEMBERS', KEYS[2])
names[#names + 1] = ''
return names
