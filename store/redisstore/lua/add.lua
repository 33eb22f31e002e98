-- Applies batches of plain adds, each if nothing stands in its way: then all of its
-- adds are applied. Otherwise it changes nothing and says what does. The batches are of
-- different partitions.
--
-- KEYS: for each batch head, marks, names, for each of its namespaces values, stamps,
-- index, tokens, queue; and if it has drawers, drawers, tally, and for each its contents
-- and order.
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

-- inside reports whether a value is between two limits, as far as Lua can tell.
local function inside(value, least, most)
  if least == '' and most == '' then return true end
  if #value > exact then return false end
  local n = tonumber(value)
  return (least == '' or n >= tonumber(least)) and (most == '' or n <= tonumber(most))
end

-- check reads what the adds to a namespace meet. It returns nil if they can't be
-- applied blindly. Its keys are from key on, and its arguments from i on.
local function check(key, i, names, spaces, now)
  local cells, named, tokens, by = tonumber(ARGV[i + 1]), tonumber(ARGV[i + 3]), tonumber(ARGV[i + 4]), ARGV[i + 5]
  local at, extras, fresh, events = i + 10, {}, {}, ARGV[i + 8] == '1'
  -- What is added to all cells, or a column of that; a column of the last delta to each,
  -- unless each has one, in their order; and a column of the layouts that the first ones
  -- must have, unless they must have none. To the others any will do. If some have bounds,
  -- two columns of the least and of the most that these may be, '' for anything.
  local sums = at + cells
  local lasts = by == '' and sums + cells or sums
  local layouts, token = lasts, lasts
  if ARGV[i + 6] == '1' then layouts, token = lasts + cells, lasts + cells else lasts = nil end
  if ARGV[i + 7] == '1' then token = layouts + named else layouts = nil end
  local least = ARGV[i + 9] == '1' and token
  if least then token = least + 2 * named end
  local values, stamps = columns(KEYS[key], at, cells), columns(KEYS[key + 1], at, cells)
  for c = 1, cells do
    local stamp, text = stamps[c], nil
    if stamp and find(stamp, ' ', 1, true) then
      text = extra(stamp)
      if string.byte(text) == 111 then return nil end -- an object takes no add
    end
    if least and c <= named and not inside(stamp and values[c] or '0', ARGV[least + c - 1], ARGV[least + named + c - 1]) then return nil end
    if c <= named and (text or layouts) and layout(text) ~= (layouts and ARGV[layouts + c - 1] or '') then return nil end
    if stamp then
      local value = values[c]
      if #value > 18 and far(value) then return nil end
      if text then
        -- A counter that has a deadline takes no events.
        if late(text, now) or events and layout(text) == '' then return nil end
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

-- look reads the parts of a drawer that riders add to. It returns nil if they can't be
-- added to blindly.
local function look(key, i)
  local d = {key = key, tallied = ARGV[i] == '1' and i + 1, by = ARGV[i + 5], parts = tonumber(ARGV[i + 6]), at = i + 7}
  d.values = columns(KEYS[key], d.at, d.parts)
  d.ends = d.at + (d.by == '' and 2 or 1) * d.parts
  for p = 1, d.parts do
    local value = d.values[p]
    if value and #value > 18 and far(value) then return nil end
  end
  return d
end

