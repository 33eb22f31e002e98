-- Applies a batch of plain adds, if nothing stands in its way: all of them are
-- applied. Otherwise it changes nothing and says what does.
--
-- KEYS: meta, marks, names, and for each namespace values, stamps, index,
-- tokens, queue.
-- ARGV: as they are read below.
--
-- Replies {'applied', base, value, deadline, …}, with a value and a deadline for
-- each cell that is wanted, '' where there is none; {'mark', mark, floor, marks}
-- if the writer's mark is not the one before; or {'decide'} if somebody has to
-- look closer.

-- layout is the one in what a stamp has after its version, '' if that is none.
local function layout(text) return text and string.byte(text) == 108 and text or '' end

local meta, marks, names = KEYS[1], KEYS[2], KEYS[3]
local window, writer, prev, seq, digest, acked = tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local deltas = tonumber(ARGV[8])
local keys_max, tokens_max, names_max, marks_max =
  tonumber(ARGV[13]), tonumber(ARGV[14]), tonumber(ARGV[15]), tonumber(ARGV[16])
local first = 20 -- argument of the first namespace

local m = redis.call('HMGET', meta, 'now', 'floor', 'version', 'deltas', 'sum_high', 'sum_low', 'check_high', 'check_low')
local now = clock(ARGV[1], m[1])
local at = int(now)

if writer ~= '' then
  local mark, floor, count = redis.call('HGET', marks, writer), m[2] or '0', 0
  local is = mark and string.match(mark, '^%d+') or '0'
  if not mark then count = redis.call('HLEN', marks) end
  if is ~= prev or order(is, acked) < 0 or (not mark and (order(writer, floor) <= 0 or count >= marks_max)) then
    redis.call('HSET', meta, 'now', at)
    return {'mark', mark or '', floor, int(count)}
  end
end
if ARGV[17] ~= '' and (tonumber(ARGV[17]) < now - window or tonumber(ARGV[18]) >= now + window) then
  return {'decide'}
end

-- Check everything.
local spaces = {}
local i, key = first, 4
for _ = 1, tonumber(ARGV[19]) do
  local s = {name = ARGV[i], cells = tonumber(ARGV[i + 1]), wanted = tonumber(ARGV[i + 2]), tokens = tonumber(ARGV[i + 4])}
  local named = tonumber(ARGV[i + 3])
  s.at, s.key, s.fresh, s.extras = i + 5, key, {}, {}
  s.values, s.stamps = columns(KEYS[key], s.at, s.cells), columns(KEYS[key + 1], s.at, s.cells)
  for c = 1, s.cells do
    local stamp = s.stamps[c]
    local text = stamp and extra(stamp)
    -- The first ones must have the layout that is named; to the others any will do.
    if c <= named and layout(text) ~= ARGV[s.at + 3 * s.cells + c - 1] then return {'decide'} end
    if stamp then
      local n = tonumber(s.values[c])
      -- A quarter of the range away from its ends no add of a quarter can leave it.
      if n > 4.6e18 or n < -4.6e18 or (text and late(text, now)) then return {'decide'} end
      s.extras[c] = text
    else
      s.fresh[#s.fresh + 1] = '0'
      s.fresh[#s.fresh + 1] = ARGV[s.at + c - 1]
    end
  end
  if s.name ~= '' and (#s.fresh > 0 or s.tokens > 0) then
    if #s.fresh > 0 and redis.call('ZCARD', KEYS[key + 2]) + #s.fresh / 2 > keys_max then return {'decide'} end
    if s.tokens > 0 and redis.call('LLEN', KEYS[key + 4]) + s.tokens > tokens_max then return {'decide'} end
    s.new = redis.call('SISMEMBER', names, s.name) == 0
    -- Two new ones in one batch may be one too many.
    if s.new and redis.call('SCARD', names) + tonumber(ARGV[19]) > names_max then return {'decide'} end
  end
  s.token = s.at + 3 * s.cells + named
  for _, t in ipairs(columns(KEYS[key + 3], s.token, s.tokens)) do
    if t then return {'decide'} end
  end
  spaces[#spaces + 1] = s
  i, key = s.token + 4 * s.tokens, key + 5
end

-- Write everything.
local base = tonumber(m[3] or '0')
local reply = {'applied', int(base)}
for _, s in ipairs(spaces) do
  local values, stamps, queue = KEYS[s.key], {}, KEYS[s.key + 4]
  for c = 1, s.cells do
    local field, text = ARGV[s.at + c - 1], s.extras[c]
    redis.call('HINCRBY', values, field, ARGV[s.at + s.cells + c - 1])
    stamps[2 * c - 1] = field
    stamps[2 * c] = int(base + tonumber(ARGV[s.at + 2 * s.cells + c - 1])) .. (text and ' ' .. text or '')
    if c <= s.wanted then
      reply[#reply + 1] = s.stamps[c] and s.values[c] or ''
      reply[#reply + 1] = layout(text) == '' and text or ''
    end
  end
  many('HSET', KEYS[s.key + 1], stamps)
  many('ZADD', KEYS[s.key + 2], s.fresh)
  if s.new then redis.call('SADD', names, s.name) end
  local remembered, fields = {}, {}
  for t = 1, s.tokens do
    local column = s.token + t - 1
    local was = s.values[tonumber(ARGV[column + s.tokens])]
    fields[t] = ARGV[column]
    remembered[2 * t - 1] = ARGV[column]
    remembered[2 * t] = at .. ' a ' .. int(base + tonumber(ARGV[column + 2 * s.tokens])) .. ' ' .. (was or '0') ..
      ' ' .. ARGV[column + 3 * s.tokens]
  end
  many('HSET', KEYS[s.key + 3], remembered)
  many('RPUSH', queue, fields)
  if s.tokens > 0 then forget(KEYS[s.key + 3], queue, now - 2 * window, s.tokens + 16) end
end
local sum_high, sum_low = sum(m[5], m[6], ARGV[9], ARGV[10])
local check_high, check_low = sum(m[7], m[8], ARGV[11], ARGV[12])
redis.call('HSET', meta, 'now', at, 'version', int(base + deltas), 'deltas', int(tonumber(m[4] or '0') + deltas),
  'sum_high', sum_high, 'sum_low', sum_low, 'check_high', check_high, 'check_low', check_low)
if writer ~= '' then
  redis.call('HSET', marks, writer, seq .. ' ' .. digest .. ' f' .. table.concat(reply, ' ', 2))
end
return reply
