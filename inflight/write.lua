-- Writes what one server holds of a key, and decides about what it wants to hold.
--
-- KEYS  [1] the key, a hash. Fields:
--       <id>    of each server: count, number, at, lease: what it holds, since when (ms) and for how long, as in
--               "2 17 1767225600000 10000". Its lease ends at + lease
--       total   total, earliest, written, lasts: the sum of the counts; no lease of another server with a count ends
--               before earliest; when the hash was last written; for how long it is kept, two leases
--       denied  who, when, before: the server that was denied last, and when; when another one was, or 0
-- ARGV  [1] id      of the server: 16 hexadecimal digits
--       [2] number  of this write; one that is not larger than the field's is ignored
--       [3] held    what the server holds, without its wants: absolute
--       [4] lease   in ms
--       [5...]      two for each want: n, and most, what all servers may hold with it
-- Reply a character for each want, in order: 1 granted, 0 denied; without wants the total. The error OLD if the
--       number is not larger than the field's
--
-- The fields are walked only when the lease of another server may have ended, or when the clock has gone back: then an at that is
-- later than now becomes now. A field with the count 0 stays until its lease ends, for its number. A value that is
-- damaged counts as absent.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local key, id, number, held, lease = KEYS[1], ARGV[1], ARGV[2] + 0, ARGV[3] + 0, ARGV[4]
local match, format = string.match, string.format
local four = '^(%d+) (%d+) (%d+) (%d+)$'

-- Numbers are made text as seldom as possible: each costs Redis up to 1 us, and '%d' half of '%.0f'. Where C's long has 32
-- bits, '%d' gives fewer digits than a time has.
local whole, nowText = '%d', format('%d', now)
if #nowText < 13 then
  whole, nowText = '%.0f', format('%.0f', now)
end
local fields = redis.call('HMGET', key, id, 'total', 'denied')

local count, last = match(fields[1] or '', '^(%d+) (%d+) ')
count, last = (count or 0) + 0, (last or 0) + 0
if number <= last then return { err = 'OLD write: there is a later one of this server' } end

local total, earliest, written, lasts = match(fields[2] or '', four)
total = total and total + 0
if not total or now < written + 0 or now >= earliest + 0 and (total > count or now >= earliest + 3600000) then
  total, earliest, count, lasts = 0, now + 60000, 0, 0
  local all = redis.call('HGETALL', key)
  for i = 1, #all, 2 do
    if all[i] ~= 'total' and all[i] ~= 'denied' then
      local theirs, version, since, long = match(all[i + 1], four)
      local ends = theirs and math.min(since + 0, now) + long or 0
      if ends <= now then
        redis.call('HDEL', key, all[i])
      else
        if since + 0 > now then
          redis.call('HSET', key, all[i], theirs .. ' ' .. version .. ' ' .. nowText .. ' ' .. long)
        end
        total = total + theirs
        if all[i] == id then
          count = theirs + 0
        elseif theirs ~= '0' then
          earliest = math.min(earliest, ends)
        end
        lasts = math.max(lasts, 2 * long)
      end
    end
  end
  earliest = format(whole, earliest)
end

-- Servers share: what this one has released meanwhile is not for its own wants if another was denied in the last second.
local reserved = 0
local who, when, before = match(fields[3] or '', '^(%x+) (%d+) (%d+)$')
if who and #ARGV > 4 and count > held then
  local since = now - (who == id and before or when)
  if since >= 0 and since < 1000 then reserved = count - held end
end

total = total - count + held
local reply, full, holds = '', false, ARGV[3]
for i = 5, #ARGV, 2 do
  local n, most = ARGV[i] + 0, ARGV[i + 1] + 0
  if total + reserved + n <= most then
    total, held, reply = total + n, held + n, reply .. '1'
  else
    full, reply = true, reply .. '0'
  end
end

if held > holds + 0 then holds = format(whole, held) end
if held > 0 and now + lease < earliest + 0 then earliest = format(whole, now + lease) end
if lasts + 0 < 2 * lease then lasts = format(whole, 2 * lease) end
local mine = holds .. ' ' .. ARGV[2] .. ' ' .. nowText .. ' ' .. lease
total = format(whole, total)
local sums = total .. ' ' .. earliest .. ' ' .. nowText .. ' ' .. lasts
if full then
  if who == id then when = nowText else who, when, before = id, nowText, when or 0 end
  redis.call('HSET', key, id, mine, 'total', sums, 'denied', who .. ' ' .. when .. ' ' .. before)
else
  redis.call('HSET', key, id, mine, 'total', sums)
end
redis.call('PEXPIRE', key, lasts) -- text: a number takes it 1 us more
return #ARGV > 4 and reply or total
