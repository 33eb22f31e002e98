-- Reads a whole partition at one moment.
--
-- KEYS: head, names, drawers, tally, for each namespace values, stamps, index, tokens,
-- queue, and for each drawer contents, order.
-- ARGV: how many namespaces, their names, and those of the drawers.
--
-- Replies {} if these are not all namespaces and drawers, else {{field of head, value, …},
-- {drawer, tally, …}, for each namespace {key, value, …}, stamps, index, tokens, queue
-- (their sizes), and for each drawer {name, content, …} and the size of its order}.

if not fields(KEYS[1], 'version') then return headless() end
local spaces, listed = tonumber(ARGV[1]), {{}, {}}
for i = 2, #ARGV do listed[i <= spaces + 1 and 1 or 2][ARGV[i]] = true end
for _, name in ipairs(redis.call('SMEMBERS', KEYS[2])) do
  if not listed[1][name] then return {} end
end
for _, name in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do
  if not listed[2][name] then return {} end
end
local reply = {redis.call('HGETALL', KEYS[1]), redis.call('HGETALL', KEYS[4])}
local key = 5
for _ = 1, spaces do
  reply[#reply + 1] = redis.call('HGETALL', KEYS[key])
  reply[#reply + 1] = redis.call('HLEN', KEYS[key + 1])
  reply[#reply + 1] = redis.call('ZCARD', KEYS[key + 2])
  reply[#reply + 1] = redis.call('HLEN', KEYS[key + 3])
  reply[#reply + 1] = redis.call('LLEN', KEYS[key + 4])
  key = key + 5
end
for at = key, #KEYS, 2 do
  reply[#reply + 1] = redis.call('HGETALL', KEYS[at])
  reply[#reply + 1] = redis.call('ZCARD', KEYS[at + 1])
end
return reply
