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

-- newest deletes the newest units, or returns false if the log is damaged.
local function newest(log, cost)
  -- At most cost charges follow the one that is the last then.
  local from = math.max(log.oldest, log.length - 3 - 2 * cost)
  local p = find(log.key, from, 2, log.stop - cost - 1)
  local _, at = charge(log, p)
  if not at then return false end
  redis.call('LSET', log.key, p + 2, log.stop - cost)
  redis.call('LTRIM', log.key, log.oldest, p + 2)
  log.newest = at
  return true
end

-- oldest deletes the oldest units, or returns false if the log is damaged.
local function oldest(log, cost)
  local p = find(log.key, log.oldest, 2, log.start + cost)
  if not charge(log, p) then return false end
  redis.call('LSET', log.key, p, log.start + cost)
  redis.call('LTRIM', log.key, p, -1)
  return true
end

local reply = {}
for i, key in ipairs(KEYS) do
  local a = 4 * i - 3
  local per, count, cost, taken = tonumber(ARGV[a]), tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2]), tonumber(ARGV[a + 3])
  local log = open(key, per, cost > 0)
  local used = log.stop - log.start
  if cost >= used then
    if used > 0 then redis.call('DEL', key) end
    used = 0
  elseif cost > 0 then
    local delete = (taken == 0 or taken == log.stop) and newest or oldest
    if delete(log, cost) then
      used = used - cost
      expire(log, log.newest)
    else
      heal(log)
      used = 0
    end
  end
  reply[2 * i - 1] = math.max(count - used, 0)
  reply[2 * i] = used > 0 and math.max(log.newest + per - now, 0) or 0
end
return reply
