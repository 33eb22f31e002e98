-- Writes a decision that was made on what load.lua read, if all of that is still
-- so. Otherwise it changes nothing.
--
-- KEYS: head, marks, names, due, for each namespace values, stamps, index, tokens,
-- queue; and if there are drawers, drawers, tally, and for each its contents and order.
-- ARGV: as they are read below. A loaded mark or stamp that is '' was not there.
--
-- Replies 1 if it wrote, 0 if something has changed.

local head, marks, names, due = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local horizon, base, creates, removes = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4] == '1', ARGV[5] == '1'
local writer, mark, new_mark, floor, new_floor = ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10]
local exact, known = ARGV[11] == '1', tonumber(ARGV[12])
local keys_max, tokens_max, names_max, marks_max =
  tonumber(ARGV[13]), tonumber(ARGV[14]), tonumber(ARGV[15]), tonumber(ARGV[16])
local refusals_max, fences, drawers = tonumber(ARGV[22]), tonumber(ARGV[23]), tonumber(ARGV[25])
local first = 26 -- argument of the first fence

local m = fields(head, 'now', 'floor', 'version', 'deltas', 'sum_high', 'sum_low', 'check_high', 'check_low', 'removed')
if not m then return headless() end
local now = clock(ARGV[1], m[1])
local at = int(now)

-- Check everything. The decision holds until the horizon, and for a cell that
-- was not there only if none was removed since: it could have been this one, at
-- a version above ours.
if now >= horizon or (creates and tonumber(m[9] or '0') > base) then return 0 end
if (writer ~= '' or new_floor ~= '') and (m[2] or '0') ~= floor then return 0 end
if writer ~= '' then
  if (redis.call('HGET', marks, writer) or '') ~= mark then return 0 end
  if mark == '' and redis.call('HLEN', marks) >= marks_max then return 0 end
end
local has = redis.call('SCARD', names)
if exact and has ~= known then return 0 end
for f, text in ipairs(columns(head, first, fences)) do
  if (text or '0') ~= ARGV[first + fences + f - 1] then return 0 end
