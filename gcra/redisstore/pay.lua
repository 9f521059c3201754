-- Charges what a server has granted while it was alone: its debts. take.lua describes
-- buckets and time.
--
-- KEYS   for each debt two: the bucket, and a marker of this server
-- ARGV   for each debt five: a random id of the payment; then in ticks
--        more  moves the TAT ahead, from where it is
--        least is how far ahead of now the TAT is afterwards, at least
--        top   no TAT is further ahead of now
--        ends  the end of a quota's period, which takes the place of now; 0 for a rate
-- Reply  for each debt two: how much of more is paid, and how far ahead the TAT is; -1 if
--        the quota's period is over
--
-- The marker of a payment says what was paid, so that one whose reply was lost is not
-- charged again: the caller repeats the id until it gets a reply. It is kept for a minute.

local time = redis.call('TIME')
local now = (time[1] - 1735689600) * 10000000 + time[2] * 10
local values = redis.call('MGET', (table.unpack or unpack)(KEYS))
local reply = {}
for i = 1, #KEYS / 2 do
  local id = ARGV[5 * i - 4] .. ':'
  local more, least = tonumber(ARGV[5 * i - 3]), tonumber(ARGV[5 * i - 2])
  local top, ends = tonumber(ARGV[5 * i - 1]), tonumber(ARGV[5 * i])
  local old, marker = tonumber(values[2 * i - 1]), values[2 * i]
  local base = ends > 0 and ends or now
  local ahead = (old or base) - base -- of a rate, negative for a TAT in the past
  if ends > 0 then ahead = math.max(ahead, 0) end
  local paid = more
  if ends > 0 and (now >= ends or ahead > top) then
    ahead = -1
  elseif marker and string.sub(marker, 1, #id) == id then
    paid = tonumber(string.sub(marker, #id + 1))
    ahead = math.max(ahead, 0)
  else
    local wanted = math.max(ahead + more, least)
    local to = math.min(wanted, top)
    paid = math.max(more - (wanted - to), 0)
    if to > ahead and to > 0 then
      redis.call('SET', KEYS[2 * i - 1], string.format('%.0f', base + to), 'PXAT',
        string.format('%.0f', 1735689600000 + (base + to + 100000000) / 10000))
      redis.call('SET', KEYS[2 * i], id .. string.format('%.0f', paid), 'PX', 60000)
      ahead = to
    end
    ahead = math.max(ahead, 0)
  end
  reply[2 * i - 1], reply[2 * i] = paid, ahead
end
return reply
