-- Applies batches of plain adds, each if nothing stands in its way: then all of its
-- adds are applied. Otherwise it changes nothing and says what does. The batches are of
-- different partitions.
--
-- KEYS: for each batch head, marks, names, and for each of its namespaces values,
-- stamps, index, tokens, queue.
-- ARGV: now, window, the limits of a partition for keys, tokens, namespaces and marks,
-- the number of batches; and for each what is read below.
--
-- Replies for each batch {'applied', 'base value deadline …'}, with a value and a
-- deadline for each cell that is wanted, '' where there is none; {'mark', mark, floor,
-- marks} if the writer's mark is not the one before; {'decide'} if somebody has to look
-- closer; or {'failed', why} if what is stored is not what should be.

-- exact is how many characters a number may have that Lua adds as exactly as Redis.
local exact = 15

local window, keys_max, tokens_max, names_max, marks_max =
  tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local given = ARGV[1]
if given == '' then given = clock('', '0') end

-- layout is the one in what a stamp has after its version, '' if that is none.
local function layout(text) return text and string.byte(text) == 108 and text or '' end

local find, format = string.find, string.format

-- check reads what the adds to a namespace meet. It returns nil if they can't be
-- applied blindly. Its keys are from key on, and its arguments from i on.
local function check(key, i, names, spaces, now)
  local cells, named, tokens, by = tonumber(ARGV[i + 1]), tonumber(ARGV[i + 3]), tonumber(ARGV[i + 4]), ARGV[i + 5]
  local at, extras, fresh = i + 8, {}, {}
  -- What is added to all cells, or a column of that; a column of the last delta to each,
  -- unless each has one, in their order; and a column of the layouts that the first ones
  -- must have, unless they must have none. To the others any will do.
  local sums = at + cells
  local lasts = by == '' and sums + cells or sums
  local layouts, token = lasts, lasts
  if ARGV[i + 6] == '1' then layouts, token = lasts + cells, lasts + cells else lasts = nil end
  if ARGV[i + 7] == '1' then token = layouts + named else layouts = nil end
  local values, stamps = columns(KEYS[key], at, cells), columns(KEYS[key + 1], at, cells)
  for c = 1, cells do
    local stamp, text = stamps[c], nil
    if stamp and find(stamp, ' ', 1, true) then text = extra(stamp) end
    if c <= named and (text or layouts) and layout(text) ~= (layouts and ARGV[layouts + c - 1] or '') then return nil end
    if stamp then
      local value = values[c]
      if far(value) then return nil end
      if text then
        if late(text, now) then return nil end
        extras[c] = text
      end
    else
      fresh[#fresh + 1] = '0'
      fresh[#fresh + 1] = ARGV[at + c - 1]
    end
  end
  local new = false
  if ARGV[i] ~= '' and (#fresh > 0 or tokens > 0) then
    if #fresh > 0 and redis.call('ZCARD', KEYS[key + 2]) + #fresh / 2 > keys_max then return nil end
    if tokens > 0 and redis.call('LLEN', KEYS[key + 4]) + tokens > tokens_max then return nil end
    new = redis.call('SISMEMBER', names, ARGV[i]) == 0
    -- Two new ones in one batch may be one too many.
    if new and redis.call('SCARD', names) + spaces > names_max then return nil end
  end
  for _, t in ipairs(columns(KEYS[key + 3], token, tokens)) do
    if t then return nil end
  end
  return {
    key = key, i = i, cells = cells, wanted = tonumber(ARGV[i + 2]), tokens = tokens, at = at, by = by, sums = sums, lasts = lasts,
    values = values, stamps = stamps, extras = extras, fresh = fresh, new = new, token = token, ends = token + 4 * tokens,
  }
end

-- write applies the adds to a namespace, and appends what is told of them.
local function write(s, head, names, base, now, told)
  local key, by, at, had, extras, were, wanted, lasts = s.key, s.by, s.at - 1, s.values, s.extras, s.stamps, s.wanted, s.lasts
  local short = by ~= '' and #by <= exact and tonumber(by) -- the same for all
  local values, stamps, v, n = {}, {}, 0, #told
  for c = 1, s.cells do
    local field, text, was = ARGV[at + c], extras[c], had[c] or '0'
    local more = short or by ~= '' and by or ARGV[s.sums + c - 1]
    if #was <= exact and (short or #more <= exact) then
      values[v + 1] = field
      values[v + 2] = format('%d', was + more)
      v = v + 2
    else
      redis.call('HINCRBY', KEYS[key], field, by ~= '' and by or more)
    end
    local stamp = format('%d', base + (lasts and ARGV[lasts + c - 1] or c))
    stamps[2 * c - 1] = field
    stamps[2 * c] = text and stamp .. ' ' .. text or stamp
    if c <= wanted then
      told[n + 1] = were[c] and was or ''
      told[n + 2] = text and layout(text) == '' and text or ''
      n = n + 2
    end
  end
  many('HSET', KEYS[key], values)
  many('HSET', KEYS[key + 1], stamps)
  many('ZADD', KEYS[key + 2], s.fresh)
  if s.new then redis.call('SADD', names, ARGV[s.i]) end
  if s.tokens == 0 then return end
  local remembered, fields, at = {}, {}, int(now)
  for t = 1, s.tokens do
    local column = s.token + t - 1
    local was = s.values[tonumber(ARGV[column + s.tokens])]
    fields[t] = ARGV[column]
    remembered[2 * t - 1] = ARGV[column]
    remembered[2 * t] = at .. ' a ' .. int(base + tonumber(ARGV[column + 2 * s.tokens])) .. ' ' .. (was or '0') ..
      ' ' .. ARGV[column + 3 * s.tokens]
  end
  many('HSET', KEYS[key + 3], remembered)
  many('RPUSH', KEYS[key + 4], fields)
  forget(head, ARGV[s.i], KEYS[key + 3], KEYS[key + 4], now - 2 * window, s.tokens + 16)
end

-- apply applies the batch whose keys are from key on, and whose arguments are from i on.
local function apply(key, i)
  local head, marks, names = KEYS[key], KEYS[key + 1], KEYS[key + 2]
  local writer, prev, acked, deltas, spaces = ARGV[i + 2], ARGV[i + 3], ARGV[i + 6], tonumber(ARGV[i + 7]), tonumber(ARGV[i + 14])
  local books, book = tonumber(ARGV[i + 15]), i + 16
  local m = fields(head, 'now', 'floor', 'version', 'deltas', 'sum_high', 'sum_low', 'check_high', 'check_low',
    unpack(ARGV, book, book + books - 1))
  if not m then return {'failed', headless().err} end
  local now = clock(given, m[1])
  local at = int(now)
  if writer ~= '' then
    local mark, floor, count = redis.call('HGET', marks, writer), m[2] or '0', 0
    local is = mark and string.match(mark, '^%d+') or '0'
    if not mark then count = redis.call('HLEN', marks) end
    if is ~= prev or order(is, acked) < 0 or (not mark and (order(writer, floor) <= 0 or count >= marks_max)) then
      redis.call('HSET', head, 'now', at)
      return {'mark', mark or '', floor, int(count)}
    end
  end
  if ARGV[i + 12] ~= '' and (tonumber(ARGV[i + 12]) < now - window or tonumber(ARGV[i + 13]) >= now + window) then
    return {'decide'}
  end

  -- Check everything.
  local raised = {}
  for b = 1, books do
    local id = ARGV[book + books + b - 1]
    local newer = order(id, m[8 + b] or '0')
    if newer < 0 then return {'decide'} end
    if newer > 0 then
      raised[#raised + 1] = ARGV[book + b - 1]
      raised[#raised + 1] = id
    end
  end
  local all, first = {}, book + 2 * books
  for s = 1, spaces do
    local checked = check(key + 5 * s - 2, first, names, spaces, now)
    if not checked then return {'decide'} end
    all[s], first = checked, checked.ends
  end

  -- Write everything.
  local base = tonumber(m[3])
  local told = {int(base)}
  for s = 1, spaces do write(all[s], head, names, base, now, told) end
  local sum_high, sum_low = sum(m[5], m[6], ARGV[i + 8], ARGV[i + 9])
  local check_high, check_low = sum(m[7], m[8], ARGV[i + 10], ARGV[i + 11])
  redis.call('HSET', head, 'now', at, 'version', int(base + deltas), 'deltas', int(tonumber(m[4] or '0') + deltas),
    'sum_high', sum_high, 'sum_low', sum_low, 'check_high', check_high, 'check_low', check_low, unpack(raised))
  local text = table.concat(told, ' ')
  if writer ~= '' then
    redis.call('HSET', marks, writer, ARGV[i + 4] .. ' ' .. ARGV[i + 5] .. ' f' .. text)
  end
  return {'applied', text}
end

local replies, key, i = {}, 1, 8
for b = 1, tonumber(ARGV[7]) do
  local ok, reply = pcall(apply, key, i)
  replies[b] = ok and reply or {'failed', type(reply) == 'table' and reply.err or tostring(reply)}
  key, i = key + tonumber(ARGV[i]), i + tonumber(ARGV[i + 1])
end
return replies
