-- Charges what a server has granted while it was alone: its debts. take.lua describes
-- buckets and time.
--
-- KEYS   for each debt two: the bucket, and a marker of this server
-- ARGV   for each debt eight: a random id of the payment; then in ticks
--        more  moves the TAT ahead, from where it is
--        least is how far ahead of now the TAT is afterwards, at least
--        room  how far ahead of now the TAT may be moved
--        top   no TAT is further ahead of now
--        ends  the end of a quota's period, which takes the place of now; 0 for a rate
--        begins, previous: when the quota's period and the one before began. If Redis is
--              still in the one before, as the server's clock is ahead, that one is charged
-- Reply  for each debt two: how much of more is paid, and how far ahead the TAT is. Nothing
--        is paid, and the second is -1, if the quota's period is over or comes after the
--        next one, or if another limit or clock has set a TAT beyond top: the bucket is
--        used up then, and take.lua brings the TAT down
--
-- The marker of a payment says what was paid, so that one whose reply was lost is not
-- charged again: the caller repeats the id until it gets a reply. It is kept for a minute.

local time = redis.call('TIME')
local now = (time[1] - 1735689600) * 10000000 + time[2] * 10
local values = redis.call('MGET', (table.unpack or unpack)(KEYS))
local cell = 100000000 -- 10 s, for which a key is kept after its TAT
local reply = {}
for i = 1, #KEYS / 2 do
  local key, marker, id = KEYS[2 * i - 1], KEYS[2 * i], ARGV[8 * i - 7]
  local more, least = tonumber(ARGV[8 * i - 6]), tonumber(ARGV[8 * i - 5])
  local room, top = tonumber(ARGV[8 * i - 4]), tonumber(ARGV[8 * i - 3])
  local ends, begins, previous = tonumber(ARGV[8 * i - 2]), tonumber(ARGV[8 * i - 1]), tonumber(ARGV[8 * i])
  local old = tonumber(values[2 * i - 1])
  local before = string.match(values[2 * i] or '', '^' .. id .. ':(%d+)$')

  local base = ends > 0 and ends or now
  if now < begins and not ((old or 0) > ends) then base = begins end -- later values: see base in take.lua
  local ahead = (old or base) - base -- of a rate, negative for a TAT in the past
  if not (ahead >= (ends > 0 and 0 or -cell)) then ahead = 0 end -- of an earlier period, or damaged
  local paid = more
  if ahead > top or now < previous or ends > 0 and now >= ends then
    paid, ahead = 0, -1
  elseif before then
    paid, ahead = tonumber(before), math.max(ahead, 0)
  else
    local wanted = math.max(ahead + more, least)
    ahead = math.max(math.min(wanted, room), ahead, 0)
    paid = math.max(more - math.max(wanted - ahead, 0), 0)
    if ahead > 0 and base + ahead ~= old then
      redis.call('SET', key, string.format('%.0f', base + ahead), 'PXAT',
        string.format('%.0f', 1735689600000 + (base + ahead + cell) / 10000))
      redis.call('SET', marker, id .. ':' .. string.format('%.0f', paid), 'PX', 60000)
    end
  end
  reply[2 * i - 1], reply[2 * i] = paid, ahead
end
return reply
