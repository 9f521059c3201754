-- Gives units back. log.lua describes a log and is sent before this script.
--
-- KEYS   the log of each refund; a log may occur several times
-- ARGV   four numbers for each refund:
--          per    length of the window, in microseconds
--          count  units that it may hold
--          cost   units to give back, at most all
--          taken  the log's stop after these units were taken, or 0 if unknown
-- Reply  two numbers for each refund: units left, and microseconds until the window is empty
--
-- The newest units are deleted. If these are not the units that were taken, the oldest are deleted
-- instead: remaining units then count as younger than they are, never as older.

local reply = {}
for i, key in ipairs(KEYS) do
  local a = 4 * i - 3
  local per, count, cost, taken = tonumber(ARGV[a]), tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2]), tonumber(ARGV[a + 3])
  local start, stop, newest, oldest = window(key, per)
  local used = stop - start
  if cost >= used then
    if used > 0 then redis.call('DEL', key) end
    used, newest = 0, 0
  elseif cost > 0 then
    used = used - cost
    if taken == 0 or taken == stop then
      -- At most cost charges follow the one that is the last then.
      local from = math.max(oldest, redis.call('LLEN', key) - 3 - 2 * cost)
      local last = find(key, from, 2, stop - cost - 1)
      newest = tonumber(redis.call('LINDEX', key, last + 1))
      redis.call('LTRIM', key, oldest, last + 2)
      redis.call('LSET', key, -1, stop - cost)
    else
      redis.call('LTRIM', key, find(key, oldest, 2, start + cost), -1)
      redis.call('LSET', key, 0, start + cost)
    end
  end
  reply[2 * i - 1] = math.max(count - used, 0)
  reply[2 * i] = used > 0 and math.max(newest + per - now, 0) or 0
end
return reply
