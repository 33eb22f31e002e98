-- Reads cells of one partition at one moment. One that has expired is not there,
-- and then the partition's time is kept, so that it never is again.
--
-- KEYS: head, and for each namespace values and stamps.
-- ARGV: now, whether to write in any case, namespaces; for each: cells, keys.
--
-- Replies {version, now, stamp, value, …}, in the order of the arguments; '' if
-- not there.

local m = fields(KEYS[1], 'now', 'version')
if not m then return headless() end
local now = clock(ARGV[1], m[1])
local keep, reply = ARGV[2] == '1', {m[2], int(now)}
local i, key = 4, 2
for _ = 1, tonumber(ARGV[3]) do
  local cells = tonumber(ARGV[i])
  local values, stamps = columns(KEYS[key], i + 1, cells), columns(KEYS[key + 1], i + 1, cells)
  for c = 1, cells do
    local stamp, value = stamps[c] or '', values[c] or ''
    if over(stamp, now) then
      keep, stamp, value = true, '', ''
    end
    reply[#reply + 1] = stamp
    reply[#reply + 1] = value
  end
  i, key = i + 1 + cells, key + 2
end
if keep then redis.call('HSET', KEYS[1], 'now', int(now)) end
return reply
