-- Changes the hash of overrides: all that is asked for, or nothing.
--
-- KEYS[1]  the hash
-- ARGV     the version's field and its new value; the most entries and the most bytes that
--          there may be after a set;
--          n, and n fields and values that had ended when they were read;
--          m, and m fields to take back;
--          the fields and values to set
--
-- Replies with the numbers of entries and of bytes that there would be, both without the
-- version. If one is above its bound, nothing is set. Taking back has no bound.

local key, version = KEYS[1], ARGV[1]
local most, most_bytes = tonumber(ARGV[3]), tonumber(ARGV[4])
local next_arg = 5

local function take()
  next_arg = next_arg + 1
  return ARGV[next_arg - 1]
end

local ended, back, set = {}, {}, {}
for _ = 1, tonumber(take()) do
  local field = take()
  ended[field] = take()
end
for _ = 1, tonumber(take()) do
  back[take()] = true
end
local sets = next_arg <= #ARGV
while next_arg <= #ARGV do
  local field = take()
  set[field] = take()
end

-- An entry that has ended goes only if nobody has set it again since it was read.
local gone, entries, bytes = {}, 0, 0
local all = redis.call('HGETALL', key)
for i = 1, #all, 2 do
  local field, value = all[i], all[i + 1]
  if back[field] or ended[field] == value then
    gone[#gone + 1] = field
  elseif field ~= version and not set[field] then
    entries, bytes = entries + 1, bytes + #field + #value
  end
end
for field, value in pairs(set) do
  entries, bytes = entries + 1, bytes + #field + #value
end

if sets and (entries > most or bytes > most_bytes) then
  return {entries, bytes}
end

redis.call('HSET', key, version, ARGV[2])
for _, field in ipairs(gone) do
  redis.call('HDEL', key, field)
end
for field, value in pairs(set) do
  redis.call('HSET', key, field, value)
end
return {entries, bytes}
