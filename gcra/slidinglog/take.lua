-- Takes one admission: all of its charges or none. log.lua says what a log is.
--
-- KEYS   the log of each charge; one may occur several times
-- ARGV   [1]  'take', or 'ask': decide and write nothing
--        [2]  microseconds for which the admission is held back at least
--        then for each charge six numbers, times in microseconds:
--             per     length of the window
--             count   units that it may hold
--             cost    units to take; 0 peeks
--             within  how long the admission may be held back at most
--             top     how long any admission may have been
--             shadow  1: is taken if it and the others may, and refuses nobody
-- Reply  whether the admission passes, and how long it is held back; then for
--        each charge whether its window admits, units left, microseconds until
--        it passes, until the window is empty, and to be held back, and the
--        number that its log has come to
--
-- First pass computes, second writes: a refusal writes nothing. Only times that
-- are further ahead of now than any charge can have been held back, as after
-- the clock has gone back, are brought down to that, or the log would refuse
-- until the clock has caught up.

-- add logs units that are numbered from, and drops those that have left the
-- window. What may fail for want of memory comes first: nothing is written then.
local function add(key, place, from, cost, per)
  redis.call('ZADD', key, text(place), name(from, from + cost))
  redis.call('ZREMRANGEBYSCORE', key, '-inf', text(now - per))
  redis.call('PEXPIREAT', key, text(math.ceil((place + per) / 1000)))
end

-- A charge that travels alone and has room, as most do, needs none of the
-- bookkeeping below: without it the script takes a quarter longer.
if #KEYS == 1 and ARGV[1] == 'take' and ARGV[2] == '0' then
  local per, count, cost = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
  local start, stop, newest = window(KEYS[1], per)
  local left = count - (stop - start) - cost
  if cost > 0 and left >= 0 and newest <= now then
    add(KEYS[1], now, stop, cost, per)
    return { 1, 0, 1, left, 0, per, 0, stop + cost }
  end
end

local ask, at = ARGV[1] == 'ask', now + ARGV[2]
local max = math.max
local admitted = true
local charges = {}
local pending = {} -- key: units that charges before this one take
for i = 1, #KEYS do
  local a = 6 * i - 3
  local c = {
    key = KEYS[i], per = tonumber(ARGV[a]), count = tonumber(ARGV[a + 1]), cost = tonumber(ARGV[a + 2]),
    within = tonumber(ARGV[a + 3]), shadow = ARGV[a + 5] == '1', retry = 0, allowed = true,
  }
  charges[i] = c
  local top = now + ARGV[a + 4]
  local start, stop, newest, oldest = window(c.key, c.per)
  if newest > top then
    newest = top
    if c.cost > 0 and c.cost <= c.count then
      for _, m in ipairs(redis.call('ZRANGEBYSCORE', c.key, '(' .. text(top), '+inf')) do
        redis.call('ZADD', c.key, text(top), m)
      end
    end
  end
  local taken = pending[c.key] or 0
  local ready = now -- when the charge may pass
  if c.cost > c.count then
    c.allowed = false
  elseif c.cost > 0 then
    ready = max(now, newest) -- first come, first served
    local leave = stop - start + taken + c.cost - c.count -- of the oldest units
    if leave > stop - start then
      ready = now + c.per + c.within -- would need what the admission itself takes
      c.allowed = false
    elseif leave > 0 then
      local _, _, _, time = holder(c.key, start + leave - 1, oldest, start)
      ready = max(ready, time + c.per)
    end
    c.allowed = c.allowed and ready - now <= c.within
    if not c.allowed then c.retry = ready - now - c.within end
  end
  c.ready, c.used, c.stop, c.newest = ready, stop - start + taken, stop + taken, newest
  if taken > 0 then c.newest = max(now, newest) end
  if c.allowed then
    pending[c.key] = taken + c.cost
    if not c.shadow then at = max(at, ready) end
  elseif not c.shadow then
    admitted = false
  end
end

local reply = { admitted and 1 or 0, at - now }
local placed = {} -- key: the time of its newest charge in this admission
for _, c in ipairs(charges) do
  local delay = 0
  if admitted and c.allowed and c.cost > 0 and not ask then
    local place = max(at, c.ready, placed[c.key] or 0)
    placed[c.key] = place
    c.newest, c.used, delay = place, c.used + c.cost, place - now
    add(c.key, place, c.stop, c.cost, c.per)
    c.stop = c.stop + c.cost
  end
  local n = #reply
  reply[n + 1] = c.allowed and 1 or 0
  reply[n + 2] = max(c.count - c.used, 0)
  reply[n + 3] = c.retry
  reply[n + 4] = max(c.newest + c.per - now, 0)
  reply[n + 5] = delay
  reply[n + 6] = c.stop
end
return reply