end
local spaces = {}
local i, key = first + 3 * fences, 5
for _ = 1, tonumber(ARGV[24]) do
  local s = {key = key, name = ARGV[i]}
  local cells, fresh, tokens = tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])
  local checks, unknown = tonumber(ARGV[i + 4]), tonumber(ARGV[i + 5])
  s.puts, s.removes, s.remembers = tonumber(ARGV[i + 6]), tonumber(ARGV[i + 7]), tonumber(ARGV[i + 8])
  s.touches, s.refusals = tonumber(ARGV[i + 9]), tonumber(ARGV[i + 10])
  i = i + 11
  local stamps = columns(KEYS[key + 1], i, checks)
  for c = 1, checks do
    if (stamps[c] or '') ~= ARGV[i + checks + c - 1] then return 0 end
  end
  i = i + 2 * checks
  for _, t in ipairs(columns(KEYS[key + 3], i, unknown)) do
    if t then return 0 end
  end
  s.at = i + unknown
  s.touch = s.at + 4 * s.puts + s.removes + 2 * s.remembers
  s.stamps = columns(KEYS[key + 1], s.touch, s.touches)
  local values = columns(KEYS[key], s.touch, s.touches)
  for c = 1, s.touches do -- a deadline or a layout would have mattered
    if not s.stamps[c] or extra(s.stamps[c]) or far(values[c]) then return 0 end
  end
  if s.refusals > 0 and tonumber(redis.call('HGET', head, 'r:' .. s.name) or '0') + s.refusals > refusals_max then return 0 end
  if s.name ~= '' then
    local have, held = redis.call('ZCARD', KEYS[key + 2]), redis.call('LLEN', KEYS[key + 4])
    if exact and (have ~= cells or held ~= tokens) then return 0 end
    if fresh > 0 and not exact and have + fresh > keys_max then return 0 end
    if s.remembers > 0 and held + s.remembers > tokens_max then return 0 end
    if not exact and (fresh > 0 or s.remembers > 0) and redis.call('SISMEMBER', names, s.name) == 0 then
      has = has + 1
      if has > names_max then return 0 end
    end
  end
  spaces[#spaces + 1] = s
  i, key = s.touch + 3 * s.touches, key + 5
end
local trays, first_key = {}, key
key = key + 2
for d = 1, drawers do
  local checks = tonumber(ARGV[i + 6])
  local t = {key = key, i = i, puts = tonumber(ARGV[i + 7]), adds = tonumber(ARGV[i + 8]), removes = tonumber(ARGV[i + 9])}
  local at = i + 10
  for c, text in ipairs(columns(KEYS[key], at, checks)) do
    if (text or '') ~= ARGV[at + checks + c - 1] then return 0 end
  end
  t.at = at + 2 * checks
  t.add = t.at + 2 * t.puts
  for _, text in ipairs(columns(KEYS[key], t.add, t.adds)) do
    if text and far(text) then return 0 end
  end
  trays[d] = t
  i, key = t.add + 2 * t.adds + t.removes, key + 2
end

-- Write everything.
for _, s in ipairs(spaces) do
  local values, stamps, index = {}, {}, {}
  local function member(field) return #s.name .. ':' .. s.name .. field end
  for c = 1, s.puts do
    local field, ms = ARGV[s.at + c - 1], ARGV[s.at + 3 * s.puts + c - 1]
    values[2 * c - 1], values[2 * c] = field, ARGV[s.at + s.puts + c - 1]
    stamps[2 * c - 1], stamps[2 * c] = field, ARGV[s.at + 2 * s.puts + c - 1]
    index[2 * c - 1], index[2 * c] = '0', field
    if ms == '-' then
      redis.call('ZREM', due, member(field))
    elseif ms ~= '' then
      redis.call('ZADD', due, ms, member(field))
    end
  end
  many('HSET', KEYS[s.key], values)
  many('HSET', KEYS[s.key + 1], stamps)
  many('ZADD', KEYS[s.key + 2], index)
  local gone, late = {}, {}
  local from = s.at + 4 * s.puts
  for c = 1, s.removes do
    gone[c] = ARGV[from + c - 1]
    late[c] = member(gone[c])
  end
  many('HDEL', KEYS[s.key], gone)
  many('HDEL', KEYS[s.key + 1], gone)
  many('ZREM', KEYS[s.key + 2], gone)
  many('ZREM', due, late)
  local remembered, fields = {}, {}
  from = from + s.removes
  for t = 1, s.remembers do
    fields[t] = ARGV[from + t - 1]
    remembered[2 * t - 1], remembered[2 * t] = fields[t], at .. ' ' .. ARGV[from + s.remembers + t - 1]
  end
  many('HSET', KEYS[s.key + 3], remembered)
  many('RPUSH', KEYS[s.key + 4], fields)
  if s.refusals > 0 then redis.call('HINCRBY', head, 'r:' .. s.name, s.refusals) end
  for c = 1, s.touches do
    local field, version, is = ARGV[s.touch + c - 1], ARGV[s.touch + 2 * s.touches + c - 1], s.stamps[c]
    redis.call('HINCRBY', KEYS[s.key], field, ARGV[s.touch + s.touches + c - 1])
    if order(is, version) < 0 then redis.call('HSET', KEYS[s.key + 1], field, version) end
  end
  if s.name ~= '' then
    local empty = redis.call('ZCARD', KEYS[s.key + 2]) == 0 and redis.call('LLEN', KEYS[s.key + 4]) == 0
    redis.call(empty and 'SREM' or 'SADD', names, s.name)
  end
end
for _, t in ipairs(trays) do
  local contents, names, name = KEYS[t.key], KEYS[t.key + 1], ARGV[t.i]
  local puts, index, gone = {}, {}, {}
  for p = 1, t.puts do
    local field = ARGV[t.at + p - 1]
    puts[2 * p - 1], puts[2 * p] = field, ARGV[t.at + t.puts + p - 1]
    index[#index + 1], index[#index + 2] = '0', field
  end
  for a = 1, t.adds do
    local field = ARGV[t.add + a - 1]
    redis.call('HINCRBY', contents, field, ARGV[t.add + t.adds + a - 1])
    index[#index + 1], index[#index + 2] = '0', field
  end
  for r = 1, t.removes do gone[r] = ARGV[t.add + 2 * t.adds + r - 1] end
  many('HSET', contents, puts)
  many('HDEL', contents, gone)
  many('ZADD', names, index)
  many('ZREM', names, gone)
  if #index > 0 then
    redis.call('ZADD', KEYS[first_key], '0', name)
  elseif #gone > 0 and redis.call('EXISTS', contents) == 0 then
    redis.call('ZREM', KEYS[first_key], name)
  end
  if ARGV[t.i + 1] == '1' and #index + #gone > 0 then
    local tally = KEYS[first_key + 1]
    redis.call('HSET', tally, name, tallied(redis.call('HGET', tally, name), t.i + 2))
  end
end
for f = 1, fences do
  local is = ARGV[first + 2 * fences + f - 1]
  if is ~= '' then redis.call('HSET', head, ARGV[first + f - 1], is) end
end
if new_floor ~= '' then
  for _, w in ipairs(redis.call('HKEYS', marks)) do
    if order(w, new_floor) <= 0 then redis.call('HDEL', marks, w) end
  end
  redis.call('HSET', head, 'floor', new_floor)
end
if new_mark ~= '' then redis.call('HSET', marks, writer, new_mark) end
if removes then redis.call('HSET', head, 'removed', m[3]) end
local sum_high, sum_low = sum(m[5], m[6], ARGV[18], ARGV[19])
local check_high, check_low = sum(m[7], m[8], ARGV[20], ARGV[21])
redis.call('HSET', head, 'now', at, 'deltas', int(tonumber(m[4] or '0') + tonumber(ARGV[17])),
  'sum_high', sum_high, 'sum_low', sum_low, 'check_high', check_high, 'check_low', check_low)
return 1
