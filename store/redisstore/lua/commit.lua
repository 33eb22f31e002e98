-- Writes a decision that was made on what load.lua read, if all of that is still
-- so. Otherwise it changes nothing.
--
-- KEYS: head, marks, names, due, and for each namespace values, stamps, index,
-- tokens, queue.
-- ARGV: as they are read below. A loaded mark or stamp that is '' was not there.
--
-- Replies 1 if it wrote, 0 if something has changed.

local head, marks, names, due = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local horizon, base, creates, removes = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4] == '1', ARGV[5] == '1'
local writer, mark, new_mark, floor, new_floor = ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10]
local exact, known = ARGV[11] == '1', tonumber(ARGV[12])
local keys_max, tokens_max, names_max, marks_max =
  tonumber(ARGV[13]), tonumber(ARGV[14]), tonumber(ARGV[15]), tonumber(ARGV[16])
local first = 23 -- argument of the first namespace

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
local spaces = {}
local i, key = first, 5
for _ = 1, tonumber(ARGV[22]) do
  local s = {key = key, name = ARGV[i]}
  local cells, fresh, tokens = tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])
  local checks, unknown = tonumber(ARGV[i + 4]), tonumber(ARGV[i + 5])
  s.puts, s.removes, s.remembers = tonumber(ARGV[i + 6]), tonumber(ARGV[i + 7]), tonumber(ARGV[i + 8])
  i = i + 9
  local stamps = columns(KEYS[key + 1], i, checks)
  for c = 1, checks do
    if (stamps[c] or '') ~= ARGV[i + checks + c - 1] then return 0 end
  end
  i = i + 2 * checks
  for _, t in ipairs(columns(KEYS[key + 3], i, unknown)) do
    if t then return 0 end
  end
  s.at = i + unknown
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
  i, key = s.at + 4 * s.puts + s.removes + 2 * s.remembers, key + 5
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
  if s.name ~= '' then
    local empty = redis.call('ZCARD', KEYS[s.key + 2]) == 0 and redis.call('LLEN', KEYS[s.key + 4]) == 0
    redis.call(empty and 'SREM' or 'SADD', names, s.name)
  end
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
