-- Reads parts of one partition at one moment. What is below a floor is not there.
--
-- KEYS: head, and for each drawer its contents.
-- ARGV: now, whether to write in any case, drawers; for each: the field of its floor, ''
-- if it has none, its epoch, parts, fields.
--
-- Replies {version, now, content, …}, in the order of the arguments; '' if not there.

local m = fields(KEYS[1], 'now', 'version')
if not m then return headless() end
local now = clock(ARGV[1], m[1])
local reply, i = {m[2], int(now)}, 4
for d = 1, tonumber(ARGV[3]) do
  local parts, gone = tonumber(ARGV[i + 2]), under(KEYS[1], ARGV[i], ARGV[i + 1])
  local found = gone and {} or columns(KEYS[d + 1], i + 3, parts)
  for p = 1, parts do reply[#reply + 1] = found[p] or '' end
  i = i + 3 + parts
end
if ARGV[2] == '1' then redis.call('HSET', KEYS[1], 'now', int(now)) end
return reply
