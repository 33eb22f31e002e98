-- Reads what a batch names, at one moment, for a decision that commit.lua makes
-- so if nothing has changed by then. It takes versions for the batch and drops
-- old tokens.
--
-- KEYS: head, marks, names, for each namespace values, stamps, index, tokens, queue,
-- and for each drawer its contents.
-- ARGV: now, window, writer, versions, whether to keep the time, the numbers of
-- namespaces, fences and drawers; for each namespace its name, cells, tokens, keys,
-- fields; the fields of the fences; for each drawer its parts, fields.
--
-- Replies {now in microseconds, base, mark, floor, marks, names, for each namespace known, cells,
-- tokens, refusals, {stamps}, {values}, {tokens}; {fences}, and for each drawer
-- {contents}}.

local head, marks, names, writer = KEYS[1], KEYS[2], KEYS[3], ARGV[3]
local window = tonumber(ARGV[2])
local m = fields(head, 'now', 'floor', 'version')
if not m then return headless() end
local now, us = clock(ARGV[1], m[1])
local base = m[3]
-- A server that takes no writes refuses both, although the second one changes
-- nothing if the partition has a time. It comes first: what has written already
-- is not refused for want of memory.
if ARGV[5] == '1' then
  redis.call('HSET', head, 'now', int(now), 'version', int(tonumber(base) + tonumber(ARGV[4])))
else
  redis.call('HSETNX', head, 'now', int(now))
end
local reply = {
  int(us), base, writer ~= '' and redis.call('HGET', marks, writer) or '', m[2] or '0',
  redis.call('HLEN', marks), redis.call('SCARD', names),
}
local i, key = 9, 4
for _ = 1, tonumber(ARGV[6]) do
  local name, cells, tokens = ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
  i = i + 3
  local before, queue = now - 2 * window, KEYS[key + 4]
  forget(head, name, KEYS[key + 3], queue, before, tokens + 64)
  local decided = columns(KEYS[key + 3], i + cells, tokens)
  for t = 1, tokens do
    if decided[t] and tonumber(string.match(decided[t], '^%d+')) <= before then -- its turn had not come
      drop(head, name, KEYS[key + 3], ARGV[i + cells + t - 1], decided[t])
      redis.call('LREM', queue, 1, ARGV[i + cells + t - 1])
      decided[t] = false
    end
  end
  for _, x in ipairs({
    redis.call('SISMEMBER', names, name), redis.call('ZCARD', KEYS[key + 2]), redis.call('LLEN', queue),
    redis.call('HGET', head, 'r:' .. name) or '0', columns(KEYS[key + 1], i, cells), columns(KEYS[key], i, cells), decided,
  }) do
    reply[#reply + 1] = x
  end
  i, key = i + cells + tokens, key + 5
end
local fences = tonumber(ARGV[7])
reply[#reply + 1] = columns(head, i, fences)
i = i + fences
for _ = 1, tonumber(ARGV[8]) do
  local parts = tonumber(ARGV[i])
  reply[#reply + 1] = columns(KEYS[key], i + 1, parts)
  i, key = i + 1 + parts, key + 1
end
return reply
