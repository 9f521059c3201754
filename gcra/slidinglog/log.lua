-- What take.lua and refund.lua have in common; it is sent before either.
--
-- A log is a sorted set with a member for each charge. The score is the time
-- that the charge counts from, in microseconds since 1970 on the clock of this
-- Redis. The name is the number of the charge's first unit and, where it has
-- more than one, a colon and how many: 1000000000000007 or 1000000000000008:5.
-- Numbers go on from charge to charge, so that no two names are alike however
-- close the charges come, and the units of a window are the difference of two
-- numbers. All numbers have 16 digits, so that charges of one microsecond, too,
-- stand in the order of their numbers.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local zero = 1e15 -- the number of a log's first unit

-- Numbers are sent as text, since Lua's own way to write them loses digits.
local function text(x) return string.format('%.0f', x) end

local function name(from, to)
  if to - from == 1 then return text(from) end
  return text(from) .. ':' .. text(to - from)
end

-- units returns the number of a member's first unit and of the one after its
-- last.
local function units(member)
  local from = tonumber(member)
  if from then return from, from + 1 end
  local first, n = string.match(member, '^(%d+):(%d+)$')
  if not first then error('a member of the log is not of its form') end
  return tonumber(first), first + n
end

-- window returns the numbers of the first unit that the window of length per
-- holds and of the one after the newest unit, the newest member's time and the
-- oldest member in the window.
local function window(key, per)
  local last = redis.call('ZRANGE', key, '-1', '-1', 'WITHSCORES')
  if not last[1] then return zero, zero, 0 end
  local newest = tonumber(last[2])
  local _, stop = units(last[1])
  if newest <= now - per then return stop, stop, newest end
  local oldest = redis.call('ZRANGEBYSCORE', key, '(' .. text(now - per), '+inf', 'LIMIT', '0', '1')[1]
  return units(oldest), stop, newest, oldest
end

-- holder finds the member that has unit n, from the member first on, whose
-- number is start: its rank, its units and its time. It looks at one member
-- where charges have one unit each, and halves the rest otherwise.
local function holder(key, n, first, start)
  local low = redis.call('ZRANK', key, first)
  local high = low + n - start
  local at = high
  while low <= high do
    local m = redis.call('ZRANGE', key, text(at), text(at), 'WITHSCORES')
    local from, to = n + 1
    if m[1] then from, to = units(m[1]) end
    if from > n then
      high = at - 1
    elseif to <= n then
      low = at + 1
    else
      return at, from, to, tonumber(m[2])
    end
    at = math.floor((low + high) / 2)
  end
  error('a unit of the log is missing')
end
