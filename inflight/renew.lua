-- Renews the leases of one server on many keys. It writes only what is there already, so it may also be run away from some of
-- the keys: write.lua has the fields, and carries out what this one does not.
--
-- KEYS  the keys
-- ARGV  [1] id of the server, then for each key three: number, held and lease, as for write.lua
-- Reply a character for each key: 1 renewed; 0 not, since the server does not hold just that, or the clock has gone back

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local id, match, nowText = ARGV[1], string.match, string.format('%.0f', now)
local reply = {}

for k, key in ipairs(KEYS) do
  local number, held, lease = ARGV[3 * k - 1], ARGV[3 * k], ARGV[3 * k + 1]
  local fields = redis.call('HMGET', key, id, 'total')
  local count, last, at, long = match(fields[1] or '', '^(%d+) (%d+) (%d+) (%d+)$')
  local sums, written, lasts = match(fields[2] or '', '^(%d+ %d+ )(%d+) (%d+)$')

  reply[k] = '0'
  if count == held and sums and number + 0 > last + 0 and written + 0 <= now and at + long > now then
    if lasts + 0 < 2 * lease then lasts = 2 * lease end
    redis.call('HSET', key, id, held .. ' ' .. number .. ' ' .. nowText .. ' ' .. lease, 'total', sums .. nowText .. ' ' .. lasts)
    redis.call('PEXPIRE', key, lasts)
    reply[k] = '1'
  end
end
return table.concat(reply)
