-- Keeps what a store says of the policies of its limiters. internal/published has the format.
--
-- KEYS[1]  the value
-- ARGV[1]  the store's id, letters and digits
-- ARGV[2]  for how many seconds it is kept
-- ARGV[3]  the most bytes of the value, half of them for servers
-- ARGV[4]  and the rest: the texts of the limiters
-- Reply    1, or 0 if the value has another version
--
-- Servers that do not fit are dropped, the oldest first, and so are limiters.

local now = tonumber(redis.call('TIME')[1])
local id, lasts, most = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local value = redis.call('MGET', KEYS[1])[1] or '' -- a list or a hash is absent
if #value > most then value = '' end
local version = string.match(value, '^(%d+)\n')
if version and version ~= '1' then return 0 end

local texts, hashes = {}, {}
for i = 4, #ARGV do
  local hash = string.sub(redis.sha1hex(ARGV[i]), 1, 8)
  texts[hash], hashes[#hashes + 1] = ARGV[i], hash
end
hashes = table.concat(hashes, ',')

local lines, size, wanted = { '1' }, 2, {}
local function add(line, bound)
  if size + #line + 1 > bound then return false end
  lines[#lines + 1], size = line, size + #line + 1
  return true
end
local function server(line, names)
  if add(line, most / 2) then
    for hash in string.gmatch(names, '%x+') do
      wanted[#wanted + 1] = hash
    end
  end
end

server('server ' .. id .. ' ' .. string.format('%.0f', now) .. ' ' .. hashes, hashes)
for line in string.gmatch(value, '[^\n]+') do
  local other, at, names = string.match(line, '^server (%w+) (%d+) ([%x,]*)$')
  local hash, text = string.match(line, '^limiter (%x+) (.*)$')
  if other then
    local age = now - tonumber(at)
    if other ~= id and age < lasts and age > -60 then server(line, names) end
  elseif hash then
    texts[hash] = texts[hash] or text
  end
end

for _, hash in ipairs(wanted) do
  if texts[hash] then
    add('limiter ' .. hash .. ' ' .. texts[hash], most)
    texts[hash] = nil
  end
end
redis.call('SET', KEYS[1], table.concat(lines, '\n') .. '\n', 'PX', lasts * 1000)
return 1
