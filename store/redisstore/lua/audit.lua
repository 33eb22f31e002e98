-- Reads a whole partition at one moment.
--
-- KEYS: head, names, and for each namespace values, stamps, index, tokens, queue.
-- ARGV: the namespaces.
--
-- Replies {} if these are not all namespaces, else {deltas, sum high, sum low,
-- check high, check low, and for each namespace {key, value, …}, stamps, index,
-- tokens, queue (their sizes)}.

local reply = fields(KEYS[1], 'version', 'deltas', 'sum_high', 'sum_low', 'check_high', 'check_low')
if not reply then return headless() end
table.remove(reply, 1)
local listed = {}
for _, name in ipairs(ARGV) do listed[name] = true end
for _, name in ipairs(redis.call('SMEMBERS', KEYS[2])) do
  if not listed[name] then return {} end
end
for i = 1, 5 do reply[i] = reply[i] or '0' end
for key = 3, #KEYS, 5 do
  reply[#reply + 1] = redis.call('HGETALL', KEYS[key])
  reply[#reply + 1] = redis.call('HLEN', KEYS[key + 1])
  reply[#reply + 1] = redis.call('ZCARD', KEYS[key + 2])
  reply[#reply + 1] = redis.call('HLEN', KEYS[key + 3])
  reply[#reply + 1] = redis.call('LLEN', KEYS[key + 4])
end
return reply
