-- Changes the hash of overrides: all that is asked for, or nothing.
--
-- KEYS[1]  the hash
-- ARGV     the version's field and the start of its new value; the most entries and the most bytes
--          that there may be after a set; the bytes that were read;
--          n, and n fields to remove, with their values as they were read;
--          the fields and values to set
--
-- Replies with the numbers of entries and of bytes that there would be, both without the version,
-- and of those removed. If entries or bytes are above their bound, nothing is set. Removing alone has
-- no bound.
--
-- The version ends with a dot and the bytes, so that a change does not read the whole hash, for
-- which servers would wait. Without a version the bytes that were read count.

local key, version = KEYS[1], ARGV[1]
local most, most_bytes = tonumber(ARGV[3]), tonumber(ARGV[4])
local next_arg = 6

local function take()
  next_arg = next_arg + 1
  return ARGV[next_arg - 1]
end

local entries = redis.call('HLEN', key)
local before = redis.call('HGET', key, version)
local bytes = tonumber(string.match(before or '', '%.(%d+)$') or ARGV[5])
if before then entries = entries - 1 end

-- Each field is changed once: an entry is removed only if nobody has set it again since it was read.
local gone, removed, set = {}, 0, {}
local function drop(field, read)
  local value = redis.call('HGET', key, field)
  if value and not gone[field] and (not read or read == value) then
    gone[field], entries, bytes, removed = true, entries - 1, bytes - #field - #value, removed + 1
  end
end
for _ = 1, tonumber(take()) do
  local field = take()
  drop(field, take())
end

local sets = next_arg <= #ARGV
while next_arg <= #ARGV do
  local field = take()
  drop(field)
  if set[field] then entries, bytes = entries - 1, bytes - #field - #set[field] end
  set[field] = take()
  entries, bytes = entries + 1, bytes + #field + #set[field]
end
if sets and (entries > most or bytes > most_bytes) then
  return {entries, bytes, removed}
end

redis.call('HSET', key, version, ARGV[2] .. '.' .. bytes)
for field in pairs(gone) do
  redis.call('HDEL', key, field)
end
for field, value in pairs(set) do
  redis.call('HSET', key, field, value)
end
return {entries, bytes, removed}
