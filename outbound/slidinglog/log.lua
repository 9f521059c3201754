-- The functions that take.lua and refund.lua share. It is sent before each of them, takes no
-- arguments and does not reply.
--
-- A log is a list of integers, which Redis packs: the number of the first unit, then for each charge
-- its time and the number after its last unit. Times are microseconds since 1970 by the clock of this
-- Redis and never decrease. A charge of 1 unit and one of 5 are
--
--   0  1800000000000000 1  1800000000000007 6
--
-- So a charge begins with the number of its first unit, which ends the charge before it: start, time,
-- stop. Its position is that of start, and the next charge is at position + 2. Units are numbered
-- from charge to charge, and the number of units in a window is the difference of two numbers: start
-- of its oldest charge and stop of its newest.
--
-- A value that cannot be such a log is damaged: it has another type or length, or one of the elements
-- that a call reads is no integer, is later than the newest, or leaves the charges behind it less than
-- a unit each. It counts as absent, and the first charge or refund that finds it deletes it. So units
-- that this script has logged are counted, whatever the list had before: of a charge of several at
-- least one, all of them once the log is repaired.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- integer returns the number in an element, or nil.
local function integer(element)
  local n = tonumber(element)
  return n and n >= 0 and n <= 4503599627370496 and n % 1 == 0 and n or nil -- 2^52; nan fails too
end

-- find returns the first position, from position on, whose time (field 1) or stop (field 2) is
-- greater than x, or no number. It looks near position first, and then searches by halves. If the
-- result is known to be at most some position, most, it looks there before: charges of one unit end
-- there.
local function find(key, position, field, x, most)
  local function greater(p)
    local value = tonumber(redis.call('LINDEX', key, p + field))
    return not value or value > x
  end
  if most and not greater(most - 2) then return most end
  local low, high, step = position, position, 2
  while not greater(high) do
    low, high, step = high + 2, high + step, 2 * step
  end
  while low < high do
    local middle = low + 2 * math.floor((high - low) / 4)
    if greater(middle) then high = middle else low = middle + 2 end
  end
  return low
end

-- charge returns start and time of the charge at a position in the window of a log, or nil if the log
-- is damaged there.
local function charge(log, position)
  local elements = redis.call('LRANGE', log.key, position, position + 2)
  local start, at, stop = integer(elements[1]), integer(elements[2]), integer(elements[3])
  local after = (log.length - 3 - position) / 2 -- charges, each of at least one unit
  if start and at and stop and start < stop and stop + after <= log.stop and at > now - log.per and at <= log.newest then
    return start, at
  end
end

-- heal deletes a damaged log.
local function heal(log)
  redis.call('DEL', log.key)
  log.length, log.start, log.stop, log.newest, log.oldest = 0, 0, 0, 0, 0
end

-- read reads the window of a log and returns false if the log is damaged.
local function read(log)
  local length = redis.pcall('LLEN', log.key)
  if length == 0 then return true end
  if type(length) == 'table' then
    if not string.find(length.err, 'WRONGTYPE', 1, true) then redis.call('LLEN', log.key) end -- raises the error
    return false
  end

  local last = redis.call('LRANGE', log.key, -2, -1)
  local newest, stop = integer(last[1]), integer(last[2])
  if length < 3 or length % 2 == 0 or not newest or not stop then return false end
  if newest <= now - log.per then
    log.length, log.start, log.stop, log.newest, log.oldest = length, stop, stop, newest, -3 -- of the charge that is added next
    return true
  end

  log.length, log.stop, log.newest = length, stop, newest
  log.start = charge(log, 0)
  if not log.start then -- it has left the window
    log.oldest = find(log.key, 2, 1, now - log.per)
    log.start = charge(log, log.oldest)
  end
  return log.start
end

-- open reads the log of a key with a window of length per:
--
--   length  of the list
--   start, stop  of the window
--   newest  the time of the newest charge
--   oldest  the position of the oldest charge in the window
--
-- A damaged log counts as empty; with repair it is deleted.
local function open(key, per, repair)
  local log = { key = key, per = per, length = 0, start = 0, stop = 0, newest = 0, oldest = 0 }
  if read(log) then return log end
  if repair then
    heal(log)
    return log
  end
  return { key = key, per = per, length = 0, start = 0, stop = 0, newest = 0, oldest = 0 }
end

-- expire lets a log expire when the window of its newest charge, at, is empty.
local function expire(log, at)
  redis.call('PEXPIREAT', log.key, math.ceil((at + log.per) / 1000))
end
