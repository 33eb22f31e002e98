-- Reads a page of a drawer, in the order of its names or against it.
--
-- KEYS: head, contents, order.
-- ARGV: now, whether to write in any case, the field of the floor, '' if there is none,
-- epoch, from, to, limit, whether from is the last.
--
-- Replies {version, the last name of the page or '' if it is the end, name, content, …}.

local m = fields(KEYS[1], 'now', 'version')
if not m then return headless() end
local limit, found = tonumber(ARGV[7]), {}
if not under(KEYS[1], ARGV[3], ARGV[4]) then
  found = redis.call(ARGV[8] == '1' and 'ZREVRANGEBYLEX' or 'ZRANGEBYLEX', KEYS[3], ARGV[5], ARGV[6], 'LIMIT', 0, limit)
end
local reply = {m[2], #found == limit and found[#found] or ''}
for from = 1, #found, chunk do
  local to = math.min(from + chunk - 1, #found)
  for p, content in ipairs(redis.call('HMGET', KEYS[2], unpack(found, from, to))) do
    reply[#reply + 1] = found[from + p - 1]
    reply[#reply + 1] = content or ''
  end
end
if ARGV[2] == '1' then redis.call('HSET', KEYS[1], 'now', int(clock(ARGV[1], m[1]))) end
return reply
