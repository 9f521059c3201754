-- Takes a batch of admissions from their buckets; each takes all of its charges
-- or none. The law and its names are those of package gcra (gcra.go); time is
-- counted in ticks of 100 ns since 2025-01-01T00:00:00Z.
--
-- KEYS   the buckets, each once; a value is the theoretical arrival time (TAT)
-- ARGV   [1]  the plan: 4 bytes a charge, in the order of the admissions:
--             key (2 bytes, high first, counted from 0), demand (counted from 0),
--             flags (1: last charge of its admission, 2: shadow)
--        [2]  then for each demand three numbers: inc, room, top
--             inc   cost*T; 0 peeks, negative refunds
--             room  B*T + Within: how far ahead of now inc may push the TAT
--             top   B*T + MaxDelay: no TAT is further ahead of now
-- Reply  for each charge how many ticks its TAT stood ahead of now when its
--        turn came, as ahead when its admission passed and -ahead-1 when not
--
-- A value that is no number counts as absent, and the clamp bounds all others,
-- so that a damaged bucket heals itself. First pass computes, second writes: a
-- refusal writes nothing but a TAT that its limit cannot have made, brought
-- down to the clamp, or the bucket would refuse until now comes near it. Where
-- writing fails (out of memory, read-only) nothing has been written.

local time = redis.call('TIME')
local now = (time[1] - 1735689600) * 10000000 + time[2] * 10
local tats = redis.call('MGET', (table.unpack or unpack)(KEYS))

local lead = {} -- key: how far ahead of now its TAT stands, after the admissions so far
for k = 1, #KEYS do
  lead[k] = (tonumber(tats[k] or now) or now) - now
end

local plan = ARGV[1]
local byte = string.byte
local reply = {}
local dirty = {}               -- key: true when it must be written
local first, admitted = 1, true -- of the admission under way
local undo = {}                -- its keys and their leads before it, in pairs
for i = 1, #plan / 4 do
  local high, low, demand, flags = byte(plan, 4 * i - 3, 4 * i)
  local k = 256 * high + low + 1
  local inc = tonumber(ARGV[3 * demand + 2])
  local room = tonumber(ARGV[3 * demand + 3])
  local top = tonumber(ARGV[3 * demand + 4])

  local ahead = lead[k]
  if not (ahead > 0) then
    ahead = 0
  elseif ahead > top then
    ahead = top
    if inc > 0 and room >= 0 then lead[k], dirty[k] = top, true end
  end
  reply[i] = ahead
  if inc <= 0 or ahead + inc <= room then
    if inc > 0 or (inc < 0 and ahead > 0) then
      undo[#undo + 1], undo[#undo + 2] = k, lead[k]
      lead[k] = math.max(ahead + inc, 0)
    end
  elseif flags < 2 then
    admitted = false
  end

  if flags % 2 == 1 then
    if admitted then
      for u = 1, #undo, 2 do dirty[undo[u]] = true end
    else
      for u = #undo - 1, 1, -2 do lead[undo[u]] = undo[u + 1] end
      for j = first, i do reply[j] = -reply[j] - 1 end
    end
    first, admitted, undo = i + 1, true, {}
  end
end

for k = 1, #KEYS do
  if dirty[k] then
    redis.call('SET', KEYS[k], string.format('%.0f', now + lead[k]),
      'PX', string.format('%.0f', math.max(math.ceil(lead[k] / 10000), 1)))
  end
end
return reply