-- open reads the books that counters have been written under. It returns nil if one is
-- below what it must be, and its counter is not new: then somebody has to look at what
-- its value was. Spaces are what the batch meets.
local function open(key, i, spaces)
  local d = {key = key, i = i, books = tonumber(ARGV[i + 1]), at = i + 2, fresh = {}}
  local values = columns(KEYS[key], d.at, d.books)
  d.ends = d.at + 3 * d.books
  for b = 1, d.books do
    local value, least = values[b], ARGV[d.at + d.books + b - 1]
    if not value then
      local space, cell = string.match(ARGV[d.at + 2 * d.books + b - 1], '^%d+ %d+ %d+ %d+ (%d+) (%d+) ')
      if not space or spaces[tonumber(space)].stamps[tonumber(cell)] then return nil end
      d.fresh[#d.fresh + 1] = b
    elseif string.byte(value) == 45 or order(value, least) < 0 then
      return nil
    end
  end
  return d
end

-- found writes the books of new counters, and adds them to a record, which is the one of
-- the batch in four halves.
local function found(d, drawers, record)
  local books, index = {}, {}
  for _, b in ipairs(d.fresh) do
    local field, text = ARGV[d.at + b - 1], ARGV[d.at + 2 * d.books + b - 1]
    books[#books + 1] = field
    books[#books + 1] = ARGV[d.at + d.books + b - 1]
    index[#index + 1] = '0'
    index[#index + 1] = field
    local sh, sl, ch, cl = string.match(text, '^(%d+) (%d+) (%d+) (%d+) ')
    record[1], record[2] = sum(record[1], record[2], sh, sl)
    record[3], record[4] = sum(record[3], record[4], ch, cl)
  end
  many('HSET', KEYS[d.key], books)
  many('ZADD', KEYS[d.key + 1], index)
  if #books > 0 then redis.call('ZADD', drawers, '0', ARGV[d.i]) end
end

-- fill adds to the parts of a drawer that has a name among all drawers.
local function fill(d, drawers, name)
  local values, fresh, v, from, amounts, by = {}, {}, 0, d.at - 1, d.at + d.parts - 1, d.by
  for p = 1, d.parts do
    local field, was, more = ARGV[from + p], d.values[p], by ~= '' and by or ARGV[amounts + p]
    if not was then
      fresh[#fresh + 1] = '0'
      fresh[#fresh + 1] = field
      was = '0'
    end
    if #was <= exact and #more <= exact then
      values[v + 1] = field
      values[v + 2] = format('%d', was + more)
      v = v + 2
    else
      redis.call('HINCRBY', KEYS[d.key], field, more)
    end
  end
  many('HSET', KEYS[d.key], values)
  if #fresh > 0 then
    many('ZADD', KEYS[d.key + 1], fresh)
    redis.call('ZADD', drawers, '0', name)
  end
end

-- ride applies what riders add, whose keys are from key on. The names of the drawers are
-- from i on.
local function ride(all, key, i)
  local names, tallies = {}, {}
  for n, d in ipairs(all) do
    fill(d, KEYS[key], ARGV[i + n - 1])
    if d.tallied then names[#names + 1] = ARGV[i + n - 1] end
  end
  if #names == 0 then return end
  local had, t = redis.call('HMGET', KEYS[key + 1], unpack(names)), 0
  for _, d in ipairs(all) do
    if d.tallied then
      t = t + 1
      tallies[2 * t - 1], tallies[2 * t] = names[t], tallied(had[t], d.tallied)
    end
  end
  redis.call('HSET', KEYS[key + 1], unpack(tallies))
end

-- apply applies the batch whose keys are from key on, and whose arguments are from i on.
local function apply(key, i)
  local head, marks, names = KEYS[key], KEYS[key + 1], KEYS[key + 2]
  local writer, prev, acked, deltas, spaces = ARGV[i + 2], ARGV[i + 3], ARGV[i + 6], tonumber(ARGV[i + 7]), tonumber(ARGV[i + 14])
  local books, floors, drawers, book = tonumber(ARGV[i + 15]), tonumber(ARGV[i + 16]), tonumber(ARGV[i + 17]), i + 19
  local fences = books + floors
  local m = fields(head, 'now', 'floor', 'version', 'deltas', 'sum_high', 'sum_low', 'check_high', 'check_low',
    unpack(ARGV, book, book + fences - 1))
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
    local id = ARGV[book + fences + b - 1]
    local newer = order(id, m[8 + b] or '0')
    if newer < 0 then return {'decide'} end
    if newer > 0 then
      raised[#raised + 1] = ARGV[book + b - 1]
      raised[#raised + 1] = id
    end
  end
  for f = books + 1, fences do
    if m[8 + f] and tonumber(m[8 + f]) > tonumber(ARGV[book + fences + f - 1]) then return {'decide'} end
  end
  local all, first = {}, book + 2 * fences
  for s = 1, spaces do
    local checked = check(key + 5 * s - 2, first, names, spaces, now)
    if not checked then return {'decide'} end
    all[s], first = checked, checked.ends
  end

  local filled, shared, named = {}, key + 3 + 5 * spaces, first
  first = first + drawers
  for d = 1, drawers do
    local looked = look(shared + 2 * d, first)
    if not looked then return {'decide'} end
    filled[d], first = looked, looked.ends
  end
  local opened = {}
  for b = 1, tonumber(ARGV[i + 18]) do
    local looked = open(shared + 2 * (drawers + b), first, all)
    if not looked then return {'decide'} end
    opened[b], first = looked, looked.ends
  end

  -- Write everything.
  local base = tonumber(m[3])
  local told = {int(base)}
  for s = 1, spaces do write(all[s], head, names, base, now, told) end
  if drawers > 0 then ride(filled, shared, named) end
  local record = {ARGV[i + 8], ARGV[i + 9], ARGV[i + 10], ARGV[i + 11]}
  for _, d in ipairs(opened) do found(d, KEYS[shared], record) end
  local sum_high, sum_low = sum(m[5], m[6], record[1], record[2])
  local check_high, check_low = sum(m[7], m[8], record[3], record[4])
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
