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

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- find returns the first position, from position on, whose time (field 1) or stop (field 2) is
-- greater than x. It looks near position first, and then searches by halves. If the result is known to
-- be at most some position, most, it looks there before: charges of one unit end there.
local function find(key, position, field, x, most)
  local function greater(p)
    local value = redis.call('LINDEX', key, p + field)
    return not value or tonumber(value) > x
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

-- window returns start and stop of the window of length per, the time of the newest charge, and the
-- position of the oldest charge in the window.
local function window(key, per)
  local last = redis.call('LRANGE', key, -2, -1)
  if not last[1] then return 0, 0, 0, 0 end
  local newest, stop = tonumber(last[1]), tonumber(last[2])
  if newest <= now - per then return stop, stop, newest, -3 end -- of the charge that is added next
  local oldest = find(key, 0, 1, now - per)
  return tonumber(redis.call('LINDEX', key, oldest)), stop, newest, oldest
end
