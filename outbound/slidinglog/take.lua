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
--             kind      1: a shadow, taken if it and the others are allowed, and never denies the admission
--                       2: late, never denied: takes what is left of its cost; 3: both
-- Reply  1 if the admission passes, else 0, and its delay; then seven numbers for each charge: 1
--        if its window allows it, else 0; units left; microseconds until it would pass, until the
--        window is empty, and of delay; the log's stop (see log.lua); units taken
--
-- The first pass evaluates, the second writes, so a denial writes no charges. It repairs, though: a
-- damaged log is deleted, and one that is further ahead of now than maxDelay, as after the clock went
-- back, is brought down to that, or it would deny until the clock has caught up.

-- add logs the units numbered from stop on, and deletes the charges before the window. RPUSHX and
-- RPUSH, which fail if Redis is out of memory, come first, so that nothing is written then.
local function add(log, at, stop, cost)
  if redis.call('RPUSHX', log.key, at, stop + cost) == 0 then
    redis.call('RPUSH', log.key, stop, at, stop + cost)
  elseif log.oldest ~= 0 then
    redis.call('LTRIM', log.key, log.oldest, -1)
  end
  expire(log, at)
end

-- The common case, a single charge with room, needs none of the bookkeeping below. Without this the
-- script takes a quarter longer.
local opened -- the log of the first charge, if it was read here
if #KEYS == 1 and ARGV[1] == 'take' and ARGV[2] == '0' then
  local per, count, cost = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
  local log = open(KEYS[1], per, cost > 0)
  opened = log
  local left = count - (log.stop - log.start) - cost
  if cost > 0 and left >= 0 and log.newest <= now then
    add(log, now, log.stop, cost)
    return { 1, 0, 1, left, 0, per, 0, log.stop + cost, cost }
  end
end

-- cut makes the charges after latest one, at latest: in every window it counts as they would there, and
-- the work does not grow with their number. It returns false if the log is damaged.
local function cut(log, latest)
  local p = find(log.key, log.oldest, 1, latest)
  if not charge(log, p) then return false end
  redis.call('LSET', log.key, p + 1, latest) -- fails if Redis is out of memory, so it comes first
  redis.call('LSET', log.key, p + 2, log.stop)
  redis.call('LTRIM', log.key, 0, p + 2)
  log.newest, log.length = latest, p + 3
  expire(log, latest)
  return true
end

local max = math.max

-- evaluate returns when a charge may pass, if its log has earlier units that are not written yet, and
-- whether that is soon enough. It returns nil if the log is damaged.
local function evaluate(s, earlier)
  local log, latest = s.log, now + s.maxDelay
  if s.late then
    s.cost = math.min(s.cost, max(s.count - (log.stop - log.start) - earlier, 0))
    return max(now, log.newest), true
  end
  if s.cost > s.count or s.cost == 0 then
    log.newest = math.min(log.newest, latest)
    return now, s.cost == 0
  end
  if log.newest > latest and not cut(log, latest) then return nil end

  local ready = max(now, log.newest) -- first come, first served
  local used = log.stop - log.start
  local leave = used + earlier + s.cost - s.count -- of the oldest units
  if leave > used then -- the admission itself fills the window
    return now + log.per + s.maxWait, false
  elseif leave > 0 then
    local p = find(log.key, log.oldest, 2, log.start + leave - 1, log.oldest + 2 * (leave - 1))
    local _, at = charge(log, p)
    if not at then return nil end
    ready = max(ready, at + log.per)
  end
  return ready, ready - now <= s.maxWait
end

local write, at = ARGV[1] == 'take', now + ARGV[2]
local admitted = true
local steps = {}
local pending = {} -- key: units that earlier charges take
for i, key in ipairs(KEYS) do
  local a = 6 * i - 3
  local s = {
    count = tonumber(ARGV[a + 1]), cost = tonumber(ARGV[a + 2]), maxWait = tonumber(ARGV[a + 3]),
    maxDelay = tonumber(ARGV[a + 4]), shadow = ARGV[a + 5] % 2 == 1, late = ARGV[a + 5] - 2 >= 0, retryAfter = 0,
  }
  steps[i] = s
  s.log = opened or open(key, tonumber(ARGV[a]), s.cost > 0)

  local earlier = pending[key] or 0
  s.ready, s.allowed = evaluate(s, earlier)
  if not s.ready then
    heal(s.log)
    s.ready, s.allowed = evaluate(s, earlier)
  end
  if not s.allowed and s.cost <= s.count then s.retryAfter = s.ready - now - s.maxWait end

  s.used, s.stop, s.newest = s.log.stop - s.log.start + earlier, s.log.stop + earlier, s.log.newest
  if earlier > 0 then s.newest = max(now, s.newest) end
  if s.allowed then
    pending[key] = earlier + s.cost
    if not s.shadow and not s.late then at = max(at, s.ready) end
  elseif not s.shadow then
    admitted = false
  end
end

local reply = { admitted and 1 or 0, at - now }
local last = {} -- key: the time of the newest charge of this admission
for _, s in ipairs(steps) do
  local key, delay, taken = s.log.key, 0, 0
  if admitted and s.allowed and s.cost > 0 and write then
    local loggedAt = max(at, s.ready, last[key] or 0)
    if last[key] then s.log.oldest = 0 end -- the earlier charge has deleted
    last[key] = loggedAt
    s.newest, s.used, taken = loggedAt, s.used + s.cost, s.cost
    if not s.late then delay = loggedAt - now end
    add(s.log, loggedAt, s.stop, s.cost)
    s.stop = s.stop + s.cost
  elseif not (admitted and s.allowed) and s.cost > 0 and s.log.length > 0 and redis.call('PTTL', key) == -1 then
    expire(s.log, s.log.newest) -- another program has written this log, or its expiry is lost
  end

  local n = #reply
  reply[n + 1] = s.allowed and 1 or 0
  reply[n + 2] = max(s.count - s.used, 0)
  reply[n + 3] = s.retryAfter
  reply[n + 4] = max(s.newest + s.log.per - now, 0)
  reply[n + 5] = delay
  reply[n + 6] = s.stop
  reply[n + 7] = taken
end
return reply
