-- Marks a store, and counts the stores that have a mark.
--
-- KEYS[1]  "<id>=<until>;<id>=<until>;...", the newest first; until is a time in
--          milliseconds by this clock
-- ARGV[1]  the store's id, letters and digits
-- ARGV[2]  how long its mark lasts, in milliseconds
-- ARGV[3]  the longest that any mark lasts
-- ARGV[4]  how many marks are kept; older ones are dropped
-- Reply    how many stores have a mark, this one included. Negative if there may be more:
--          the store's last mark is gone, or less than a third of ARGV[2] is left of it.
--          Then the key was lost, or Redis was away, and marks of others may be gone too
--
-- A mark has at most 25 bytes: an id of 10, and a time of 13. A value of more than 32 for
-- each mark that is kept is damaged and dropped unread, and so is a mark with a longer id.
-- Each mark is matched from its first byte only, so the time taken is linear in the value.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local id, lasts, longest, most = ARGV[1], tonumber(ARGV[2]), now + ARGV[3], tonumber(ARGV[4])
local last, left, n = now + lasts, 0, 1
local marks = { id .. '=' .. last }
local value = redis.call('MGET', KEYS[1])[1] or '' -- a list or a hash is absent
if #value > 32 * most then value = '' end

for mark in string.gmatch(value, '[^;]+') do
  local other, till = string.match(mark, '^(%w+)=(%d+)$')
  till = not other and 0 or tonumber(till) or math.huge
  if till > longest then -- the clock has gone back, or the value is damaged
    till = longest
    mark = other .. '=' .. till
  end
  if other == id then
    left = till - now
  elseif till > now and n < most and #other <= 16 then
    n = n + 1
    marks[n] = mark
    last = math.max(last, till)
  end
end

redis.call('SET', KEYS[1], table.concat(marks, ';'), 'PX', last - now)
return left * 3 < lasts and -n or n
