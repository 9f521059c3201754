-- Takes one admission: all of its charges or none. log.lua describes a log and is sent before this
-- script.
--
-- KEYS   the log of each charge; a log may occur several times
-- ARGV   1  'take', or 'evaluate': decide and write nothing
--        2  the smallest delay of the admission, in microseconds
--        then six numbers for each charge, times in microseconds:
--             per       length of the window
--             count     units that it may hold
--             cost      units to take; 0 peeks
--             maxWait   largest delay of this admission
--             maxDelay  largest delay of any admission
--             shadow    1: taken if it and the others are allowed, and never denies the admission
-- Reply  1 if the admission passes, else 0, and its delay; then six numbers for each charge: 1 if
--        its window allows it, else 0; units left; microseconds until it would pass, until the
--        window is empty, and of delay; the log's stop (see log.lua)
--
-- The first pass evaluates, the second writes, so a denial writes no charges. A log that is further
-- ahead of now than maxDelay, as after the clock went back, is brought down to that: otherwise it
-- would deny until the clock has caught up.

-- add logs the units numbered from stop on, and deletes the charges before oldest, which have left
-- the window. RPUSHX and RPUSH, which fail if Redis is out of memory, come first, so that nothing is
-- written then.
local function add(key, at, stop, cost, per, oldest)
  if redis.call('RPUSHX', key, at, stop + cost) == 0 then
    redis.call('RPUSH', key, stop, at, stop + cost)
  end
  if oldest ~= 0 then redis.call('LTRIM', key, oldest, -1) end
  redis.call('PEXPIREAT', key, math.ceil((at + per) / 1000))
end

-- The common case, a single charge with room, needs none of the bookkeeping below. Without this the
-- script takes a quarter longer.
if #KEYS == 1 and ARGV[1] == 'take' and ARGV[2] == '0' then
  local per, count, cost = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
  local start, stop, newest, oldest = window(KEYS[1], per)
  local left = count - (stop - start) - cost
  if cost > 0 and left >= 0 and newest <= now then
    add(KEYS[1], now, stop, cost, per, oldest)
    return { 1, 0, 1, left, 0, per, 0, stop + cost }
  end
end

local write, at = ARGV[1] == 'take', now + ARGV[2]
local max = math.max
local admitted = true
local steps = {}
local pending = {} -- key: units that earlier charges take
for i = 1, #KEYS do
  local a = 6 * i - 3
  local s = {
    key = KEYS[i], per = tonumber(ARGV[a]), count = tonumber(ARGV[a + 1]), cost = tonumber(ARGV[a + 2]),
    maxWait = tonumber(ARGV[a + 3]), shadow = ARGV[a + 5] == '1', retryAfter = 0, allowed = true,
  }
  steps[i] = s
  local latest = now + ARGV[a + 4]
  local start, stop, newest, oldest = window(s.key, s.per)
  if newest > latest then
    newest = latest
    if s.cost > 0 and s.cost <= s.count then
      for p = find(s.key, oldest, 1, latest), redis.call('LLEN', s.key) - 3, 2 do
        redis.call('LSET', s.key, p + 1, latest)
      end
    end
  end
  local earlier = pending[s.key] or 0
  local ready = now -- when the charge may pass
  if s.cost > s.count then
    s.allowed = false
  elseif s.cost > 0 then
    ready = max(now, newest) -- first come, first served
    local leave = stop - start + earlier + s.cost - s.count -- of the oldest units
    if leave > stop - start then
      ready = now + s.per + s.maxWait -- the admission itself fills the window
      s.allowed = false
    elseif leave > 0 then
      local p = find(s.key, oldest, 2, start + leave - 1, oldest + 2 * (leave - 1))
      ready = max(ready, redis.call('LINDEX', s.key, p + 1) + s.per)
    end
    s.allowed = s.allowed and ready - now <= s.maxWait
    if not s.allowed then s.retryAfter = ready - now - s.maxWait end
  end
  s.ready, s.used, s.stop, s.newest, s.oldest = ready, stop - start + earlier, stop + earlier, newest, oldest
  if earlier > 0 then s.newest = max(now, newest) end
  if s.allowed then
    pending[s.key] = earlier + s.cost
    if not s.shadow then at = max(at, ready) end
  elseif not s.shadow then
    admitted = false
  end
end

local reply = { admitted and 1 or 0, at - now }
local last = {} -- key: the time of the newest charge of this admission
for _, s in ipairs(steps) do
  local delay = 0
  if admitted and s.allowed and s.cost > 0 and write then
    local loggedAt = max(at, s.ready, last[s.key] or 0)
    if last[s.key] then s.oldest = 0 end -- the earlier charge has deleted
    last[s.key] = loggedAt
    s.newest, s.used, delay = loggedAt, s.used + s.cost, loggedAt - now
    add(s.key, loggedAt, s.stop, s.cost, s.per, s.oldest)
    s.stop = s.stop + s.cost
  end
  local n = #reply
  reply[n + 1] = s.allowed and 1 or 0
  reply[n + 2] = max(s.count - s.used, 0)
  reply[n + 3] = s.retryAfter
  reply[n + 4] = max(s.newest + s.per - now, 0)
  reply[n + 5] = delay
  reply[n + 6] = s.stop
end
return reply
