-- Charges what a server has granted while it was alone. take.lua describes buckets and time.
--
-- KEYS   for each report two: the bucket, and a marker of this server
-- ARGV   for each report six: a random id; then in ticks
--        amount  moves the TAT ahead
--        top     no TAT is further ahead of now
--        ends    the end of a quota's period, which takes the place of now; 0 for a rate
--        begins, previous: when the quota's period and the one before began. If Redis is
--                still in the one before, as the server's clock is ahead, that one is charged
-- Reply  for each report two: how much of amount is charged, and how far ahead of now or of
--        ends the TAT is, at least 0. Nothing is charged, and the second is -1, if the
--        quota's period is over, or has not begun and is not the next one, or if another
--        limit or clock has set a TAT beyond top: the bucket is used up then, and take.lua
--        brings the TAT down
--
-- The marker says what was charged under which id, so that a report whose reply was lost is
-- not charged again: the caller repeats the id until it gets a reply. It is kept for a minute.

local time = redis.call('TIME')
local now = (time[1] - 1735689600) * 10000000 + time[2] * 10
local values = redis.call('MGET', (table.unpack or unpack)(KEYS))
local cell = 100000000 -- 10 s, for which a key is kept after its TAT
local reply = {}

for i = 1, #KEYS / 2 do
  local key, marker, id = KEYS[2 * i - 1], KEYS[2 * i], ARGV[6 * i - 5]
  local amount, top = tonumber(ARGV[6 * i - 4]), tonumber(ARGV[6 * i - 3])
  local ends, begins, previous = tonumber(ARGV[6 * i - 2]), tonumber(ARGV[6 * i - 1]), tonumber(ARGV[6 * i])
  local old = tonumber(values[2 * i - 1])
  local before = string.match(values[2 * i] or '', '^' .. id .. ':(%d+)$')

  local base = ends > 0 and ends or now
  if now < begins and not ((old or 0) >= ends) then base = begins end -- later values: see base in take.lua
  local ahead = math.max(0, (old or base) - base) -- 0 also for a value that is no number

  local charged = 0
  if ahead > top or now < previous or ends > 0 and now >= ends then
    ahead = -1
  elseif before then
    charged = tonumber(before)
  else
    charged = math.min(amount, top - ahead)
    if charged > 0 then
      ahead = ahead + charged
      redis.call('SET', key, string.format('%.0f', base + ahead), 'PXAT',
        string.format('%.0f', 1735689600000 + (base + ahead + cell) / 10000))
      redis.call('SET', marker, id .. ':' .. string.format('%.0f', charged), 'PX', 60000)
    end
  end
  if base < ends then ahead = math.min(ahead, 0) end -- of the period before; in that of ends nothing is used
  reply[2 * i - 1], reply[2 * i] = charged, ahead
end
return reply
