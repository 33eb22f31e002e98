-- What all scripts share. Integers that may pass 2^53 stay strings: only Redis's
-- own commands add them. Times, counts and versions are below that.

-- chunk is how many arguments are unpacked at once: Lua's stack has room for 8000.
local chunk = 4000

local function int(n) return string.format('%d', n) end

-- order compares two decimal numbers without signs or leading zeros.
local function order(a, b)
  if a == b then return 0 end
  if #a ~= #b then return #a < #b and -1 or 1 end
  return a < b and -1 or 1
end

-- clock is the partition's time: the caller's or the server's, and never less
-- than what the partition has seen; and the same in microseconds.
local function clock(given, seen)
  local now, last = tonumber(given), tonumber(seen or '0')
  local us
  if now then
    us = now * 1000
  else
    local t = redis.call('TIME')
    us = t[1] * 1000000 + t[2]
    now = math.floor(us / 1000)
  end
  return math.max(now, last), math.max(us, last * 1000)
end

-- headless is the reply to a call that finds no head: the server has lost the
-- partition, or has it as it was in layout 1. Nothing is written to it before it has
-- a head again.
local function headless() return redis.error_reply('NOHEAD the partition has no head of layout 2') end

-- fields reads some of a head. It returns nil if there is none: the first is one that
-- every head has.
local function fields(head, ...)
  local m = redis.call('HMGET', head, ...)
  return m[1] and m
end

-- columns reads n fields of a hash, named by the arguments from i on.
local function columns(key, i, n)
  if n <= chunk then
    return n == 0 and {} or redis.call('HMGET', key, unpack(ARGV, i, i + n - 1))
  end
  local all = {}
  for from = 0, n - 1, chunk do
    for _, x in ipairs(redis.call('HMGET', key, unpack(ARGV, i + from, i + math.min(from + chunk, n) - 1))) do
      all[#all + 1] = x
    end
  end
  return all
end

-- many gives a command a list of any length.
local function many(command, key, list)
  for from = 1, #list, chunk do
    redis.call(command, key, unpack(list, from, math.min(from + chunk - 1, #list)))
  end
end

-- extra is what a stamp has after its version, if anything: a deadline, or an l
-- and a layout; of an object an o, with its deadline if it has one.
local function extra(stamp)
  local space = string.find(stamp, ' ', 1, true)
  return space and string.sub(stamp, space + 1)
end

-- late reports whether an extra is a deadline that has come.
local function late(text, now)
  local ms = tonumber(text) or tonumber(string.match(text, '^o(%d+)$') or '') -- nil of a layout
  return ms and ms <= now
end

-- over reports whether a cell with this stamp has expired.
local function over(stamp, now)
  local text = extra(stamp)
  return text and late(text, now)
end

-- sum adds 64-bit numbers in halves; it wraps around.
local function sum(high, low, more_high, more_low)
  low = tonumber(low or '0') + tonumber(more_low)
  local carry = low >= 4294967296 and 1 or 0
  high = (tonumber(high or '0') + tonumber(more_high) + carry) % 4294967296
  return int(high), int(low - carry * 4294967296)
end

-- drop forgets a token of a namespace, of which t is known. Those that remember a
-- refusal are counted.
local function drop(head, name, tokens, field, t)
  redis.call('HDEL', tokens, field)
  if t and string.find(t, '^%d+ r') then redis.call('HINCRBY', head, 'r:' .. name, '-1') end
end

-- forget drops up to n tokens that have been kept long enough, the oldest first.
local function forget(head, name, tokens, queue, before, n)
  for _ = 1, n do
    local field = redis.call('LINDEX', queue, 0)
    if not field then return end
    local t = redis.call('HGET', tokens, field)
    if t and tonumber(string.match(t, '^%d+')) > before then return end
    redis.call('LPOP', queue)
    drop(head, name, tokens, field, t)
  end
end

-- far reports whether a stored number is so far from 0 that Redis may not be able to
-- add to it: a quarter of the range away from its ends no add of a quarter can leave it.
-- Where there are many, the length is looked at first: a call takes longer.
local function far(value) return #value > 18 and math.abs(tonumber(value)) > 4.6e18 end

-- under reports whether an epoch is below the floor that a field of the head has.
local function under(head, field, epoch)
  return field ~= '' and tonumber(epoch) < tonumber(redis.call('HGET', head, field) or '0')
end

-- tallied adds the halves of a sum and a check sum, four arguments from i on, to the
-- tally of an epoch.
local function tallied(tally, i)
  local sh, sl, ch, cl = string.match(tally or '0 0 0 0', '(%d+) (%d+) (%d+) (%d+)')
  sh, sl = sum(sh, sl, ARGV[i], ARGV[i + 1])
  ch, cl = sum(ch, cl, ARGV[i + 2], ARGV[i + 3])
  return sh .. ' ' .. sl .. ' ' .. ch .. ' ' .. cl
end
