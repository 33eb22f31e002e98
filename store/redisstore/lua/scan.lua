-- Reads a page of the index of a namespace, and the cells on it that have not
-- expired.
--
-- KEYS: head, values, stamps, index.
-- ARGV: now, whether to write in any case, from, to, limit.
--
-- Replies {version, the last key of the page or '' if it is the end, key, stamp,
-- value, …}.

local m = fields(KEYS[1], 'now', 'version')
if not m then return headless() end
local now = clock(ARGV[1], m[1])
local keep = ARGV[2] == '1'
local limit = tonumber(ARGV[5])
local found = redis.call('ZRANGEBYLEX', KEYS[4], ARGV[3], ARGV[4], 'LIMIT', 0, limit)
local reply = {m[2], #found == limit and found[#found] or ''}
for from = 1, #found, chunk do
  local to = math.min(from + chunk - 1, #found)
  local values = redis.call('HMGET', KEYS[2], unpack(found, from, to))
  local stamps = redis.call('HMGET', KEYS[3], unpack(found, from, to))
  for c = 1, #values do
    if stamps[c] and over(stamps[c], now) then
      keep = true
    elseif stamps[c] then
      reply[#reply + 1] = found[from + c - 1]
      reply[#reply + 1] = stamps[c]
      reply[#reply + 1] = values[c]
    end
  end
end
if keep then redis.call('HSET', KEYS[1], 'now', int(now)) end
return reply
