-- Makes a partition one of layout 2, unless it is: what meta has moves to head, and
-- meta becomes a text, at which every script of layout 1 fails before it writes.
--
-- KEYS: head, meta.
-- ARGV: the text.

if redis.call('TYPE', KEYS[2]).ok == 'hash' and redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('RENAME', KEYS[2], KEYS[1])
end
if redis.call('TYPE', KEYS[2]).ok ~= 'string' then redis.call('SET', KEYS[2], ARGV[1]) end
redis.call('HSETNX', KEYS[1], 'now', '0')
redis.call('HSETNX', KEYS[1], 'version', '0')
return 1
