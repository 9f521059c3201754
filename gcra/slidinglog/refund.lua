-- Gives units back. log.lua says what a log is.
--
-- KEYS   the log of each refund; one may occur several times
-- ARGV   for each refund four numbers:
--          per    length of the window, in microseconds
--          count  units that it may hold
--          cost   units to give back, at most all
--          mine   0, or the number that the log had come to when they were taken
-- Reply  for each refund units left and microseconds until the window is empty
--
-- The newest units go. Where it is known which they were, and others have come
-- since, the oldest go: the log then counts units as younger than they are and
-- never as older.

local reply = {}
for i, key in ipairs(KEYS) do
  local a = 4 * i - 3
  local per, count, cost, mine = tonumber(ARGV[a]), tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2]), tonumber(ARGV[a + 3])
  local start, stop, newest, oldest = window(key, per)
  local live = stop - start
  if cost >= live then
    if live > 0 then redis.call('DEL', key) end
    live, newest = 0, 0
  elseif cost > 0 then
    live = live - cost
    if mine == 0 or mine == stop then
      local rank, from, to, time = holder(key, stop - cost - 1, oldest, start)
      newest = time
      if to > stop - cost then -- it keeps some of its units
        redis.call('ZADD', key, text(time), name(from, stop - cost))
        redis.call('ZREM', key, name(from, to))
      end
      redis.call('ZREMRANGEBYRANK', key, text(rank + 1), '-1')
    else
      local rank, from, to, time = holder(key, start + cost, oldest, start)
      if from < start + cost then
        redis.call('ZADD', key, text(time), name(start + cost, to))
        redis.call('ZREM', key, name(from, to))
      end
      if rank > 0 then redis.call('ZREMRANGEBYRANK', key, '0', text(rank - 1)) end
    end
  end
  reply[2 * i - 1] = math.max(count - live, 0)
  reply[2 * i] = live > 0 and math.max(newest + per - now, 0) or 0
end
return reply
