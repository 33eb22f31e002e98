-- Removes a drawer that is below its floor. The tally of the epoch stays.
--
-- KEYS: head, drawers, contents, order.
-- ARGV: its name, the field of its floor, its epoch.
--
-- Replies 1 if it removed it.

if not under(KEYS[1], ARGV[2], ARGV[3]) then return 0 end
redis.call('UNLINK', KEYS[3], KEYS[4])
return redis.call('ZREM', KEYS[2], ARGV[1])
