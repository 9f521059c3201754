-- The functions that take.lua and refund.lua share. It is sent before each of them, takes no
-- arguments and does not reply.
--
-- A log is a sorted set with one member for each charge. The score is the time of the charge, in
-- microseconds since 1970 by the clock of this Redis. The name is the number of the charge's first
-- unit and, if it has several, a colon and how many: 1000000000000007 or 1000000000000008:5.
--
-- Units are numbered from charge to charge. So names are unique, however close the charges are, and
-- the number of units in a window is the difference of two numbers: start, that of the first unit,
-- and stop, that of the last unit plus 1. All numbers have 16 digits, so that charges of one
-- microsecond are sorted by number.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local zero = 1e15 -- the number of a log's first unit

-- Numbers are formatted here, since Lua's own conversion loses digits.
local function text(x) return string.format('%.0f', x) end

local function name(from, to)
  if to - from == 1 then return text(from) end
  return text(from) .. ':' .. text(to - from)
end

-- units returns the start and stop of a member.
local function units(member)
  local from = tonumber(member)
  if from then return from, from + 1 end
  local first, n = string.match(member, '^(%d+):(%d+)$')
  if not first then error('a member of the log is malformed') end
  return tonumber(first), first + n
end

-- window returns start and stop of the window of length per, the time of the newest member, and the
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

-- holder returns rank, start, stop and time of the member that has unit n. It searches from the
-- member first on, whose start is given. If charges have one unit each, the first guess is right;
-- otherwise it is a binary search.
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
